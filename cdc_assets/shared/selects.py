"""Users' T-SQL inside ours: a SELECT statement for a table, and a predicate of its rows.

A statement is embedded into one that reads the table's columns as the events need them: the outer statement selects from
`(<statement>) AS [t]`. What T-SQL allows at the top of a statement but not in a subquery is moved: common table
expressions go before the outer SELECT, query hints after it, and an ORDER BY gets the OFFSET that makes it legal
(https://learn.microsoft.com/en-us/sql/t-sql/queries/select-order-by-clause-transact-sql, limitations).

*Why nothing but a query can come of it.* T-SQL needs no semicolon between statements. So the sender of a signal could add one of
his own, which would run with the login's rights. A statement cannot begin inside parentheses. So a predicate must not close
those around it, and neither must the body of a SELECT; what is moved out of them is nothing but common table expressions
and one list of hints. Where a text, a quoted name or a comment ends is decided as the server does it (comments nest); if that is
not certain, the text is refused.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cdc_assets.errors import InvalidValueError

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*)|(?P<block>/\*)|(?P<quoted>"(?:[^"]|"")*"(?!")|\[(?:[^\]]|\]\])*\](?!\]))"""
    r"""|(?P<text>'(?:[^']|'')*'(?!'))|(?P<open>['"\[])|(?P<word>(?!\d)[\w@#][\w@#$]*)|(?P<mark>[();])|(?P<other>\d[\w.]*|\S)""",
    re.DOTALL,
)
_BLOCK = re.compile(r"/\*|\*/")
_LINE_ENDS = re.compile("[\r\v\f\x1c-\x1e\x85\u2028\u2029]")
"""Characters of which it is not certain whether they end a comment after `--`."""
_NAMED = r"(?:XMLNAMESPACES \(\)|(?:[\w@#$]+|\[\]) (?:\(\) )?AS \(\))"
_PREFIX = re.compile(rf"(?:WITH {_NAMED}(?: , {_NAMED})* )?")
"""What stands before the SELECT, in tokens: common table expressions."""
_STATEMENT = "one SELECT statement with balanced parentheses"


@dataclass(frozen=True, slots=True)
class _Token:
    """A part of a text that is outside of parentheses; `()` for all that a pair of them holds."""

    text: str
    start: int


def embedded(statement: str, columns: str) -> str:
    """A SELECT of some columns from the result of another SELECT.

    Args:
        statement: a complete statement; one semicolon at its end is allowed.
        columns: select list over the alias `t`.

    Raises:
        InvalidValueError: the text is not one SELECT statement.
    """
    text = statement.strip().removesuffix(";").rstrip()
    tokens = _outer_tokens(text, "SELECT statement", _STATEMENT)
    at = next((number for number, token in enumerate(tokens) if token.text == "SELECT"), len(tokens))
    if tokens and tokens[0].text == "()":  # such as (SELECT …) UNION (SELECT …)
        at = 0
    last = next((number for number in range(len(tokens) - 1, at, -1) if tokens[number].text == "OPTION"), len(tokens))
    before, inner, behind = tokens[:at], tokens[at:last], tokens[last:]
    if not inner or not _PREFIX.fullmatch(_sentence(before)) or _sentence(behind) not in ("", "OPTION () "):
        raise InvalidValueError("SELECT statement", text, _STATEMENT, "correct it")
    start, end = inner[0].start, behind[0].start if behind else len(text)
    body, words = text[start:end], [token.text for token in inner]
    if _ordered(words) and "OFFSET" not in words and "TOP" not in words[:3]:
        body = f"{body}\nOFFSET 0 ROWS"
    return f"{text[:start]}SELECT {columns} FROM (\n{body}\n) AS [t] {text[end:]}".rstrip()  # noqa: S608 - a query, as above


def require_predicate(text: str) -> None:
    """Check that a text can be nothing but a condition on rows, in the parentheses that are put around it.

    Raises:
        InvalidValueError: it closes these parentheses, or has more than one statement.
    """
    _outer_tokens(text, "condition", "one predicate with balanced parentheses, without semicolon")


def _ordered(words: list[str]) -> bool:
    return ("ORDER", "BY") in pairwise(words)


def _sentence(tokens: Sequence[_Token]) -> str:
    return "".join(f"{token.text} " for token in tokens)


def _outer_tokens(text: str, what: str, expected: str) -> list[_Token]:
    """Tokens outside of parentheses, words in upper case.

    Raises:
        InvalidValueError: parentheses are not balanced, or a statement ends.
    """
    found, depth = [], 0
    for kind, part, start in _tokens(text):
        if part == "(":
            if depth == 0:
                found.append(_Token("()", start))
            depth += 1
        elif part == ")":
            depth -= 1
        elif depth == 0 and kind != "mark":
            found.append(_Token(part.upper() if kind == "word" else "[]" if kind == "quoted" else part, start))
        if depth < 0 or part == ";" or kind in ("open", "unclear"):
            depth = -1
            break
    if depth:
        raise InvalidValueError(what, text, expected, "correct it")
    return found


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Kind, text and start of each token; without comments, whose end is `unclear` if it is missing or not certain."""
    at = 0
    while token := _TOKEN.search(text, at):
        at, kind = token.end(), str(token.lastgroup)
        if kind == "comment":
            if _LINE_ENDS.search(token[0].removesuffix("\r")):
                yield "unclear", "", token.start()
        elif kind == "block":
            end = _end_of_block(text, at)
            if end is None:
                yield "unclear", "", token.start()
                return
            at = end
        else:
            yield kind, token[0] if kind != "text" else "''", token.start()


def _end_of_block(text: str, at: int) -> int | None:
    """Where a comment ends that has begun before `at`, with those inside it; None if it does not."""
    depth = 1
    for mark in _BLOCK.finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return None
