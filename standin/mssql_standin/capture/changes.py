"""`cdc.fn_cdc_get_all_changes_<instance>` and `cdc.fn_cdc_get_net_changes_<instance>`.

Both are SELECTs over the change table. The range check must run once per execution, also
when no row would come out, and before any row does: it is a materialized one-row subquery
in the outer loop of a CROSS JOIN, which SQLite never reorders.

Net changes, per key of `cdc.index_columns` and over the whole window (not per transaction):
the first change tells whether the row existed before (not if it is an insert), the last
whether it exists now. Neither: no row. Only now: insert. Only before: delete, with the last
values. Both: update.
"""

from collections.abc import Sequence
from typing import Final

from mssql_standin.capture import instances
from mssql_standin.capture.instances import CaptureInstance
from mssql_standin.capture.lsn import ZERO
from mssql_standin.capture.messages import error
from mssql_standin.capture.tables import COMMAND_ID, integer, select, system_table
from mssql_standin.catalog import Catalog, Table, fold
from mssql_standin.contract import Relation, RelationColumn, SessionContext, Typed
from mssql_standin.errors import SqlError, invalid_object
from mssql_standin.rights import denied
from mssql_standin.sql.literals import text_literal
from mssql_standin.sqltypes import Value

ALL: Final = "fn_cdc_get_all_changes_"
NET: Final = "fn_cdc_get_net_changes_"
_FILTERS: Final = {
    ALL: frozenset({"all", "all update old"}),
    NET: frozenset({"all", "all with mask", "all with merge"}),
}


def function_relation(
    context: SessionContext, database: str, parts: tuple[str, ...], arguments: Sequence[Typed]
) -> Relation | None:
    """What a call of a change function stands for; None when the name is no change function's.

    Args:
        context: the session.
        database: the database the name means.
        parts: the name as written.
        arguments: of the call.

    Raises:
        SqlError: 208 with the name as written for an unknown instance; 229 for one whose changes are not permitted; 313, 8144 for a wrong number of arguments.
    """
    kind = next((prefix for prefix in (ALL, NET) if fold(parts[-1]).startswith(prefix)), None)
    if kind is None or len(parts) < 2 or fold(parts[-2]) != "cdc":
        return None
    name = parts[-1][len(kind) :]
    table = instances.change_table(context.catalog, database, name)
    found = instances.named(context.connection, context.catalog, database, name) if table else None
    if table is None or found is None or (kind == NET and not found.supports_net_changes):
        raise invalid_object(".".join(parts))
    if not instances.readable(context, database, found):
        raise denied("SELECT", parts[-1], table.database, "cdc")
    _check_count(".".join(parts[-2:]), arguments)
    head, columns = _columns(kind, table)
    sql = (
        _all(table, database, found, arguments, columns)
        if kind == ALL
        else _net(context, table, database, found, arguments, columns)
    )
    return Relation(sql, (*head, *columns))


def _check_count(name: str, arguments: Sequence[Typed]) -> None:
    if len(arguments) < 3:
        raise SqlError(313, f"An insufficient number of arguments were supplied for the procedure or function {name}.")
    if len(arguments) > 3:
        raise SqlError(8144, f"Procedure or function {name} has too many arguments specified.")


def _columns(kind: str, table: Table) -> tuple[list[RelationColumn], list[RelationColumn]]:
    listed = [RelationColumn(c.name, c.sqlite, c.type, c.nullable) for c in table.columns if c.name != COMMAND_ID]
    wanted = ("__$start_lsn", "__$seqval", "__$operation", "__$update_mask")
    head = [column for column in listed[:5] if column.name in wanted and (kind == ALL or column.name != "__$seqval")]
    return head, listed[5:]


def _range(database: str, found: CaptureInstance, kind: str, arguments: Sequence[Typed]) -> str:
    low, high, option = (argument.sql for argument in arguments)
    names = f"{text_literal(database)}, {text_literal(found.name)}, {text_literal(kind)}"
    return (
        f"WITH bounds AS MATERIALIZED (SELECT {low} AS low, {high} AS high, lower(trim({option})) AS filter, "
        f"cdc_check({names}, {low}, {high}, {option}) AS checked) "
    )


def _all(
    table: Table, database: str, found: CaptureInstance, arguments: Sequence[Typed], columns: Sequence[RelationColumn]
) -> str:
    shown = ", ".join(column.sql for column in columns)
    return (
        f"({_range(database, found, ALL, arguments)}SELECT c1, c3, c4, c5, {shown} FROM bounds CROSS JOIN {table.sqlite} "
        "WHERE checked AND c1 >= low AND c1 <= high AND (c4 <> 3 OR filter = 'all update old'))"
    )


def _net(
    context: SessionContext, table: Table, database: str, found: CaptureInstance,
    arguments: Sequence[Typed], columns: Sequence[RelationColumn],
) -> str:  # fmt: skip
    index = system_table(context.catalog, database, "index_columns")
    rows = select(
        context.connection, index, ("column_id",), "{object_id} = ? ORDER BY {index_ordinal}", (found.object_id,)
    )
    keys = {integer(row[0]) for row in rows}
    captured = instances.captured_columns(context.connection, context.catalog, database, found.object_id)
    by = ", ".join(
        f"c{instances.FIRST_CAPTURED + ordinal - 1}" for _, column_id, _, ordinal in captured if column_id in keys
    )
    command = table.columns[-1].sqlite
    shown = ", ".join(column.sql for column in columns)
    operation = (
        "CASE WHEN filter = 'all with merge' AND c4 <> 1 THEN 5 WHEN c4 = 1 THEN 1 WHEN first = 2 THEN 2 ELSE 4 END"
    )
    mask = f"CASE WHEN filter = 'all with mask' AND c4 <> 1 AND first <> 2 THEN cdc_union(masks, {len(columns)}) END"
    return (
        f"({_range(database, found, NET, arguments)}SELECT c1, {operation} AS c4, {mask} AS c5, {shown} FROM ("
        f"SELECT filter, c1, c4, {shown}, "
        f"row_number() OVER (PARTITION BY {by} ORDER BY c1 DESC, {command} DESC, c3 DESC, c4 DESC) AS place, "
        f"first_value(c4) OVER (PARTITION BY {by} ORDER BY c1, {command}, c3, c4) AS first, "
        f"group_concat(hex(c5)) OVER (PARTITION BY {by}) AS masks "
        f"FROM bounds CROSS JOIN {table.sqlite} WHERE checked AND c1 >= low AND c1 <= high AND c4 <> 3"
        ") WHERE place = 1 AND NOT (first = 2 AND c4 = 1))"
    )


def check(context: SessionContext, database: str, name: str, kind: str, low: Value, high: Value, option: Value) -> int:
    """Whether a call's arguments lie in the instance's valid range.

    Raises:
        SqlError: 313 when they do not; the text names neither the cause nor the instance, as on a real server.
    """
    smallest, largest = minimum(context, database, name), maximum(context, context.catalog, database)
    valid = (
        isinstance(low, bytes) and isinstance(high, bytes) and isinstance(option, str) and largest is not None
        and option.strip().lower() in _FILTERS[kind]
        and smallest != ZERO and smallest <= low <= high <= largest
    )  # fmt: skip
    if not valid:
        raise error(313, f"cdc.{kind}")
    return 1


def minimum(context: SessionContext, database: str, name: str) -> bytes:
    """`sys.fn_cdc_get_min_lsn`: the low-water mark, ten zero bytes for an instance that is unknown or not permitted."""
    found = context.catalog.database(database)
    if found is None or not found.cdc_enabled:
        return ZERO
    instance = instances.named(context.connection, context.catalog, database, name)
    return instance.start_lsn if instance is not None and instances.readable(context, database, instance) else ZERO


def maximum(context: SessionContext, catalog: Catalog, database: str) -> bytes | None:
    """`sys.fn_cdc_get_max_lsn`: the top of `cdc.lsn_time_mapping`, NULL before the first scan.

    Raises:
        SqlError: 208 when the database is not enabled.
    """
    mapping = system_table(catalog, database, "lsn_time_mapping")
    found = context.connection.execute(f"SELECT max(c1) FROM {mapping.sqlite}").fetchone()[0]
    return bytes(found) if found is not None else None


def union(masks: str, columns: int) -> bytes:
    """All bits set in any of several masks (hexadecimal, separated by commas)."""
    bits = 0
    for mask in masks.split(","):
        bits |= int(mask or "0", 16)
    return bits.to_bytes((columns + 7) // 8, "big")
