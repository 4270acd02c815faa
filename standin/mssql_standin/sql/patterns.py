"""LIKE and PATINDEX: T-SQL patterns as regular expressions.

`%`, `_`, `[a-z]`, `[^a-z]` and an escape character; `_` is one UTF-16 code unit. Under collations that ignore case or accents both
sides are folded first. Trailing blanks of the pattern count, those of the subject may be left over
for varchar, as SQL Server compares.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from mssql_standin.contract import SessionContext, Typed
from mssql_standin.errors import SqlError
from mssql_standin.sql.coercion import collation_of
from mssql_standin.sql.collation import sqlite_collation
from mssql_standin.sql.convert import cast, family
from mssql_standin.sql.literals import Constant
from mssql_standin.sql.runtime import Kernel, builder, call, specification
from mssql_standin.sql.textforms import unit_text
from mssql_standin.sqltypes import NVARCHAR_MAX, UNICODE, SqlType


def bare(text: str) -> str:
    """A text without its accents."""
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


@lru_cache(maxsize=2048)
def _pattern(pattern: str, escape: str, ignore_case: bool) -> "re.Pattern[str]":
    """What stands between two `%` is found at its first place for good: a later one leaves less for the rest.

    So the time is the product of both lengths, not a power. Only what ends the pattern has to try all places.
    """
    pieces: list[list[str]] = [[]]
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if escape and char == escape:
            at += 1
            pieces[-1].append(re.escape(pattern[at]) if at < len(pattern) else re.escape(char))
        elif char == "%":
            pieces.append([])
        elif char == "_":
            pieces[-1].append(".")
        elif char == "[":
            text, at = _set(pattern, at, escape)
            pieces[-1].append(text)
        else:
            pieces[-1].append(re.escape(char))
        at += 1
    first, *others = ("".join(piece) for piece in pieces)
    middle = "".join(f"(?>.*?{piece})" for piece in others[:-1] if piece)
    last = f".*{others[-1]}" if others else ""
    return re.compile(first + middle + last + r"\Z", re.DOTALL | (re.IGNORECASE if ignore_case else 0))


def _set(pattern: str, start: int, escape: str) -> tuple[str, int]:
    """A `[…]` class as a regular expression, and the place of its closing bracket."""
    at = start + 1
    negated = pattern[at : at + 1] == "^"
    at += negated
    members: list[str] = []
    while at < len(pattern) and pattern[at] != "]":
        if escape and pattern[at] == escape and at + 1 < len(pattern):
            at += 1
            members.append(re.escape(pattern[at]))
        elif pattern[at] == "-" and members and at + 1 < len(pattern) and pattern[at + 1] != "]":
            members.append("-")
        else:
            members.append(re.escape(pattern[at]))
        at += 1
    if at >= len(pattern) or not members:
        return r"(?!)", at  # an open or an empty bracket matches nothing
    body = "".join(members)
    try:
        re.compile(f"[{body}]")
    except re.error:
        return r"(?!)", at
    return f"[{'^' if negated else ''}{body}]", at


_IGNORE_CASE: Final = frozenset({"ts_ci_as", "ts_ci_ai"})
_IGNORE_ACCENT: Final = frozenset({"ts_ci_ai", "ts_cs_ai"})


def matcher(collation: str, escape: str) -> Any:
    """A function (subject, pattern) → match or None under a SQLite collation."""
    ignore_case, ignore_accent = collation in _IGNORE_CASE, collation in _IGNORE_ACCENT

    def match(subject: str, pattern: str) -> "re.Match[str] | None":
        if ignore_accent:
            subject, pattern = bare(subject), bare(pattern)
        return _pattern(unit_text(pattern), escape, ignore_case).match(unit_text(subject))

    return match


@builder("like")
def _build_like(arguments: Sequence[str]) -> Kernel:
    collation, blanks = arguments
    cache: dict[str, Any] = {}

    def run(_: SessionContext, subject: Any, pattern: Any, escape: Any = "") -> int | None:
        if subject is None or pattern is None or escape is None:
            return None
        if len(escape) > 1:
            raise SqlError(506, f'The invalid escape character "{escape}" was specified in a LIKE predicate.')
        match = cache.get(escape)
        if match is None:
            match = cache[escape] = matcher(collation, escape)
        if match(subject, pattern):
            return 1
        return int(blanks == "blanks" and subject.endswith(" ") and match(subject.rstrip(" "), pattern) is not None)

    return run


def like(subject: Typed, pattern: Typed, escape: Typed | None, database_collation: str) -> str:
    """SQLite condition for LIKE."""
    operands = [_text(subject), _text(pattern)]
    collation = sqlite_collation(collation_of(operands) or database_collation)
    unicode = any(operand.type.name in UNICODE for operand in operands)
    arguments = [operand.sql for operand in operands]
    if escape is not None:
        arguments.append(_text(escape).sql)
    test = call(specification("like", collation, "" if unicode else "blanks"), arguments)
    bounds = _prefix_bounds(operands[0], operands[1], escape, collation)
    return f"({bounds}{test})" if bounds else test


def _prefix_bounds(subject: Typed, pattern: Typed, escape: Typed | None, collation: str) -> str:
    """A lower bound for a constant prefix, so that an index can be used; the match itself decides."""
    if escape is not None or not isinstance(pattern, Constant) or not isinstance(pattern.value, str):
        return ""
    prefix = re.split(r"[%_\[]", pattern.value, maxsplit=1)[0].rstrip(" ")
    if not prefix.isalnum() or not prefix.isascii():
        return ""
    from mssql_standin.sql.literals import text_literal

    return f"{subject.sql} >= {text_literal(prefix)} COLLATE {collation} AND "


def _text(typed: Typed) -> Typed:
    if family(typed.type) == "text":
        return typed
    return cast(typed, SqlType("varchar", 8000) if family(typed.type) != "binary" else NVARCHAR_MAX)
