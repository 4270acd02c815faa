"""MERGE as written: text to clauses, whose expressions stay text."""

from dataclasses import dataclass, field
from typing import Final

from cdc_assets.standin.errors import unsupported
from cdc_assets.standin.text.clauses import (
    Output,
    read_columns,
    read_hints,
    read_name,
    read_output,
    read_top,
    read_until,
)
from cdc_assets.standin.text.reader import Reader
from cdc_assets.standin.text.update_text import read_assignment

BY_SOURCE: Final = "NOT MATCHED BY SOURCE"
_ENDS: Final = frozenset({"WHEN", "OUTPUT", "OPTION"})


@dataclass(slots=True)
class Clause:
    """A WHEN clause, read."""

    kind: str
    """MATCHED, NOT MATCHED or NOT MATCHED BY SOURCE."""
    condition: str
    action: str
    assignments: list[tuple[str, str]] = field(default_factory=list)
    columns: list[str] | None = None
    values: list[str] = field(default_factory=list)


@dataclass(slots=True)
class MergeText:
    """A MERGE, read."""

    target: tuple[str, ...]
    hints: frozenset[str]
    alias: str
    source: str
    """Text of the source with its alias."""
    source_alias: str
    condition: str
    clauses: list[Clause] = field(default_factory=list)
    output: Output | None = None


def read(text: str) -> MergeText:
    """Read a MERGE statement."""
    reader = Reader(text)
    reader.expect("MERGE")
    if read_top(reader):
        raise unsupported("MERGE TOP (n)")
    reader.accept("INTO")
    name = read_name(reader)
    hints = read_hints(reader)
    alias = _alias(reader, "USING") or name[-1]
    reader.expect("USING")
    first = reader.place
    if reader.word() == "(":
        reader.parenthesised()
    else:
        read_name(reader)
        if reader.word() == "(":
            reader.parenthesised()
    read_hints(reader)
    last_name = reader.tokens[reader.place - 1].value
    source_alias = _alias(reader, "ON") or last_name
    if reader.word() == "(":
        reader.parenthesised()
    source = reader.between(first, reader.place)
    reader.expect("ON")
    result = MergeText(name, hints, alias, source, source_alias, read_until(reader, _ENDS))
    while reader.accept("WHEN"):
        result.clauses.append(_clause(reader))
    result.output = read_output(reader, frozenset({"OPTION"}))
    if not result.clauses or (reader.token() is not None and reader.word() != "OPTION"):
        raise reader.fail()
    return result


def _alias(reader: Reader, end: str) -> str:
    if reader.accept("AS"):
        return reader.take().value
    return "" if reader.word() == end else reader.take().value


def _clause(reader: Reader) -> Clause:
    kind = "NOT MATCHED" if reader.accept("NOT") else "MATCHED"
    reader.expect("MATCHED")
    if reader.accept("BY", "SOURCE"):
        kind = BY_SOURCE
    else:
        reader.accept("BY", "TARGET")
    condition = read_until(reader, frozenset({"THEN"})) if reader.accept("AND") else ""
    reader.expect("THEN")
    clause = Clause(kind, condition, reader.take().upper)
    if clause.action == "UPDATE":
        reader.expect("SET")
        clause.assignments.append(read_assignment(reader, _ENDS))
        while reader.accept(","):
            clause.assignments.append(read_assignment(reader, _ENDS))
    elif clause.action == "INSERT" and kind == "NOT MATCHED":
        _insertion(reader, clause)
    elif clause.action != "DELETE":
        raise reader.fail()
    return clause


def _insertion(reader: Reader, clause: Clause) -> None:
    if reader.word() == "(":
        clause.columns = read_columns(reader)
    if reader.accept("DEFAULT"):
        reader.expect("VALUES")
        clause.columns = []
        return
    reader.expect("VALUES", "(")
    clause.values.append(reader.required("VALUES", ","))
    while reader.accept(","):
        clause.values.append(reader.required("VALUES", ","))
    reader.expect(")")
