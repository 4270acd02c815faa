"""INSERT as written: text to clauses, whose expressions stay text."""

from dataclasses import dataclass, field
from typing import Final

from mssql_standin.errors import SqlError, unsupported
from mssql_standin.text.clauses import read_columns, read_hints, read_name, read_output
from mssql_standin.text.reader import Reader

_SOURCES: Final = frozenset({"VALUES", "SELECT", "EXEC", "EXECUTE", "DEFAULT", "WITH", "("})


_MOST_ROWS: Final = 1000


@dataclass(slots=True)
class InsertText:
    """An INSERT, read."""

    target: tuple[str, ...]
    hints: frozenset[str]
    columns: list[str] | None
    output: list[str]
    rows: list[list[str]] = field(default_factory=list)
    query: str = ""
    execute: str = ""
    defaults: bool = False


def read(text: str) -> InsertText:
    """Read an INSERT statement."""
    reader = Reader(text)
    reader.expect("INSERT")
    if reader.word() == "TOP":
        raise unsupported("INSERT TOP (n)")
    reader.accept("INTO")
    name = read_name(reader)
    hints = read_hints(reader)
    columns = read_columns(reader) if reader.word() == "(" and reader.word(1) not in ("SELECT", "WITH") else None
    result = InsertText(name, hints, columns, read_output(reader, _SOURCES))
    if reader.accept("DEFAULT"):
        reader.expect("VALUES")
        result.defaults = True
    elif reader.word() == "VALUES":
        _read_rows(reader, result)
    elif reader.word() in ("EXEC", "EXECUTE"):
        result.execute = reader.text[reader.tokens[reader.place].start :]
        return result
    else:
        if reader.token() is None:
            raise reader.fail()
        result.query = reader.text[reader.tokens[reader.place].start :]
        return result
    if reader.token() is not None and reader.word() != "OPTION":
        raise reader.fail()
    return result


def _read_rows(reader: Reader, result: InsertText) -> None:
    reader.expect("VALUES")
    while True:
        reader.expect("(")
        row = [reader.required("VALUES", ",")]
        while reader.accept(","):
            row.append(reader.required("VALUES", ","))
        reader.expect(")")
        result.rows.append(row)
        if not reader.accept(","):
            break
    if len(result.rows) > _MOST_ROWS:
        raise SqlError(
            10738,
            "The number of row value expressions in the INSERT statement exceeds the maximum allowed number of 1000 row values.",
            15,
        )
