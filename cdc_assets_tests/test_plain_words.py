"""Names and phrases that were given up for better ones do not come back; long functions say why at their steps; heads have short sentences."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent / "cdc_assets"

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


def tokens(kinds: frozenset[int]) -> Iterator[tuple[Path, tokenize.TokenInfo]]:
    for path in ROOT.rglob("*.py"):
        with path.open("rb") as file:
            yield from ((path, token) for token in tokenize.tokenize(file.readline) if token.type in kinds)


def test_names_that_were_given_up_are_gone() -> None:
    found = {
        f"{path.name}:{token.start[0]} {token.string}"
        for path, token in tokens(frozenset({tokenize.NAME}))
        if token.string.strip("_") in GIVEN_UP
    }
    assert not found


def test_limits_are_called_max_and_min() -> None:
    found = {
        token.string
        for _, token in tokens(frozenset({tokenize.NAME}))
        if re.match(r"_*(most|least)_", token.string.lower())
    }
    assert found <= {"most_common"}, "Counter's own"


def test_phrases_that_were_given_up_are_in_no_text() -> None:
    phrase = re.compile(r"\b(?:" + "|".join(words.replace(" ", r"\s+") for words in PHRASES) + r")\b", re.IGNORECASE)
    texts = tokens(frozenset({tokenize.STRING, tokenize.COMMENT}))
    found = [
        f"{path.name}:{text.start[0]} {match[0]}" for path, text in texts for match in phrase.finditer(text.string)
    ]
    assert not found


MAX_SILENT_LINES = 40
"""Lines of a function, without signature and docstring, that need no comment."""


def silent_functions(source: str) -> Iterator[tuple[str, int, int]]:
    """Long functions: name, lines, and lines with a comment."""
    commented = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            begin, end = (body[0].lineno if body else 0), node.end_lineno or 0
            if body and end - begin + 1 > MAX_SILENT_LINES:
                yield node.name, end - begin + 1, sum(begin <= line <= end for line in commented)


def test_long_functions_say_why_at_their_steps() -> None:
    few = [
        f"{path.name}: {name} has {lines} lines and {comments} comments"
        for path in ROOT.rglob("*.py")
        for name, lines, comments in silent_functions(path.read_text())
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
        for path in ROOT.rglob("*.py")
        for sentence in sentences(ast.get_docstring(ast.parse(path.read_text())) or "")
        if sum(any(sign.isalnum() for sign in word) for word in sentence.split()) > MAX_SENTENCE
    ]
    assert not long
