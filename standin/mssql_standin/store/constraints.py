"""Foreign-key constraints as triggers, and filters of indexes.

SQLite cannot add or drop constraints of a table in place, but triggers it can. Each raises ABORT with a
text that `sqlite_errors` turns into error 547. A foreign key of a table to itself
cannot be judged row by row (one statement may insert child and parent); `self_references` gives a query for
the end of the statement instead.
"""

from mssql_standin.catalog import Database, ForeignKey, Table, fold
from mssql_standin.certain import certain
from mssql_standin.contract import Relation, RelationColumn
from mssql_standin.errors import unsupported
from mssql_standin.sql.expressions import compile_condition
from mssql_standin.sql.parse import parse_expression_tree
from mssql_standin.sql.scope import Scope
from mssql_standin.store.ports import StoreSession


def plain_relation(table: Table) -> Relation:
    """The stored columns of a table, without computed ones."""
    columns = (RelationColumn(c.name, c.sqlite, c.type, c.nullable) for c in table.columns if c.computed is None)
    return Relation(table.sqlite, tuple(columns), table)


def filter_text(session: StoreSession, table: Table, expression: str) -> str:
    """SQLite text of an index filter."""
    scope = Scope.of(plain_relation(table), table.name, "")
    return compile_condition(parse_expression_tree(expression), session.names_of_tables(), scope)


def create(session: StoreSession, table: Table) -> None:
    """Create the triggers of a table's foreign keys, and of foreign keys that reference it."""
    database = session.catalog.database(table.database)
    if database is None or not table.schema:
        return
    for child, key in [*((table, key) for key in table.foreign_keys), *referencing(database, table)]:
        parent = database.table(key.referenced_schema, key.referenced_table)
        if parent is not None and parent is not child:
            create_foreign_key(session, child, parent, key)


def referencing(database: Database, table: Table) -> list[tuple[Table, ForeignKey]]:
    """The foreign keys of other tables that reference this one."""
    return [
        (child, key)
        for child in database.tables.shared()
        for key in child.foreign_keys
        if child is not table
        and fold(key.referenced_table) == fold(table.name)
        and fold(key.referenced_schema) == fold(table.schema)
    ]


def create_foreign_key(session: StoreSession, child: Table, parent: Table, key: ForeignKey) -> None:
    """Create the triggers on both sides of a foreign key."""
    own = [_sqlite(child, name) for name in key.columns]
    theirs = [_sqlite(parent, name) for name in key.referenced_columns]
    present = " AND ".join(f"NEW.{c} IS NOT NULL" for c in own)
    match = " AND ".join(f"{parent.sqlite}.{p} = NEW.{c}" for c, p in zip(own, theirs, strict=True))
    missing = f"{present} AND NOT EXISTS (SELECT 1 FROM {parent.sqlite} WHERE {match})"
    _trigger(session, f"fk_insert_{key.object_id}", f"AFTER INSERT ON {child.sqlite}", missing, _abort(key, "INSERT"))
    _trigger(
        session, f"fk_update_{key.object_id}", f"AFTER UPDATE OF {', '.join(own)} ON {child.sqlite}", missing,
        _abort(key, "UPDATE"),
    )  # fmt: skip
    children = " AND ".join(f"{child.sqlite}.{c} = OLD.{p}" for c, p in zip(own, theirs, strict=True))
    exists = f"EXISTS (SELECT 1 FROM {child.sqlite} WHERE {children})"
    moved = " OR ".join(f"OLD.{p} IS NOT NEW.{p}" for p in theirs)
    _trigger(
        session, f"fk_deleted_{key.object_id}", f"AFTER DELETE ON {parent.sqlite}", exists,
        _action(child, key, key.on_delete, "DELETE", own, theirs, children),
    )  # fmt: skip
    _trigger(
        session, f"fk_moved_{key.object_id}", f"AFTER UPDATE OF {', '.join(theirs)} ON {parent.sqlite}",
        f"({moved}) AND {exists}", _action(child, key, key.on_update, "UPDATE", own, theirs, children),
    )  # fmt: skip


def _sqlite(table: Table, name: str) -> str:
    return certain(table.column(name), f"column {name} of {table}").sqlite


def _abort(key: ForeignKey, event: str) -> str:
    return f"SELECT RAISE(ABORT, 'fk:{key.object_id}:{event}');"


def _action(
    child: Table, key: ForeignKey, action: str, event: str, own: list[str], theirs: list[str], children: str
) -> str:
    if action == "NO_ACTION":
        return _abort(key, f"{event} REFERENCE")
    if action == "CASCADE" and event == "DELETE":
        return f"DELETE FROM {child.sqlite} WHERE {children};"
    if action == "SET_DEFAULT":
        raise unsupported("ON DELETE/UPDATE SET DEFAULT")
    values = ", ".join(
        f"{c} = {'NULL' if action == 'SET_NULL' else f'NEW.{p}'}" for c, p in zip(own, theirs, strict=True)
    )
    return f"UPDATE {child.sqlite} SET {values} WHERE {children};"


def _trigger(session: StoreSession, name: str, event: str, when: str, body: str) -> None:
    session.connection.execute(f"DROP TRIGGER IF EXISTS {name}")
    session.connection.execute(f"CREATE TRIGGER {name} {event} WHEN {when} BEGIN {body} END")


def drop_foreign_key(session: StoreSession, key: ForeignKey) -> None:
    """Drop a foreign key's triggers."""
    for event in ("insert", "update", "deleted", "moved"):
        session.connection.execute(f"DROP TRIGGER IF EXISTS fk_{event}_{key.object_id}")


def drop(session: StoreSession, table: Table) -> None:
    """Drop all constraint triggers of a table and of the foreign keys that reference it."""
    database = session.catalog.database(table.database)
    for key in [*table.foreign_keys, *(key for _, key in referencing(database, table) if database)] if database else ():
        drop_foreign_key(session, key)


def self_references(table: Table) -> list[tuple[ForeignKey, str]]:
    """Foreign keys of a table to itself, each with a query that finds a violation."""
    return [
        (key, violation_query(table, table, key))
        for key in table.foreign_keys
        if fold(key.referenced_table) == fold(table.name) and fold(key.referenced_schema) == fold(table.schema)
    ]


def violation_query(child: Table, parent: Table, key: ForeignKey) -> str:
    """A query that finds a row without its parent."""
    own = [_sqlite(child, name) for name in key.columns]
    theirs = [_sqlite(parent, name) for name in key.referenced_columns]
    present = " AND ".join(f"child.{c} IS NOT NULL" for c in own)
    match = " AND ".join(f"parent.{p} = child.{c}" for c, p in zip(own, theirs, strict=True))
    return (
        f"SELECT 1 FROM {child.sqlite} AS child WHERE {present} AND NOT EXISTS "
        f"(SELECT 1 FROM {parent.sqlite} AS parent WHERE {match}) LIMIT 1"
    )
