"""Names and phrases that were given up for better ones do not come back; long functions say why at their steps; heads have short sentences."""

import ast
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from cdc_assets_tests.sources import nodes_of, tree_of

pytestmark = pytest.mark.usefixtures("parsed_once")
ROOT = Path(__file__).parent.parent / "cdc_assets"
PATHS = sorted(ROOT.rglob("*.py"))

GIVEN_UP = frozenset(
    [
        "obey",
        "strangers",
        "part_with",
        "take_leave",
        "set_aside",
        "end_old_lives",
        "speak",
        "glance",
        "mend",
        "begin_anew",
        "takes_in",
        "Finding",
        "may_pass",
        "calm",
        "make_room",
        "open_doors",
        "close_doors",
        "meeting",
        "attend",
        "told",
        "settle",
        "judge",
        "apart",
        "unseen",
        "Walk",
        "look_at",
        "look_back",
        "look_when_due",
        "look_once",
        "Look",
        "Seen",
        "JsonParts",
        "unwritable",
        "not_made",
        "given_by",
        "untimely",
        "is_told",
        "tell_lost",
        "tell_changes",
        "told_history",
        "told_if_still",
        "errors_told",
        "runs_behind",
        "leave_behind",
        "nothing_between",
        "wake",
        "of_this_life",
        "Absence",
        "Places",
        "planned_places",
    ]
)
"""Names without leading underscores."""
PHRASES = (
    "gone on with",
    "mended",
    "walked along",
    "last look",
    "by the looks",
    "was not told",
    "as it was told",
    "has brought it to",
    "stands still",
    "knocks",
    "is as due",
)
"""Which are in no text of the code."""


@dataclass
class Words:
    """What a module is written in.

    Args:
        names: with the line where each is first.
        texts: strings and comments, with the lines where they begin.
        commented: lines with a comment.
    """

    names: dict[str, int] = field(default_factory=dict)
    texts: list[tuple[int, str]] = field(default_factory=list)
    commented: set[int] = field(default_factory=set)


@cache
def words_of(path: Path) -> Words:
    found = Words()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.NAME:
                found.names.setdefault(token.string, token.start[0])
            elif token.type in (tokenize.STRING, tokenize.COMMENT):
                found.texts.append((token.start[0], token.string))
                found.commented |= {token.start[0]} if token.type == tokenize.COMMENT else set()
    return found


def test_names_that_were_given_up_are_gone() -> None:
    found = {
        f"{path.name}:{line} {name}"
        for path in PATHS
        for name, line in words_of(path).names.items()
        if name.strip("_") in GIVEN_UP
    }
    assert not found


def test_limits_are_called_max_and_min() -> None:
    found = {name for path in PATHS for name in words_of(path).names if re.match(r"_*(most|least)_", name.lower())}
    assert found <= {"most_common"}, "Counter's own"


def test_phrases_that_were_given_up_are_in_no_text() -> None:
    phrase = re.compile(r"\b(?:" + "|".join(words.replace(" ", r"\s+") for words in PHRASES) + r")\b", re.IGNORECASE)
    found = [
        f"{path.name}:{line} {match[0]}"
        for path in PATHS
        for line, text in words_of(path).texts
        for match in phrase.finditer(text)
    ]
    assert not found


MAX_SILENT_LINES = 40
"""Lines of a function, without signature and docstring, that need no comment."""


def silent_functions(path: Path) -> Iterator[tuple[str, int, int]]:
    """Long functions: name, lines, and lines with a comment."""
    commented = words_of(path).commented
    for node in nodes_of(tree_of(path)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            begin, end = (body[0].lineno if body else 0), node.end_lineno or 0
            if body and end - begin + 1 > MAX_SILENT_LINES:
                yield node.name, end - begin + 1, sum(begin <= line <= end for line in commented)


def test_long_functions_say_why_at_their_steps() -> None:
    few = [
        f"{path.name}: {name} has {lines} lines and {comments} comments"
        for path in PATHS
        for name, lines, comments in silent_functions(path)
        if comments < lines // 20
    ]
    assert not few, "Next: a line at each step that says why, or smaller functions"


MAX_SENTENCE = 30
"""Words of a sentence in the head of a module; what follows a colon or a semicolon counts by itself."""


def sentences(head: str) -> Iterator[str]:
    """Those of paragraphs and of items of lists; tables and trees have none."""
    for paragraph in re.split(r"\n\s*\n", head):
        if "|" in paragraph or "├" in paragraph:
            continue
        for item in re.split(r"\n(?=\s*(?:[-*]|\d+\.) )", paragraph):
            yield from re.split(r"(?<=[.!?:;])(?:\*|\)|\")?\s+(?=[A-Z*`\"(a-z])", " ".join(item.split()))


def test_sentences_of_heads_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path in PATHS
        for sentence in sentences(ast.get_docstring(tree_of(path)) or "")
        if sum(any(sign.isalnum() for sign in word) for word in sentence.split()) > MAX_SENTENCE
    ]
    assert not long
