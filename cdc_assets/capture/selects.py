"""Embeds a user's SELECT statement for a table into one that reads its columns as the events need them.

The outer statement selects from `(<statement>) AS [t]`. What T-SQL allows at the top of
a statement but not in a subquery is moved: common table expressions go before the outer
SELECT, query hints after it, and an ORDER BY gets the OFFSET that makes it legal
(https://learn.microsoft.com/en-us/sql/t-sql/queries/select-order-by-clause-transact-sql,
limitations). Words inside parentheses, literals, quoted names and
comments are ignored. A text of more than one statement is rejected.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from cdc_assets.errors import InvalidValueError

_TOKEN = re.compile(
    r"""(?P<skip>--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|\[(?:[^\]]|\]\])*\])|(?P<word>[A-Za-z_@#][\w@#$]*)|(?P<mark>[();])""",
    re.DOTALL,
)


def embedded(statement: str, columns: str) -> str:
    """A SELECT of some columns from the result of another SELECT.

    Args:
        statement: a complete statement; one semicolon at its end is allowed.
        columns: select list over the alias `t`.

    Raises:
        InvalidValueError: the text has more than one statement.
    """
    text = statement.strip().removesuffix(";").rstrip()
    words = list(_outer_words(text))
    start = next((index for word, index in words if word == "SELECT"), 0)
    end = next((index for word, index in reversed(words) if word == "OPTION" and index > start), len(text))
    inner = [word for word, index in words if start <= index < end]
    body = text[start:end]
    if _ordered(inner) and "OFFSET" not in inner and "TOP" not in inner[:3]:
        body = f"{body}\nOFFSET 0 ROWS"
    return f"{text[:start]}SELECT {columns} FROM (\n{body}\n) AS [t] {text[end:]}".rstrip()  # noqa: S608 - the operator's own


def _ordered(words: list[str]) -> bool:
    return ("ORDER", "BY") in pairwise(words)


def _outer_words(text: str) -> Iterator[tuple[str, int]]:
    """Words outside of parentheses in upper case, with their indexes."""
    depth = 0
    for token in _TOKEN.finditer(text):
        if token["mark"]:
            depth += {"(": 1, ")": -1, ";": -1000}[token["mark"]]
        elif token["word"] and depth == 0:
            yield token["word"].upper(), token.start()
        if depth < 0:
            break
    if depth:
        raise InvalidValueError("SELECT statement", text, "one statement with balanced parentheses", "correct it")
