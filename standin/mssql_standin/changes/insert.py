"""INSERT: one SQLite statement per plan, values converted."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mssql_standin.catalog import Column, fold
from mssql_standin.changes.filling import Filler
from mssql_standin.changes.output import OutputPlan, compile_output
from mssql_standin.changes.ports import ChangeSession
from mssql_standin.contract import Relation, ResultColumn, Typed
from mssql_standin.errors import SqlError
from mssql_standin.queries.frame import Frame
from mssql_standin.queries.plans import is_shared
from mssql_standin.queries.selects import Reads
from mssql_standin.queries.targets import Target, full_name, resolve
from mssql_standin.sql.convert import assign
from mssql_standin.sql.expressions import compile_scalar
from mssql_standin.sql.parse import parse_expression_tree, parse_select
from mssql_standin.sql.query import compile_query
from mssql_standin.text.insert_text import InsertText


@dataclass(slots=True)
class ChangePlan:
    """A compiled change: one SQLite statement."""

    verb: str
    sql: str
    target: Target
    variables: list[str]
    reads: Reads
    shared: bool
    output: OutputPlan | None = None
    keys_change: bool = False
    """It sets columns of a unique key."""
    rewrites: int = 0
    """See `effects.rewritten`."""
    execute: str = ""
    """INSERT … EXEC: the EXEC statement; `sql` then takes one row as ?1 …"""
    sources: list[Column] = field(default_factory=list)


class InsertCompiler(Filler):
    """Compiles one INSERT."""

    def __init__(self, session: ChangeSession, frame: Frame, text: InsertText, with_clause: str = "") -> None:
        super().__init__(session, frame, resolve(session, frame, text.target, "INSERT"), text.columns)
        self.session, self.frame, self.text, self.with_clause = session, frame, text, with_clause
        self.target = Target(self.table, text.hints)

    def compile(self) -> ChangePlan:
        """The plan."""
        if self.text.defaults:
            self.listed = []
            source = f"VALUES ({', '.join(self.filled({}))})" if self.written() else ""
        elif self.text.rows:
            source = "VALUES " + ", ".join(f"({', '.join(self._row(row))})" for row in self.text.rows)
        elif self.text.execute:
            source = f"VALUES ({', '.join(self.filled(self._parameters()))})"
        else:
            source = self._selected()
        columns = ", ".join(column.sqlite for column in self.written())
        sql = (
            f"INSERT INTO {self.table.sqlite} ({columns}) {source}"
            if columns
            else f"INSERT INTO {self.table.sqlite} DEFAULT VALUES"
        )
        wanted = compile_output(self.names, self.table, self.text.output, self.scope) if self.text.output else None
        if wanted is not None:
            sql += f" RETURNING {wanted.sql}"
        used = self.scope.used
        return ChangePlan(
            "INSERT", sql, self.target, used.variables, Reads.of(used.relations, used.hints),
            is_shared([*used.relations, Relation("", (), self.table)]), wanted,
            execute=self.text.execute, sources=self.listed,
        )  # fmt: skip

    def _row(self, texts: list[str]) -> list[str]:
        if len(texts) != len(self.listed):
            raise _count_differs(len(texts), len(self.listed), self.text.columns is not None)
        values = {}
        for column, text in zip(self.listed, texts, strict=True):
            if text.upper() == "DEFAULT":
                continue
            typed = compile_scalar(parse_expression_tree(text), self.names, self.scope)
            values[fold(column.name)] = assign(typed, column.type, column.name, full_name(self.table)).sql
        return self.filled(values)

    def _parameters(self) -> dict[str, str]:
        return {fold(column.name): f"?{place}" for place, column in enumerate(self.listed, start=1)}

    def _selected(self) -> str:
        text = f"{self.with_clause} {self.text.query}"
        query = compile_query(parse_select(text), self.names, self.scope)
        if len(query.columns) != len(self.listed):
            raise _select_count(len(query.columns), len(self.listed), self.text.columns is not None)
        return self.from_query(query.sql, query.columns)

    def from_query(self, sql: str, columns: Sequence[ResultColumn]) -> str:
        """SELECT text that converts a query's columns and fills in the rest."""
        values = {
            fold(column.name): assign(
                Typed(f"source.v{place}", given.type, given.nullable), column.type, column.name, full_name(self.table)
            ).sql
            for place, (column, given) in enumerate(zip(self.listed, columns, strict=True), start=1)
        }
        keys = ", ".join(f"v{place}" for place in range(1, len(columns) + 1))
        return f"SELECT {', '.join(self.filled(values))} FROM (WITH source({keys}) AS ({sql}) SELECT * FROM source) AS source WHERE true"


def _count_differs(given: int, wanted: int, listed: bool) -> SqlError:
    if not listed:
        return SqlError(213, "Column name or number of supplied values does not match table definition.")
    if given < wanted:
        return SqlError(
            109,
            "There are more columns in the INSERT statement than values specified in the VALUES clause. The number of values in the "
            "VALUES clause must match the number of columns specified in the INSERT statement.",
            15,
        )
    return SqlError(
        110,
        "There are fewer columns in the INSERT statement than values specified in the VALUES clause. The number of values in the "
        "VALUES clause must match the number of columns specified in the INSERT statement.",
        15,
    )


def _select_count(given: int, wanted: int, listed: bool) -> SqlError:
    if not listed:
        return _count_differs(given, wanted, listed)
    number, word = (120, "fewer") if given < wanted else (121, "more")
    return SqlError(
        number,
        f"The select list for the INSERT statement contains {word} items than the insert list. The number of SELECT values must "
        "match the number of INSERT columns.",
        15,
    )
