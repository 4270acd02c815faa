"""CREATE, DROP and ALTER INDEX."""

from mssql_standin.capture import hooks
from mssql_standin.catalog import Index, Table, fold
from mssql_standin.definitions.elements import read_keys, skip_storage
from mssql_standin.definitions.keys import next_index_id
from mssql_standin.definitions.ports import DefinitionInterpreter
from mssql_standin.errors import SqlError
from mssql_standin.queries.targets import resolve, resolve_object
from mssql_standin.store import physical
from mssql_standin.store.locks import Mode
from mssql_standin.store.temporary import is_temporary
from mssql_standin.text.catalog_text import catalog_text
from mssql_standin.text.clauses import read_name, read_until
from mssql_standin.text.reader import Reader


def editable(
    interpreter: DefinitionInterpreter, parts: tuple[str, ...], change: str, detail: str | None = None
) -> Table:
    """The table in the catalogue copy, locked, its capture triggers lifted where the change needs it.

    Raises:
        SqlError: 4902 for an unknown table; what capture forbids.
    """
    session = interpreter.session
    if parts[-1].startswith("#"):
        return resolve(session, interpreter.frame, parts)
    session.edit()
    table = resolve_object(session, interpreter.frame, parts, 4902)
    session.transaction.lock(table, Mode.X)
    hooks.before_table_change(session, table, change, detail)
    table.modified = session.clock.local()
    return table


def create_index(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """CREATE [UNIQUE] [CLUSTERED | NONCLUSTERED] INDEX name ON table (keys) [INCLUDE (…)] [WHERE …]."""
    unique = reader.accept("UNIQUE")
    clustered = reader.accept("CLUSTERED")
    if not clustered:
        reader.accept("NONCLUSTERED")
    reader.expect("INDEX")
    name = reader.take().value
    reader.expect("ON")
    parts = read_name(reader)
    keys = read_keys(reader)
    included = tuple(column for column, _ in read_keys(reader)) if reader.accept("INCLUDE") else ()
    condition = catalog_text(read_until(reader, frozenset({"WITH", "ON"}))) if reader.accept("WHERE") else None
    skip_storage(reader)
    if reader.token() is not None:
        raise reader.fail()
    table = editable(interpreter, parts, "create_index", name)
    if any(fold(index.name) == fold(name) for index in table.indexes):
        raise SqlError(
            1913,
            f"The operation failed because an index or statistics with name '{name}' already exists on table '{'.'.join(parts)}'.",
        )
    if clustered and table.clustered_key is not None:
        raise SqlError(
            1902, f"Cannot create more than one clustered index on table '{'.'.join(parts)}'. Drop the existing clustered index "
            f"'{table.clustered_key.name}' before creating another."
        )  # fmt: skip
    for column, _ in keys:
        if table.column(column) is None:
            raise SqlError(1911, f"Column name '{column}' does not exist in the target table or view.")
    index = Index(
        name, next_index_id(table, clustered), tuple(keys), unique, clustered, included=included, filter=condition
    )
    table.indexes.append(index)
    physical.build_index(interpreter.session, table, index)
    changed(interpreter, table, text)


def changed(interpreter: DefinitionInterpreter, table: Table, text: str) -> None:
    """Tell capture; for temporary tables let plans be made anew."""
    if is_temporary(table):
        interpreter.session.temporary_version += 1
    else:
        hooks.table_changed(interpreter.session, table, text)


def drop_index(interpreter: DefinitionInterpreter, reader: Reader, text: str) -> None:
    """DROP INDEX [IF EXISTS] name ON table, or the old form table.name."""
    reader.expect("INDEX")
    quiet = reader.accept("IF", "EXISTS")
    while True:
        name = read_name(reader)
        parts = read_name(reader) if reader.accept("ON") else name[:-1]
        skip_storage(reader)
        _drop(interpreter, parts, name[-1], quiet, text)
        if not reader.accept(","):
            return


def _drop(interpreter: DefinitionInterpreter, parts: tuple[str, ...], name: str, quiet: bool, text: str) -> None:
    if not parts:
        raise SqlError(159, "Must specify the table name and index name for the DROP INDEX statement.", 15)
    try:
        table = editable(interpreter, parts, "drop_index", name)
    except SqlError as error:
        if quiet and error.number == 4902:
            return
        raise
    index = next((index for index in table.indexes if fold(index.name) == fold(name)), None)
    if index is None:
        if quiet:
            changed(interpreter, table, text)
            return
        raise SqlError(
            3701,
            f"Cannot drop the index '{'.'.join(parts)}.{name}', because it does not exist or you do not have permission.",
            11,
            7,
        )
    if index.primary_key or index.unique_constraint:
        kind = "PRIMARY KEY" if index.primary_key else "UNIQUE KEY"
        raise SqlError(
            3723,
            f"An explicit DROP INDEX is not allowed on index '{'.'.join(parts)}.{name}'. It is being used for {kind} constraint "
            "enforcement.",
        )
    physical.drop_index(interpreter.session, table, index)
    table.indexes.remove(index)
    changed(interpreter, table, text)
