"""Clauses that several statements have: names, column lists, hints, TOP, OUTPUT."""

import re
from typing import Final

from mssql_standin.errors import syntax_error, unsupported
from mssql_standin.text.lexer import Kind, tokenize
from mssql_standin.text.reader import Reader

_HINT_WORDS: Final = re.compile(r"\w+")


def read_name(reader: Reader) -> tuple[str, ...]:
    """A one- to four-part name."""
    parts: list[str] = []
    while True:
        token = reader.token()
        if token is not None and token.kind in (Kind.WORD, Kind.NAME, Kind.VARIABLE):
            parts.append(reader.take().value)
        elif reader.word() == ".":
            parts.append("")
        else:
            raise reader.fail()
        if not reader.accept("."):
            return tuple(parts)


def read_hints(reader: Reader) -> frozenset[str]:
    """`WITH (…)` behind a table."""
    if reader.word() == "WITH" and reader.word(1) == "(":
        reader.take()
        first, last = reader.parenthesised()
        return frozenset(word.upper() for word in _HINT_WORDS.findall(reader.between(first, last)))
    return frozenset()


def read_output(reader: Reader, ends: frozenset[str]) -> list[str]:
    """Items of `OUTPUT …` up to one of the words in `ends`; none without the clause."""
    if not reader.accept("OUTPUT"):
        return []
    items = [read_until(reader, ends | {"INTO"}, ",")]
    while reader.accept(","):
        items.append(read_until(reader, ends | {"INTO"}, ","))
    if reader.word() == "INTO":
        raise unsupported("OUTPUT … INTO")
    return items


def read_until(reader: Reader, words: frozenset[str], signs: str = "") -> str:
    """Text up to a keyword or sign outside parentheses and CASE."""
    first, depth, cases = reader.place, 0, 0
    while (token := reader.token()) is not None:
        word = token.upper
        if depth == 0 and cases == 0 and (word in words or (token.kind is Kind.SIGN and token.text in signs)):
            break
        if token.kind is Kind.SIGN:
            depth += (token.text == "(") - (token.text == ")")
            if depth < 0:
                break
        cases += (word == "CASE") - (word == "END" and cases > 0)
        reader.take()
    if first == reader.place:
        raise reader.fail()
    return reader.between(first, reader.place)


def read_columns(reader: Reader) -> list[str]:
    """`(a, b, c)`: last parts of the names."""
    reader.expect("(")
    columns = [read_name(reader)[-1]]
    while reader.accept(","):
        columns.append(read_name(reader)[-1])
    reader.expect(")")
    return columns


def name_parts(text: str) -> tuple[str, ...]:
    """Parts of a possibly quoted, dotted name; an empty text for a part left out (`db..t`)."""
    parts: list[str] = []
    expecting = True
    for token in tokenize(text):
        if token.kind is Kind.SIGN and token.text == ".":
            if expecting:
                parts.append("")
            expecting = True
        elif expecting and token.kind in (Kind.WORD, Kind.NAME, Kind.VARIABLE):
            parts.append(token.value)
            expecting = False
        else:
            raise syntax_error(token.value)
    return tuple(parts)
