"""A small engine for tests: a catalogue, its SQLite tables, and names over both."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from mssql_standin.catalog import Catalog, Column, Database, Table, fold
from mssql_standin.contract import AgentControl, Clock, Parameter, Query, Relation, RelationColumn, Typed
from mssql_standin.errors import SqlError, invalid_object, undeclared_variable
from mssql_standin.sql.collation import sqlite_collation
from mssql_standin.sql.convert import assign, convert_value, family
from mssql_standin.sql.literals import constant
from mssql_standin.sql.parse import parse_expression_tree, parse_select
from mssql_standin.sql.query import compile_query
from mssql_standin.sql.registry import register_functions
from mssql_standin.sqltypes import DEFAULT_COLLATION, SqlType, Value, parse_type
from mssql_standin.wire.rowenc import encoder_of

NVARCHAR = SqlType("nvarchar", 4000)
FIRST = datetime.fromisoformat("0001-01-01")
NOW = datetime.fromisoformat("2024-02-29T13:14:15.123456")


@dataclass
class StandingClock:
    """A clock that stands still."""

    offset_minutes: int = 60
    now: datetime = NOW

    def utc_ticks(self) -> int:
        """UTC ticks."""
        local = (self.now - FIRST) // timedelta(microseconds=1) * 10
        return local - self.offset_minutes * 600_000_000 + 7

    def local(self) -> datetime:
        """Local wall clock."""
        return self.now


@dataclass
class Context:
    """A session as functions see it."""

    rights = None
    connection: sqlite3.Connection
    catalog: Catalog
    session_id: int = 51
    clock: Clock = field(default_factory=StandingClock)
    failure: SqlError | None = None
    rowcount: int = 3
    command_id: int = 1
    change_number: int = 0
    database: str = "TestDB"
    transaction_count: int = 0
    savepoint_lsn: int | None = None

    @property
    def agent(self) -> AgentControl:
        """None here."""
        raise NotImplementedError


class Bench:
    """Tables in one database; runs queries and gives readable values."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.catalog = Catalog({"testdb": Database("TestDB", 5), "master": Database("master", 1)})
        self.context = Context(self.connection, self.catalog)
        self.variables: dict[str, Parameter] = {}
        self.collation = DEFAULT_COLLATION
        register_functions(self.connection, self.context)

    @property
    def database(self) -> str:
        """Current database."""
        return "TestDB"

    def table(self, name: str, columns: str, *rows: Sequence[Any], schema: str = "dbo") -> Table:
        """Create a table from `name type [not null]; …` and rows of text (or None) values."""
        table = Table(self.catalog.new_object_id(), "TestDB", schema, name)
        for place, declaration in enumerate(columns.split(";"), start=1):
            words = declaration.strip().split(" ", 1)
            text, _, collation = words[1].partition(" collate ")
            nullable = " not null" not in text
            sql_type = parse_type(text.replace(" not null", "")).with_collation(collation.strip())
            table.columns.append(Column(words[0], place, sql_type, nullable))
        self.catalog.databases["testdb"].tables[fold(schema), fold(name)] = table
        definitions = ", ".join(
            f"{c.sqlite}" + (f" COLLATE {sqlite_collation(c.type.collation)}" if family(c.type) == "text" else "")
            for c in table.columns
        )
        self.connection.execute(f"CREATE TABLE {table.sqlite} ({definitions})")
        for row in rows:
            values = ", ".join(stored(v, c, str(table)) for v, c in zip(row, table.columns, strict=True))
            self.connection.execute(f"INSERT INTO {table.sqlite} VALUES ({values})")
        return table

    def set(self, name: str, declaration: str, value: str | None) -> None:
        """Declare a variable with the value of a text."""
        sql_type = parse_type(declaration)
        stored = (
            None
            if value is None
            else convert_value(value, NVARCHAR, sql_type, 1 if family(sql_type) == "binary" else None)
        )
        self.variables[fold(name.lstrip("@"))] = Parameter(name, sql_type, stored)

    # ---- Names ----

    def relation(self, parts: tuple[str, ...]) -> Relation:
        """A table by one- to three-part name."""
        schema = parts[-2] if len(parts) > 1 and parts[-2] else "dbo"
        database = self.catalog.database(parts[-3]) if len(parts) > 2 else self.catalog.database("TestDB")
        table = database.table(schema, parts[-1]) if database else None
        if table is None:
            raise invalid_object(".".join(parts))
        columns = tuple(RelationColumn(c.name, f'"{c.sqlite}"', c.type, c.nullable) for c in table.columns)
        return Relation(f'"{table.sqlite}"', columns, table)

    def function_relation(self, parts: tuple[str, ...], arguments: Sequence[Typed]) -> Relation:
        """One function: `dbo.twice(x)` gives two rows."""
        if parts[-1].lower() != "twice":
            raise invalid_object(".".join(parts))
        (argument,) = arguments
        sql = f"(SELECT {argument.sql} AS v UNION ALL SELECT {argument.sql})"
        return Relation(sql, (RelationColumn("v", "v", argument.type),))

    def variable(self, name: str) -> SqlType:
        """Type of a variable."""
        found = self.variables.get(fold(name.lstrip("@")))
        if found is None:
            raise undeclared_variable(name)
        return found.type

    def user_type(self, parts: tuple[str, ...]) -> SqlType | None:
        """One alias type: dbo.Name."""
        return SqlType("nvarchar", 50) if parts[-1].lower() == "name" else None

    # ---- running ----

    def compile(self, text: str) -> Query:
        """Compile a query."""
        return compile_query(parse_select(text), self)

    def rows(self, text: str) -> list[tuple[Value, ...]]:
        """Stored values of a query's rows, which must fit its columns on the wire; the error a function parked, if it failed."""
        query = self.compile(text)
        values = {name: self.variables[name].value for name in query.variables}
        self.context.failure = None
        try:
            rows = self.connection.execute(query.sql, values).fetchall()
        except sqlite3.OperationalError as error:
            raise (self.context.failure or error) from error
        assert encoder_of(query.columns)(rows)[0] == len(rows)
        return rows

    def texts(self, text: str) -> list[tuple[str | None, ...]]:
        """Rows with every value as CAST AS nvarchar writes it (dates in style 121, binary in style 1)."""
        columns = self.compile(text).columns
        return [tuple(shown(v, c.type) for v, c in zip(row, columns, strict=True)) for row in self.rows(text)]

    def value(self, expression: str) -> str | None:
        """The one value of an expression, as text."""
        return self.texts(f"SELECT {expression}")[0][0]

    def type(self, expression: str) -> str:
        """The type of an expression."""
        return str(self.compile(f"SELECT {expression}").columns[0].type)


def stored(value: Any, column: Column, table: str) -> str:
    """SQLite text of a column's value given as text."""
    if value is None:
        return "NULL"
    if family(column.type) == "binary":
        return constant(convert_value(str(value), SqlType("varchar", 8000), column.type), column.type).sql
    return assign(constant(str(value), NVARCHAR), column.type, column.name, table).sql


def shown(value: Value, sql_type: SqlType) -> str | None:
    """A stored value as text."""
    style = (
        121
        if family(sql_type) == "temporal"
        else 1
        if family(sql_type) == "binary"
        else 3
        if family(sql_type) == "float"
        else None
    )
    if sql_type.name in ("money", "smallmoney"):
        style = 2
    result = convert_value(value, sql_type, SqlType("nvarchar", -1), style)
    assert result is None or isinstance(result, str)
    return result


__all__ = ["Bench", "parse_expression_tree", "shown"]
