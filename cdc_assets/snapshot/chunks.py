"""T-SQL of incremental snapshots: chunks of a table in key order, its greatest key, and keys that have changed.

Key values travel as the server's own text forms (`core.ranges`) and are compared by the server in the column's own
type and collation. SQL Server sorts NULL first, so NULL is smaller than every value here; each predicate is true or
false, never unknown, so that it may be negated (spec debezium-sqlserver §9.2).

The condition of a signal stands in the statement as it was given: whoever may write into the signal table may read
what the capture's login may read.
"""

from collections.abc import Sequence

from cdc_assets.core.identifiers import TableId, quote
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ranges import from_text, to_text
from cdc_assets.core.schema import Column
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.signals.state import Collection, Key
from cdc_assets.streaming.statements import Statement, skipped_condition

KEY_NAME = "__cdc_assets_key_{}"
"""Result column with the text form of the n-th key column."""


def chunk_query(plan: EventPlan, keys: Sequence[Column], entry: Collection, rows: int, *, recompile: bool) -> Statement:
    """The next rows of a table behind `entry.last` up to `entry.maximum`, in key order."""
    conditions, parameters = [], list[object]()
    for values, form in ((entry.last, "{}"), (entry.maximum, "NOT {}")):
        if values is not None:
            text, bound = beyond(keys, values)
            conditions.append(form.format(text))
            parameters += bound
    if entry.condition:
        conditions.append(f"({entry.condition})")
    text = (
        f"/* cdc-assets: chunk */ SELECT TOP ({rows}) {plan.select_source('t')}, {_texts(keys, 't')} "  # noqa: S608
        f"FROM {plan.table.quoted} AS [t]{_where(conditions)} ORDER BY {', '.join(_name(key) for key in keys)}"
    )
    return text + (" OPTION (RECOMPILE)" if recompile else ""), tuple(parameters)


def maximum_query(table: TableId, keys: Sequence[Column], condition: str) -> Statement:
    """The greatest key."""
    conditions = [f"({condition})"] if condition else []
    order = ", ".join(f"{_name(key)} DESC" for key in keys)
    text = f"SELECT TOP (1) {_texts(keys, 't')} FROM {table.quoted} AS [t]{_where(conditions)} ORDER BY {order}"  # noqa: S608
    return f"/* cdc-assets: maximum key */ {text}", ()


def changed_query(plan: EventPlan, instance: str, keys: Sequence[Column], after: Lsn, until: Lsn) -> Statement:
    """Key values in all images of change rows with commit LSN in (after, until].

    There is no DISTINCT: it would fold values that the collation takes for equal, and they are compared exactly.
    """
    change_table = f"{quote(plan.table.database)}.cdc.{quote(f'{instance}_CT')}"
    text = (
        f"/* cdc-assets: changed keys */ SELECT {_texts(keys, 'ct')} FROM {change_table} AS [ct] "  # noqa: S608 - quoted
        "WHERE [ct].[__$start_lsn] > ? AND [ct].[__$start_lsn] <= ?"
        f"{skipped_condition(plan.settings.skipped_operations)}"
    )
    return text, (after.raw, until.raw)


def beyond(keys: Sequence[Column], values: Key) -> tuple[str, list[object]]:
    """Condition that a row's key is greater than the values: k1 > v1 OR k1 = v1 AND k2 > v2 OR …"""
    alternatives, parameters = [], list[object]()
    for place, key in enumerate(keys):
        parts = []
        for equal, value in zip(keys[:place], values[:place], strict=True):
            parts.append(_compared(equal, "=", value))
            parameters += [] if value is None else [value]
        parts.append(_compared(key, ">", values[place]))
        parameters += [] if values[place] is None else [values[place]]
        alternatives.append(" AND ".join(parts))
    if len(alternatives) == 1:
        return f"({alternatives[0]})", parameters
    return "(" + " OR ".join(f"({text})" for text in alternatives) + ")", parameters


def _compared(column: Column, operator: str, value: str | None) -> str:
    name = _name(column)
    if value is None:
        return f"{name} IS {'NOT ' if operator == '>' else ''}NULL"
    text = f"{name} {operator} {from_text(column)}"
    return f"({text} AND {name} IS NOT NULL)" if column.nullable else text


def _name(column: Column) -> str:
    return f"[t].{quote(column.name)}"


def _texts(keys: Sequence[Column], alias: str) -> str:
    return ", ".join(
        f"{to_text(key, f'[{alias}].{quote(key.name)}')} AS {quote(KEY_NAME.format(place))}"
        for place, key in enumerate(keys, 1)
    )


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""
