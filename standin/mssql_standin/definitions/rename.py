"""New names of objects: sp_rename."""

from collections.abc import Mapping
from typing import Final, cast

from mssql_standin.capture import hooks
from mssql_standin.catalog import Database, Table, fold
from mssql_standin.certain import certain
from mssql_standin.contract import Parameter, Procedure, ProcedureContext
from mssql_standin.definitions.objects import require_ownership
from mssql_standin.definitions.ports import DefinitionSession
from mssql_standin.errors import SqlError, unsupported
from mssql_standin.text.clauses import name_parts


def _argument(arguments: Mapping[str, Parameter], name: str, place: int) -> str | None:
    found = arguments.get(name) or arguments.get(str(place))
    return None if found is None or found.value is None else str(found.value)


def sp_rename(context: ProcedureContext, arguments: dict[str, Parameter]) -> int:
    """sp_rename @objname, @newname, @objtype: tables and columns."""
    session = cast(DefinitionSession, context)
    name, new = _argument(arguments, "objname", 1), _argument(arguments, "newname", 2)
    kind = (_argument(arguments, "objtype", 3) or "OBJECT").upper()
    if not name or not new:
        raise SqlError(201, "Procedure or function 'sp_rename' expects parameter '@objname', which was not supplied.")
    parts = name_parts(name)
    require_ownership(session, "ALTER", kind)
    session.edit()
    if kind == "COLUMN":
        _rename_column(session, name, parts, new)
    elif kind == "OBJECT":
        _rename_object(session, name, parts, new)
    else:
        raise unsupported(f"sp_rename of {kind}")
    session.sink.message(
        SqlError(15477, "Caution: Changing any part of an object name could break scripts and stored procedures.", 0)
    )
    return 0


def _missing(name: str, kind: str) -> SqlError:
    return SqlError(
        15248,
        f"Either the parameter @objname is ambiguous or the claimed @objtype ({kind}) is wrong. Object: '{name}'.",
        11,
    )


def _table(session: DefinitionSession, parts: tuple[str, ...]) -> Table | None:
    database = session.catalog.database(parts[-3] if len(parts) > 2 and parts[-3] else session.procedure_database)
    return (
        database.table(parts[-2] if len(parts) > 1 and parts[-2] else "dbo", parts[-1]) if database and parts else None
    )


def _rename_column(session: DefinitionSession, name: str, parts: tuple[str, ...], new: str) -> None:
    table = _table(session, parts[:-1])
    column = table.column(parts[-1]) if table else None
    if table is None or column is None:
        raise _missing(name, "COLUMN")
    if table.column(new) is not None and fold(new) != fold(column.name):
        raise SqlError(
            15335,
            f"Error: The new name '{new}' is already in use as a COLUMN name and would cause a duplicate that is not permitted.",
            11,
        )
    old = column.name
    if any(f"[{fold(old)}]" in fold(text) for text in _texts(table)):
        raise SqlError(
            15336, f"Object '{name}' cannot be renamed because the object participates in enforced dependencies."
        )
    hooks.before_table_change(session, table, "rename_column", old)
    column.name = new
    for index in table.indexes:
        index.keys = tuple((new if fold(key) == fold(old) else key, descending) for key, descending in index.keys)
        index.included = tuple(new if fold(key) == fold(old) else key for key in index.included)
    _rename_in_keys(session, table, old, new)
    hooks.table_changed(session, table, f"EXEC sp_rename '{name}', '{new}', 'COLUMN'")


def _texts(table: Table) -> list[str]:
    texts = [column.computed for column in table.columns if column.computed]
    return texts + [index.filter for index in table.indexes if index.filter]


def _rename_in_keys(session: DefinitionSession, table: Table, old: str, new: str) -> None:
    database = session.catalog.database(table.database)
    for child in database.tables.values() if database else ():
        for key in child.foreign_keys:
            if child is table:
                key.columns = tuple(new if fold(c) == fold(old) else c for c in key.columns)
            if fold(key.referenced_table) == fold(table.name) and fold(key.referenced_schema) == fold(table.schema):
                key.referenced_columns = tuple(new if fold(c) == fold(old) else c for c in key.referenced_columns)


def _rename_object(session: DefinitionSession, name: str, parts: tuple[str, ...], new: str) -> None:
    table = _table(session, parts)
    database = session.catalog.database(session.procedure_database)
    if table is not None:
        database = certain(session.catalog.database(table.database), table.database)
        if database.table(table.schema, new) or database.procedure(table.schema, new):
            raise SqlError(
                15335,
                f"Error: The new name '{new}' is already in use as a OBJECT name and would cause a duplicate that is not permitted.",
                11,
            )
        _repoint(database, table, table.schema, new)
        del database.tables[fold(table.schema), fold(table.name)]
        table.name = new
        database.tables[fold(table.schema), fold(new)] = table
        return
    raise SqlError(
        15225,
        f"No item by the name of '{name}' could be found in the current database '{session.procedure_database}', given that @itemtype was input as '(null)'.",
        11,
    )


def _repoint(database: Database, table: Table, schema: str, name: str) -> None:
    """Let foreign keys follow a table to its new schema or name."""
    for child in database.tables.values():
        for key in child.foreign_keys:
            if fold(key.referenced_table) == fold(table.name) and fold(key.referenced_schema) == fold(table.schema):
                key.referenced_schema, key.referenced_table = schema, name


OWN: Final[dict[str, Procedure]] = {
    "sp_rename": sp_rename,
}
