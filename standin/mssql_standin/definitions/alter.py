"""ALTER TABLE.

A nullable column without values is added in place; everything else that changes columns rebuilds the SQLite
table (`physical.rebuild`) inside the statement's savepoint, so a failed conversion leaves it as it was.
"""

import copy

from mssql_standin.catalog import Column, Table, fold
from mssql_standin.changes.filling import Filler
from mssql_standin.contract import Typed
from mssql_standin.definitions.elements import Constraint, ElementReader, skip_storage
from mssql_standin.definitions.indexes import changed, editable
from mssql_standin.definitions.keys import add_constraints
from mssql_standin.definitions.ports import DefinitionInterpreter, DefinitionSession
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.queries.names import SessionNames
from mssql_standin.queries.targets import full_name
from mssql_standin.sql.collation import sqlite_collation
from mssql_standin.sql.convert import assign
from mssql_standin.sqltypes import CHARACTER
from mssql_standin.store import constraints, physical
from mssql_standin.store.sqlite_errors import conflict
from mssql_standin.store.temporary import is_temporary
from mssql_standin.text.clauses import read_name
from mssql_standin.text.reader import Reader


def alter_table(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """ALTER TABLE in its forms."""
    reader.expect("TABLE")
    parts = read_name(reader)
    unchecked = False
    if reader.accept("WITH"):
        unchecked = reader.take().upper == "NOCHECK"
    word = reader.take().upper
    if word == "ADD":
        _add(interpreter, reader, parts, text, unchecked)
    elif word == "ALTER":
        reader.expect("COLUMN")
        _alter_column(interpreter, reader, parts, text)
    elif word == "DROP":
        _drop(interpreter, reader, parts, text)
    elif word in ("SET", "REBUILD", "ENABLE"):
        interpreter.session.edit()
    elif word in ("CHECK", "NOCHECK"):
        raise unsupported(f"ALTER TABLE … {word} CONSTRAINT")
    else:
        raise unsupported(f"ALTER TABLE … {word}")


# ---- ADD -----------------------------------------------------------------------------------------------------------


def _add(
    interpreter: DefinitionInterpreter, reader: Reader, parts: tuple[str, ...], text: str, unchecked: bool
) -> None:
    session = interpreter.session
    table = editable(interpreter, parts, "alter")
    old = copy.deepcopy(table)
    element_reader = ElementReader(session, SessionNames(session, interpreter.frame), reader, table)
    if reader.word() == "DEFAULT" or (reader.word() == "CONSTRAINT" and reader.word(2) == "DEFAULT"):
        raise unsupported("ALTER TABLE … ADD DEFAULT … FOR")
    reader.accept("COLUMN")
    elements = element_reader.read_all(parenthesised=False)
    skip_storage(reader)
    if reader.token() is not None:
        raise reader.fail()
    _add_columns(interpreter, old, table, elements.columns, elements.with_values)
    _install_constraints(interpreter, table, elements.constraints, unchecked)
    changed(interpreter, table, text)


def _add_columns(
    interpreter: DefinitionInterpreter, old: Table, table: Table, columns: list[Column], with_values: set[str]
) -> None:
    if not columns:
        return
    session = interpreter.session
    table.columns = [*table.columns, *columns]
    filled = [c for c in columns if not c.nullable or fold(c.name) in with_values or c.identity]
    if not any(column.computed is None and column in filled for column in columns):
        for column in columns:
            session.connection.execute(
                f"ALTER TABLE {table.sqlite} ADD COLUMN {physical.column_text(session, table, column)}"
            )
        return
    empty = session.connection.execute(f"SELECT 1 FROM {old.sqlite} LIMIT 1").fetchone() is None
    defaults = Filler(session, interpreter.frame, table, [])
    values = [column.sqlite for column in old.columns]
    for column in columns:
        if column.computed is not None or (column.nullable and fold(column.name) not in with_values):
            values.append("NULL")
        elif column.default is None and column.identity is None and column.type.name != "rowversion" and not empty:
            raise SqlError(
                4901,
                "ALTER TABLE only allows columns to be added that can contain nulls, or have a DEFAULT definition specified, or the "
                "column being added is an identity or timestamp column, or alternatively if none of the previous conditions are "
                f"satisfied the table must be empty to allow addition of this column. Column '{column.name}' cannot be added to "
                f"non-empty table '{table.name}' because it does not satisfy these conditions.",
            )
        else:
            values.append(defaults.default(column))
    rebuild(session, old, table, values)


def rebuild(session: DefinitionSession, old: Table, new: Table, values: list[str]) -> None:
    """Rebuild with the constraint triggers taken off and put on again."""
    constraints.drop(session, old)
    physical.rebuild(session, old, new, values)
    constraints.create(session, new)


def _install_constraints(
    interpreter: DefinitionInterpreter, table: Table, wanted: list[Constraint], unchecked: bool
) -> None:
    if not wanted:
        return
    session = interpreter.session
    known = {index.name for index in table.indexes}
    ids = session.new_temporary_id if is_temporary(table) else session.catalog.new_object_id
    add_constraints(session, table, wanted, ids)
    for index in table.indexes:
        if index.name not in known:
            physical.build_index(session, table, index)
    constraints.drop(session, table)
    constraints.create(session, table)
    if not unchecked:
        _check_rows(session, table, wanted)


def _check_rows(session: DefinitionSession, table: Table, wanted: list[Constraint]) -> None:
    """Rows that were there must satisfy new foreign keys."""
    count = sum(constraint.kind == "FOREIGN" for constraint in wanted)
    database = session.catalog.database(table.database)
    for key in table.foreign_keys[len(table.foreign_keys) - count :]:
        parent = database.table(key.referenced_schema, key.referenced_table) if database else None
        if (
            parent is not None
            and session.connection.execute(constraints.violation_query(table, parent, key)).fetchone()
        ):
            raise conflict(session, key.object_id, "ALTER TABLE")


# ---- ALTER COLUMN --------------------------------------------------------------------------------------------------


def _alter_column(interpreter: DefinitionInterpreter, reader: Reader, parts: tuple[str, ...], text: str) -> None:
    session = interpreter.session
    name = read_name(reader)[-1]
    if reader.word() in ("ADD", "DROP"):
        raise unsupported("ALTER TABLE … ALTER COLUMN … ADD/DROP")
    table = editable(interpreter, parts, "alter_column", name)
    column = table.column(name)
    if column is None:
        raise SqlError(
            4924, f"ALTER TABLE ALTER COLUMN failed because column '{name}' does not exist in table '{table.name}'."
        )
    old = copy.deepcopy(table)
    before = copy.deepcopy(column)
    elements = ElementReader(session, SessionNames(session, interpreter.frame), reader, table)
    wanted, column.alias_type = elements.read_type()
    if reader.accept("COLLATE"):
        collation = reader.take().value
        sqlite_collation(collation)
        wanted = wanted.with_collation(collation)
    nullable = not reader.accept("NOT", "NULL")
    reader.accept("NULL")
    if reader.token() is not None and reader.word() != "WITH":
        raise reader.fail()
    _check_alterable(table, before, wanted.name, nullable)
    column.type, column.nullable = wanted, nullable
    _convert_column(session, old, table, before, column)
    changed(interpreter, table, text)


def _check_alterable(table: Table, column: Column, wanted: str, nullable: bool) -> None:
    if column.computed is not None:
        raise _not_alterable(column.name, "COMPUTED")
    if column.type.name == "rowversion" or wanted == "rowversion":
        raise _not_alterable(column.name, "timestamp")
    primary = table.primary_key
    if nullable and primary and any(fold(key) == fold(column.name) for key, _ in primary.keys):
        raise SqlError(5074, f"The object '{primary.name}' is dependent on column '{column.name}'.")
    if column.default is not None and wanted != column.type.name and column.default_name:
        raise SqlError(5074, f"The object '{column.default_name}' is dependent on column '{column.name}'.")


def _not_alterable(name: str, kind: str) -> SqlError:
    return SqlError(4928, f"Cannot alter column '{name}' because it is '{kind}'.")


def _convert_column(session: DefinitionSession, old: Table, new: Table, before: Column, after: Column) -> None:
    """Rebuild when SQLite's table must look different, convert values in the same pass."""
    typed = assign(Typed(before.sqlite, before.type, before.nullable), after.type, after.name, full_name(new))
    same_collation = before.type.collation == after.type.collation or after.type.name not in CHARACTER
    text_stays_text = (before.type.name in CHARACTER) == (after.type.name in CHARACTER)
    if typed.sql == before.sqlite and before.nullable == after.nullable and same_collation and text_stays_text:
        return
    values = [typed.sql if column is after else column.sqlite for column in new.columns]
    rebuild(session, old, new, values)


# ---- DROP ----------------------------------------------------------------------------------------------------------


def _drop(interpreter: DefinitionInterpreter, reader: Reader, parts: tuple[str, ...], text: str) -> None:
    while True:
        if reader.accept("COLUMN"):
            quiet = reader.accept("IF", "EXISTS")
            names = [reader.take().value]
            while reader.word() == "," and reader.word(1) not in ("COLUMN", "CONSTRAINT"):
                reader.take()
                names.append(reader.take().value)
            _drop_columns(interpreter, parts, names, quiet, text)
        else:
            reader.accept("CONSTRAINT")
            quiet = reader.accept("IF", "EXISTS")
            _drop_constraint(interpreter, parts, reader.take().value, quiet, text)
            skip_storage(reader)
        if not reader.accept(","):
            return


def _drop_columns(
    interpreter: DefinitionInterpreter, parts: tuple[str, ...], names: list[str], quiet: bool, text: str
) -> None:
    session = interpreter.session
    table = editable(interpreter, parts, "drop_column", names[0])
    old = copy.deepcopy(table)
    dropped = []
    for name in names:
        column = table.column(name)
        if column is None:
            if quiet:
                continue
            raise SqlError(
                4924, f"ALTER TABLE DROP COLUMN failed because column '{name}' does not exist in table '{table.name}'."
            )
        _check_droppable(session, table, column)
        dropped.append(column)
    table.columns = [column for column in table.columns if column not in dropped]
    gone = {column.column_id for column in dropped}
    table.properties = tuple(kept for kept in table.properties if kept.column_id not in gone)
    if not table.columns:
        raise SqlError(
            4923,
            f"ALTER TABLE DROP COLUMN failed because '{dropped[0].name}' is the only data column in table '{table.name}'. A table must have at least one data column.",
        )
    rebuild(session, old, table, [column.sqlite for column in table.columns])
    changed(interpreter, table, text)


def _check_droppable(session: DefinitionSession, table: Table, column: Column) -> None:
    wanted = fold(column.name)
    users = [
        index.name
        for index in table.indexes
        if wanted in {fold(n) for n in (*(k for k, _ in index.keys), *index.included)}
    ]
    users += [key.name for key in table.foreign_keys if wanted in map(fold, key.columns)]
    users += [c.name for c in table.columns if c.computed and f"[{wanted}]" in fold(c.computed)]
    if column.default is not None and column.default_name:
        users.append(column.default_name)
    database = session.catalog.database(table.database)
    for _, key in constraints.referencing(database, table) if database else ():
        if wanted in map(fold, key.referenced_columns):
            users.append(key.name)
    if users:
        raise SqlError(
            5074,
            f"The object '{users[0]}' is dependent on column '{column.name}'. ALTER TABLE DROP COLUMN {column.name} failed because one "
            "or more objects access this column.",
        )


def _drop_constraint(
    interpreter: DefinitionInterpreter, parts: tuple[str, ...], name: str, quiet: bool, text: str
) -> None:
    session = interpreter.session
    table = editable(interpreter, parts, "drop_constraint", name)
    wanted = fold(name)
    index = next((i for i in table.indexes if fold(i.name) == wanted and (i.primary_key or i.unique_constraint)), None)
    key = next((key for key in table.foreign_keys if fold(key.name) == wanted), None)
    column = next((c for c in table.columns if c.default_name and fold(c.default_name) == wanted), None)
    if index is not None:
        _check_unreferenced(session, table, index.keys)
        physical.drop_index(session, table, index)
        table.indexes.remove(index)
    elif key is not None:
        constraints.drop_foreign_key(session, key)
        table.foreign_keys.remove(key)
    elif column is not None:
        column.default = column.default_name = None
    elif not quiet:
        raise SqlError(3728, f"'{name}' is not a constraint. Could not drop constraint. See previous errors.")
    changed(interpreter, table, text)


def _check_unreferenced(session: DefinitionSession, table: Table, keys: tuple[tuple[str, bool], ...]) -> None:
    database = session.catalog.database(table.database)
    wanted = {fold(name) for name, _ in keys}
    for child, key in constraints.referencing(database, table) if database else ():
        if {fold(name) for name in key.referenced_columns} == wanted:
            raise SqlError(
                3725,
                f"The constraint is being referenced by table '{child.name}', foreign key constraint '{key.name}'.",
            )
