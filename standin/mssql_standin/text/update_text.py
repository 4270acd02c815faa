"""UPDATE and DELETE as written: text to clauses, whose expressions stay text."""

from dataclasses import dataclass, field
from typing import Final

from mssql_standin.errors import unsupported
from mssql_standin.text.clauses import read_hints, read_name, read_until
from mssql_standin.text.lexer import Kind
from mssql_standin.text.reader import Reader

_AFTER_SET: Final = frozenset({"FROM", "WHERE", "OUTPUT", "OPTION"})


@dataclass(slots=True)
class UpdateText:
    """An UPDATE or DELETE, read."""

    verb: str
    target: tuple[str, ...]
    hints: frozenset[str] = frozenset()
    assignments: list[tuple[str, str]] = field(default_factory=list)
    """(column, expression); compound operators are written out."""
    where: str = ""


def read(text: str) -> UpdateText:
    """Read an UPDATE or DELETE statement."""
    reader = Reader(text)
    verb = reader.take().upper
    if reader.word() == "TOP":
        raise unsupported(f"{verb} TOP (n)")
    if verb == "DELETE":
        reader.accept("FROM")
    result = UpdateText(verb, read_name(reader), read_hints(reader))
    if verb == "UPDATE":
        reader.expect("SET")
        result.assignments.append(read_assignment(reader))
        while reader.accept(","):
            result.assignments.append(read_assignment(reader))
    if reader.word() == "OUTPUT":
        raise unsupported(f"{verb} … OUTPUT")
    if reader.word() == "FROM":
        raise unsupported(f"{verb} … FROM")
    if reader.accept("WHERE"):
        if reader.word() == "CURRENT":
            raise unsupported("WHERE CURRENT OF")
        result.where = read_until(reader, frozenset({"OPTION"}))
    if reader.token() is not None and reader.word() != "OPTION":
        raise reader.fail()
    return result


def read_assignment(reader: Reader) -> tuple[str, str]:
    """`column = expression`; compound operators are written out."""
    token = reader.token()
    if token is not None and token.kind is Kind.VARIABLE:
        raise unsupported("UPDATE … SET @variable")
    parts = read_name(reader)
    if parts[-1].upper() == "WRITE" and reader.word() == "(":
        raise unsupported("UPDATE … SET column.WRITE")
    sign = reader.take().text
    text = read_until(reader, _AFTER_SET, ",")
    if sign == "=":
        return parts[-1], text
    if sign not in ("+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="):
        raise reader.fail()
    qualifier = ".".join(f"[{part}]" for part in (*parts[:-1], parts[-1]) if part)
    return parts[-1], f"{qualifier} {sign[:-1]} ({text})"
