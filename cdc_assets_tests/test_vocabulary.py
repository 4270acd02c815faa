"""Docstrings and comments are written in common words: of some words of this project's own dialect a room has few.

They hide who does what: *told* is "reported" or "recorded", *a look* is a report, *anew* is "again", *behind* is "after". A room may have `LIMIT`
of them in 1,000 words.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "cdc_assets"

LIMIT = 4
DIALECT = re.compile(
    r"\b(told|tells?|telling|goes on|go on|anew|nonetheless|looks?|looked|whoever|nobody|alone|behind|stands?(?!-in)|asks?|asked)\b",
    re.IGNORECASE,
)
WORD = re.compile(r"[A-Za-z][\w'-]*")


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[: 2 if parts[0] == "adapters" else 1])


@cache
def rooms() -> dict[str, tuple[int, int]]:
    """Words of each room, and those of them that are dialect."""
    words, dialect = Counter[str](), Counter[str]()
    for path in ROOT.rglob("*.py"):
        room = room_of(path)
        for text in prose(path.read_text()):
            words[room] += len(WORD.findall(text))
            dialect[room] += len(DIALECT.findall(text))
    return {room: (count, dialect[room]) for room, count in words.items()}


def prose(source: str) -> Iterator[str]:
    """Docstrings and comments of a module, also the texts behind constants and fields."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def share(room: str) -> float:
    words, dialect = rooms()[room]
    return 1000 * dialect / words


ROOMS = sorted({room_of(path) for path in ROOT.rglob("*.py")})
"""Without reading any: every worker of a run collects all tests."""


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_written_in_common_words(room: str) -> None:
    assert share(room) <= LIMIT, (
        f"{room} has {share(room):.1f} dialect words ({DIALECT.pattern}) in 1,000 words of docstrings and comments; {LIMIT} are allowed. "
        "Next: say it with common verbs (docs/glossary.md)"
    )


def test_words_are_found_in_docstrings_and_comments_alone() -> None:
    source = '"""A look."""\nlook = "anew"  # told\nclass A:\n    x = 1\n    """Behind it."""\n'
    assert [len(DIALECT.findall(text)) for text in prose(source)] == [1, 1, 1]
