"""Docstrings and comments are written in common words: of some words of this project's own dialect a room has few.

They hide who does what: *told* is "reported" or "recorded", *a look* is a report, *anew* is "again", *behind* is "after". A room may have `LIMIT`
of them in 1,000 words. The same is counted in messages, and in the words of which names are made; what has more of them today may not grow.
"""

import ast
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from cdc_assets_tests.sources import nodes_of, tree_of

pytestmark = pytest.mark.usefixtures("parsed_once")
ROOT = Path(__file__).parent.parent / "cdc_assets"

LIMIT = 4
DIALECT = re.compile(
    r"\b(told|tells?|telling|goes on|go on|anew|nonetheless|looks?|looked|whoever|nobody|alone|behind|stands?(?!-in)|asks?|asked)\b",
    re.IGNORECASE,
)
WORD = re.compile(r"[A-Za-z][\w'-]*")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
"""A word of a name."""

MESSAGES = {"adapters.spark": 7}
"""Rooms with more of them in their messages: how many in 1,000 words."""
NAMES = {
    "adapters.kafka": 13,
    "adoption": 7,
    "assembly": 26,
    "cli": 9,
    "engine": 6,
    "ledger": 8,
    "metrics": 8,
    "mirror": 5,
    "overview": 16,
    "publish": 5,
    "reconcile": 6,
    "streaming": 5,
}
"""The same in the names that a room defines: of functions, classes, arguments, variables and attributes."""


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[: 2 if parts[0] == "adapters" else 1])


@cache
def shares(kind: Callable[[Path], Iterator[str]]) -> dict[str, float]:
    """How many of 1,000 words are dialect in the texts of each room."""
    words, dialect = Counter[str](), Counter[str]()
    for path in ROOT.rglob("*.py"):
        room = room_of(path)
        for text in kind(path):
            words[room] += len(WORD.findall(text))
            dialect[room] += len(DIALECT.findall(text))
    return {room: 1000 * dialect[room] / count for room, count in words.items()}


def prose(path: Path) -> Iterator[str]:
    """Docstrings and comments of a module, also the texts behind constants and fields."""
    for node in nodes_of(tree_of(path)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    for token in tokens:
        if token.type == tokenize.COMMENT:
            yield token.string


def messages(path: Path) -> Iterator[str]:
    """Texts of several words that are no docstrings."""
    nodes = nodes_of(tree_of(path))
    documents = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if " " in text.strip() and id(node) not in documents:
                yield text


def names(path: Path) -> Iterator[str]:
    """Words of the names that a module defines."""
    for node in nodes_of(tree_of(path)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield " ".join(PART.findall(name))
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield " ".join(PART.findall(name))


ROOMS = sorted({room_of(path) for path in ROOT.rglob("*.py")})
"""Without reading any: every worker of a run collects all tests."""


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize(("kind", "more"), [(prose, {}), (messages, MESSAGES), (names, NAMES)])
def test_a_room_is_written_in_common_words(
    kind: Callable[[Path], Iterator[str]], more: Mapping[str, int], room: str
) -> None:
    found, limit = shares(kind).get(room, 0.0), more.get(room, LIMIT)
    assert found <= limit, (
        f"{room} has {found:.1f} dialect words ({DIALECT.pattern}) in 1,000 words of {kind.__name__}; {limit} are allowed. "
        "Next: say it with common verbs (docs/glossary.md)"
    )


def test_words_are_found_in_docstrings_and_comments_alone(tmp_path: Path) -> None:
    source = '"""A look."""\nlook = "anew"  # told\nclass A:\n    x = 1\n    """Behind it."""\n'
    path = tmp_path / "some.py"
    path.write_text(source)
    assert [len(DIALECT.findall(text)) for text in prose(path)] == [1, 1, 1]


def test_words_are_found_in_messages_and_names(tmp_path: Path) -> None:
    source = (
        '"""A look."""\nclass LookedAt:\n    def told(self, _behind): self.anew = say("nobody asks") or {"look": 1}\n'
    )
    path = tmp_path / "some.py"
    path.write_text(source)
    assert [len(DIALECT.findall(text)) for text in messages(path)] == [2]
    assert [len(DIALECT.findall(text)) for text in names(path)] == [1, 1, 0, 1, 1]
