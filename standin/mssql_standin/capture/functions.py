"""Change functions in FROM, and the scalar `sys.fn_cdc_*` functions for the compiler's registry."""

from typing import Final

from mssql_standin.capture import changes, instances, lsn
from mssql_standin.capture.changes import function_relation
from mssql_standin.capture.tables import select, system_table
from mssql_standin.catalog import fold
from mssql_standin.contract import SessionContext
from mssql_standin.sql.registry import Call, define
from mssql_standin.sqltypes import BIT, DATETIME, INT, LSN_TYPE, SYSNAME, SqlType, Value

__all__ = ["function_relation"]

_MASK: Final = SqlType("varbinary", length=128)
_RELATIONS: Final = {
    "largest less than": ("max", "<"),
    "largest less than or equal": ("max", "<="),
    "smallest greater than": ("min", ">"),
    "smallest greater than or equal": ("min", ">="),
}


def _database(context: SessionContext, call: Call) -> str:
    return call.database or context.database


def _max_lsn(context: SessionContext, call: Call) -> Value:
    return changes.maximum(context, context.catalog, _database(context, call))


def _min_lsn(context: SessionContext, call: Call, name: str) -> Value:
    return changes.minimum(context, _database(context, call), name)


def _increment(_: Call, value: bytes) -> Value:
    return lsn.increment(value)


def _decrement(_: Call, value: bytes) -> Value:
    return lsn.decrement(value)


def _lsn_to_time(context: SessionContext, call: Call, value: bytes) -> Value:
    mapping = system_table(context.catalog, _database(context, call), "lsn_time_mapping")
    rows = select(context.connection, mapping, ("tran_end_time",), "{start_lsn} = ?", (value,))
    return rows[0][0] if rows else None


def _time_to_lsn(context: SessionContext, call: Call, relation: str, moment: int) -> Value:
    mapping = system_table(context.catalog, _database(context, call), "lsn_time_mapping")
    known = _RELATIONS.get(relation.strip().lower())
    if known is None:
        return None
    pick, compare = known
    found = context.connection.execute(f"SELECT {pick}(c1) FROM {mapping.sqlite} WHERE c3 {compare} ?", (moment,))
    return _bytes(found.fetchone()[0])


def _bytes(value: object) -> Value:
    return bytes(value) if isinstance(value, bytes) else None


def _is_bit_set(_: Call, position: int, mask: bytes) -> Value:
    """Position 1 is the lowest bit of the last byte."""
    return int.from_bytes(mask, "big") >> (position - 1) & 1 if position >= 1 else 0


def _ordinal(context: SessionContext, call: Call, name: str, column: str) -> Value:
    database = _database(context, call)
    instance = instances.named(context.connection, context.catalog, database, name)
    if instance is None:
        return None
    captured = instances.captured_columns(context.connection, context.catalog, database, instance.object_id)
    return next((ordinal for found, _, _, ordinal in captured if fold(found) == fold(column)), None)


def _has_changed(context: SessionContext, call: Call, name: str, column: str, mask: bytes) -> Value:
    ordinal = _ordinal(context, call, name, column)
    return _is_bit_set(call, ordinal, mask) if isinstance(ordinal, int) else None


define("sys.fn_cdc_get_max_lsn", LSN_TYPE, 0, 0, _max_lsn, True)
define("sys.fn_cdc_get_min_lsn", LSN_TYPE, 1, 1, _min_lsn, True, arguments=(SYSNAME,))
define("sys.fn_cdc_increment_lsn", LSN_TYPE, 1, 1, _increment, arguments=(LSN_TYPE,))
define("sys.fn_cdc_decrement_lsn", LSN_TYPE, 1, 1, _decrement, arguments=(LSN_TYPE,))
define("sys.fn_cdc_map_lsn_to_time", DATETIME, 1, 1, _lsn_to_time, True, arguments=(LSN_TYPE,))
define("sys.fn_cdc_map_time_to_lsn", LSN_TYPE, 2, 2, _time_to_lsn, True, arguments=(SYSNAME, DATETIME))
define("sys.fn_cdc_is_bit_set", BIT, 2, 2, _is_bit_set, arguments=(INT, _MASK))
define("sys.fn_cdc_get_column_ordinal", INT, 2, 2, _ordinal, True, arguments=(SYSNAME, SYSNAME))
define("sys.fn_cdc_has_column_changed", BIT, 3, 3, _has_changed, True, arguments=(SYSNAME, SYSNAME, _MASK))
