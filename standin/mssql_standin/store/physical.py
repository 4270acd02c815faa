"""Tables and indexes in SQLite.

A table `t<object_id>` holds the stored columns `c<column_id>` in catalogue order, computed columns
too (always NULL there; relations compute them), so that positional inserts fit the catalogue. Columns have no
declared type, which keeps values as they are, and carry their collation.

Rules that SQLite cannot alter in place live beside the table: unique keys are indexes `i<object_id>_<index_id>`,
checks and foreign keys are triggers (see `constraints`). What needs another column list
rebuilds the table: create, copy with rowids, drop, rename, all inside the statement's savepoint.
"""

import sqlite3
from collections.abc import Sequence

from mssql_standin.catalog import Column, Index, Table
from mssql_standin.certain import certain
from mssql_standin.contract import Typed
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.sql.collation import sqlite_collation
from mssql_standin.sql.convert import assign, unchanged
from mssql_standin.sqltypes import CHARACTER, SqlType
from mssql_standin.store import constraints
from mssql_standin.store.ports import StoreSession
from mssql_standin.store.temporary import is_temporary


def create(session: StoreSession, table: Table) -> None:
    """Create the SQLite table, its indexes and constraint triggers."""
    session.connection.execute(_create_text(session, table, table.sqlite))
    finish(session, table)


def finish(session: StoreSession, table: Table) -> None:
    """Create indexes and constraint triggers of a table that has none yet."""
    create_indexes(session, table)
    constraints.create(session, table)


def create_indexes(session: StoreSession, table: Table) -> None:
    """Create all indexes, the clustered one last: SQLite reports a clash of the newest index first, SQL Server of the clustered."""
    for index in sorted(table.indexes, key=lambda index: index.index_id, reverse=True):
        create_index(session, table, index)


def _create_text(session: StoreSession, table: Table, name: str) -> str:
    columns = ", ".join(column_text(session, table, column) for column in table.columns)
    return f"CREATE {'TEMP ' if is_temporary(table) else ''}TABLE {name} ({columns})"


def column_text(session: StoreSession, table: Table, column: Column) -> str:
    """SQLite definition of a column."""
    text = column.sqlite
    if not column.nullable and column.computed is None:
        text += " NOT NULL"
    if column.type.name in CHARACTER:
        text += f" COLLATE {sqlite_collation(column.type.collation or _collation(session, table))}"
    return text


def _collation(session: StoreSession, table: Table) -> str:
    database = session.catalog.database(table.database)
    return database.collation if database else ""


def index_name(table: Table, index: Index) -> str:
    """SQLite name of an index."""
    return f"i{table.object_id}_{index.index_id}"


def _key_text(column: Column) -> str:
    """What an index orders by; a datetimeoffset compares by its instant only."""
    return f"substr({column.sqlite}, 1, 8)" if column.type.name == "datetimeoffset" else column.sqlite


def create_index(session: StoreSession, table: Table, index: Index) -> None:
    """Create an index; unique keys count NULL as a value, which needs a second index where a key column is nullable
    (those of change data capture are written by the Agent, without NULL)."""
    columns = [(_required(table, name), descending) for name, descending in index.keys]
    if any(column.computed for column, _ in columns):
        raise unsupported("an index on a computed column")
    name = index_name(table, index)
    where = f" WHERE {constraints.filter_text(session, table, index.filter)}" if index.filter else ""
    keys = ", ".join(f"{_key_text(column)}{' DESC' if descending else ''}" for column, descending in columns)
    unique = "UNIQUE " if index.unique else ""
    session.connection.execute(f"CREATE {unique}INDEX {_schema(table)}{name} ON {table.sqlite} ({keys}){where}")
    nullable = [column for column, _ in columns if column.nullable]
    if index.unique and nullable and not table.ms_shipped:
        terms = ", ".join(f"({c.sqlite} IS NULL), ifnull({_key_text(c)}, 0)" for c, _ in columns)
        nulls = " OR ".join(f"{column.sqlite} IS NULL" for column in nullable)
        condition = f"({nulls})" + (f" AND {where.removeprefix(' WHERE ')}" if where else "")
        session.connection.execute(
            f"CREATE UNIQUE INDEX {_schema(table)}{name}_nulls ON {table.sqlite} ({terms}) WHERE {condition}"
        )


def build_index(session: StoreSession, table: Table, index: Index) -> None:
    """Create an index over rows that are there.

    Raises:
        SqlError: 1505 when they have duplicate keys.
    """
    try:
        create_index(session, table, index)
    except sqlite3.IntegrityError as error:
        what = f"{table.schema}.{table.name}"
        raise SqlError(
            1505,
            "The CREATE UNIQUE INDEX statement terminated because a duplicate key was found for the object name "
            f"'{what}' and the index name '{index.name}'.",
        ) from error


def _schema(table: Table) -> str:
    return "temp." if is_temporary(table) else ""


def _required(table: Table, name: str) -> Column:
    return certain(table.column(name), f"column {name} of {table}")


def drop_index(session: StoreSession, table: Table, index: Index) -> None:
    """Drop an index."""
    name = index_name(table, index)
    session.connection.execute(f"DROP INDEX IF EXISTS {_schema(table)}{name}_nulls")
    session.connection.execute(f"DROP INDEX IF EXISTS {_schema(table)}{name}")


def drop(session: StoreSession, table: Table) -> None:
    """Drop a table with its constraint triggers."""
    if not is_temporary(table):
        constraints.drop(session, table)
    session.connection.execute(f"DROP TABLE {table.sqlite}")


def rebuild(session: StoreSession, old: Table, new: Table, values: Sequence[str]) -> None:
    """Give a table another column list.

    Args:
        old: definition of the SQLite table as it is; its triggers are gone already.
        new: the wanted definition, same object id.
        values: SQLite text over the old columns for every column of `new`, in order.
    """
    scratch = f"rebuilt{new.object_id}"
    execute = session.connection.execute
    execute(_create_text(session, new, scratch))
    columns = ", ".join(column.sqlite for column in new.columns)
    execute(
        f"INSERT INTO {scratch} (rowid, {columns}) SELECT rowid, {', '.join(values)} FROM {old.sqlite} ORDER BY rowid"
    )
    execute(f"DROP TABLE {old.sqlite}")
    execute(f"ALTER TABLE {scratch} RENAME TO {new.sqlite}")
    create_indexes(session, new)


def convert_column(session: StoreSession, table: Table, column: Column, wanted: SqlType) -> None:
    """Convert the stored values of a column in place."""
    if unchanged(column.type, wanted):
        return
    typed = assign(Typed(column.sqlite, column.type, column.nullable), wanted, column.name, str(table))
    session.connection.execute(f"UPDATE {table.sqlite} SET {column.sqlite} = {typed.sql}")
