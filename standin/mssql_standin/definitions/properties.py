"""Extended properties of tables and columns: sp_addextendedproperty, sp_updateextendedproperty, sp_dropextendedproperty.

They are no change of a table's structure, so change data capture does not record them. A column's properties are those of
its id: they stay with it when it is renamed, and end with it.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, cast

from mssql_standin.catalog import ExtendedProperty, Table, fold
from mssql_standin.certain import certain
from mssql_standin.contract import Parameter, Procedure, ProcedureContext
from mssql_standin.definitions.objects import require_ownership
from mssql_standin.definitions.ports import DefinitionSession
from mssql_standin.errors import SqlError, unsupported

_Change = Callable[[ExtendedProperty | None, ExtendedProperty, str], tuple[ExtendedProperty, ...]]
"""From the property that is there, the one that is given, and its object's name: what is there afterwards."""
_LEVELS: Final = ("level0type", "level0name", "level1type", "level1name", "level2type", "level2name")


def _run(change: _Change, valued: bool, context: ProcedureContext, arguments: dict[str, Parameter]) -> int:
    """One of the procedures.

    Raises:
        SqlError: 201, 15135 for an object that is not there, 15217, 15233; 40510 for objects other than tables and columns.
    """
    session = cast(DefinitionSession, context)
    names = ("name", *(("value",) if valued else ()), *_LEVELS)
    given = {name: _text(arguments, name, place) for place, name in enumerate(names, 1)}
    if not given["name"]:
        raise SqlError(201, "Procedure or function expects parameter '@name', which was not supplied.")
    require_ownership(session, "ALTER", "TABLE")
    session.edit()
    table, column_id, shown = _object(session, given)
    wanted = ExtendedProperty(given["name"], given.get("value") or "", column_id)
    known = next((one for one in table.properties if _place(one) == _place(wanted)), None)
    others = tuple(one for one in table.properties if one is not known)
    table.properties = (*others, *change(known, wanted, shown))
    return 0


def _text(arguments: Mapping[str, Parameter], name: str, place: int) -> str | None:
    found = arguments.get(name) or arguments.get(str(place))
    return None if found is None or found.value is None else str(found.value)


def _place(kept: ExtendedProperty) -> tuple[str, int]:
    return fold(kept.name), kept.column_id


def _object(session: DefinitionSession, given: Mapping[str, str | None]) -> tuple[Table, int, str]:
    """The table, the id of its column or 0, and the name that errors show."""
    kinds = tuple((given[f"level{level}type"] or "").upper() for level in range(3))
    if kinds not in (("SCHEMA", "TABLE", ""), ("SCHEMA", "TABLE", "COLUMN")):
        raise unsupported(f"extended properties of {' '.join(filter(None, kinds)) or 'a database'}")
    schema, name, of = (given[f"level{level}name"] or "" for level in range(3))
    database = certain(session.catalog.database(session.procedure_database), session.procedure_database)
    table = database.table(schema, name)
    shown = ".".join(part for part in (schema, name, of) if part)
    column = table.column(of) if table is not None and of else None
    if table is None or (kinds[2] and column is None):
        raise SqlError(
            15135,
            f"Object is invalid. Extended properties are not permitted on '{shown}', or the object does not exist.",
        )
    return table, column.column_id if column is not None else 0, shown


def _add(known: ExtendedProperty | None, given: ExtendedProperty, shown: str) -> tuple[ExtendedProperty, ...]:
    if known is not None:
        raise SqlError(15233, f"Property cannot be added. Property '{given.name}' already exists for '{shown}'.")
    return (given,)


def _update(known: ExtendedProperty | None, given: ExtendedProperty, shown: str) -> tuple[ExtendedProperty, ...]:
    _require(known, given, shown)
    return (given,)


def _drop(known: ExtendedProperty | None, given: ExtendedProperty, shown: str) -> tuple[ExtendedProperty, ...]:
    _require(known, given, shown)
    return ()


def _require(known: ExtendedProperty | None, given: ExtendedProperty, shown: str) -> None:
    if known is None:
        text = f"Property cannot be updated or deleted. Property '{given.name}' does not exist for '{shown}'."
        raise SqlError(15217, text)


PROCEDURES: Final[dict[str, Procedure]] = {
    "sp_addextendedproperty": partial(_run, _add, True),
    "sp_updateextendedproperty": partial(_run, _update, True),
    "sp_dropextendedproperty": partial(_run, _drop, False),
}
