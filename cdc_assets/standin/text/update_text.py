"""UPDATE and DELETE as written: text to clauses, whose expressions stay text."""

from dataclasses import dataclass, field
from typing import Final

from cdc_assets.standin.errors import unsupported
from cdc_assets.standin.text.clauses import Output, read_hints, read_name, read_output, read_top, read_until
from cdc_assets.standin.text.lexer import Kind
from cdc_assets.standin.text.reader import Reader

_AFTER_SET: Final = frozenset({"FROM", "WHERE", "OUTPUT", "OPTION"})
_AFTER_OUTPUT: Final = frozenset({"FROM", "WHERE", "OPTION"})
_CLAUSES: Final = frozenset({"WHERE", "OPTION"})


@dataclass(slots=True)
class UpdateText:
    """An UPDATE or DELETE, read."""

    verb: str
    target: tuple[str, ...]
    hints: frozenset[str] = frozenset()
    top: str = ""
    assignments: list[tuple[str, str]] = field(default_factory=list)
    """(column, expression); compound operators are written out."""
    output: Output | None = None
    source: str = ""
    where: str = ""
    variables: list[tuple[str, str, str]] = field(default_factory=list)
    """SET @v = column = expression, or SET @v = expression: (variable, column or empty, expression)."""


def read(text: str) -> UpdateText:
    """Read an UPDATE or DELETE statement."""
    reader = Reader(text)
    verb = reader.take().upper
    top = read_top(reader)
    if verb == "DELETE":
        reader.accept("FROM")
    result = UpdateText(verb, read_name(reader), read_hints(reader), top)
    if verb == "UPDATE":
        reader.expect("SET")
        _setting(reader, result)
        while reader.accept(","):
            _setting(reader, result)
    if verb == "UPDATE" and not result.assignments:
        raise unsupported("an UPDATE that sets only variables")
    result.output = read_output(reader, _AFTER_OUTPUT)
    if reader.accept("FROM"):
        result.source = read_until(reader, _CLAUSES)
    if reader.accept("WHERE"):
        if reader.word() == "CURRENT":
            raise unsupported("WHERE CURRENT OF")
        result.where = read_until(reader, frozenset({"OPTION"}))
    if reader.token() is not None and reader.word() != "OPTION":
        raise reader.fail()
    return result


def _setting(reader: Reader, result: UpdateText) -> None:
    """One item of SET: a column, a variable, or both."""
    token = reader.token()
    if token is None or token.kind is not Kind.VARIABLE:
        result.assignments.append(read_assignment(reader, _AFTER_SET))
        return
    name = reader.take().text
    reader.expect("=")
    if reader.word(1) == "=":
        column, text = read_assignment(reader, _AFTER_SET)
        result.assignments.append((column, text))
        result.variables.append((name, column, ""))
    else:
        result.variables.append((name, "", read_until(reader, _AFTER_SET, ",")))


def read_assignment(reader: Reader, ends: frozenset[str]) -> tuple[str, str]:
    """`column = expression` up to a comma or one of the words in `ends`; compound operators are written out."""
    token = reader.token()
    if token is not None and token.kind is Kind.VARIABLE:
        raise unsupported("assigning a variable in MERGE … SET")
    parts = read_name(reader)
    if parts[-1].upper() == "WRITE" and reader.word() == "(":
        raise unsupported("UPDATE … SET column.WRITE")
    sign = reader.take().text
    text = read_until(reader, ends, ",")
    if sign == "=":
        return parts[-1], text
    if sign not in ("+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="):
        raise reader.fail()
    qualifier = ".".join(f"[{part}]" for part in (*parts[:-1], parts[-1]) if part)
    return parts[-1], f"{qualifier} {sign[:-1]} ({text})"
