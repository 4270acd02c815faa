"""T-SQL of incremental snapshots: spans of a table in key order, its greatest key, and changed rows.

Key values are passed in the server's own text forms (`core.ranges`) and compared by the server in the column's own
type and collation. SQL Server sorts NULL first, so here NULL is smaller than every value. Each predicate is true or
false, never unknown, so that it may be negated (spec debezium-sqlserver §9.2).

A span is bounded by values, not by a number of rows: all rows with one value are in the same span. So the columns of a
key order need not be unique, and rows need not be sorted by them: only the bounds are queried in order.

The condition of a signal is used in the statement as it was given: whoever may write into the signal table may read
everything that the capture's login may read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cdc_assets.core.identifiers import TableId, quote
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ranges import from_text, to_text
from cdc_assets.core.schema import Column
from cdc_assets.envelope.columns import EventColumn
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.ledger.signal_state import Key
from cdc_assets.shared.statements import Statement, skipped_condition, source_text

_KEY_NAME = "__cdc_assets_key_{}"
"""Result column with the text form of the n-th key column."""
_NULL_NAME = "__cdc_assets_null_{}"
"""Result column that is 1 where the n-th column is NULL."""


@dataclass(frozen=True, slots=True)
class Span:
    """Rows whose key lies in (low, high]; None is an open end."""

    low: Key | None
    high: Key | None


@dataclass(frozen=True, slots=True)
class Ordered:
    """A table with the key order in which its chunks are read.

    Args:
        table: the table to read.
        columns: columns of the key order, most significant first.
        condition: predicate that limits the rows, or empty.
    """

    table: TableId
    columns: tuple[Column, ...]
    condition: str = ""


def rows_query(plan: EventPlan, lacking: frozenset[str], ordered: Ordered, span: Span, *, recompile: bool) -> Statement:
    """The rows of a span; columns that the table has lost are NULL, as in its change table."""
    conditions, parameters = _within(ordered, span)
    columns = ", ".join(source_text(column, lacking) for column in plan.columns)
    text = f"/* cdc-assets: chunk */ SELECT {columns} FROM {ordered.table.quoted} AS [t]{conditions}"
    return text + (" OPTION (RECOMPILE)" if recompile else ""), parameters


def nth_key_query(ordered: Ordered, span: Span, rows: int, *, recompile: bool) -> Statement:
    """The key of the n-th row of a span, from 1; no row if the span has fewer."""
    conditions, parameters = _within(ordered, span)
    names = ", ".join(_name(column) for column in ordered.columns)
    inner = f"SELECT {names} FROM {ordered.table.quoted} AS [t]{conditions} ORDER BY {names} "
    inner += f"OFFSET {rows - 1} ROWS FETCH NEXT 1 ROWS ONLY"
    text = f"/* cdc-assets: chunk end */ SELECT {_texts(ordered.columns, 's')} FROM ({inner}) AS [s]"
    return text + (" OPTION (RECOMPILE)" if recompile else ""), parameters


def maximum_query(ordered: Ordered) -> Statement:
    """The greatest key of the table."""
    conditions, _ = _within(ordered, Span(None, None))
    order = ", ".join(f"{_name(column)} DESC" for column in ordered.columns)
    text = f"SELECT TOP (1) {_texts(ordered.columns, 't')} FROM {ordered.table.quoted} AS [t]{conditions}"
    return f"/* cdc-assets: chunk maximum */ {text} ORDER BY {order}", ()


def changed_query(
    plan: EventPlan,
    instance: str,
    columns: Sequence[EventColumn],
    omittable: Sequence[EventColumn],
    after: Lsn,
    until: Lsn,
    *,
    in_order: bool,
) -> Statement:
    """Operation and columns of all images of change rows with commit LSN in (after, until]; in order with the update mask, too.

    Of columns that may be omitted, which are read in order only, it is read whether each is NULL, but not the values.

    There is no DISTINCT: it would merge values that are equal by the collation, and they are compared exactly.
    """
    change_table = f"{quote(plan.table.database)}.cdc.{quote(f'{instance}_CT')}"
    chosen = "".join(
        f", {column.mapped.wire.expression(column.name, 'ct')} AS {quote(column.name)}" for column in columns
    )
    if in_order:
        chosen += ", [ct].[__$update_mask]"
    for number, column in enumerate(omittable):
        null = f"CASE WHEN [ct].{quote(column.name)} IS NULL THEN 1 ELSE 0 END"
        chosen += f", {null} AS {quote(_NULL_NAME.format(number))}"
    text = (
        f"/* cdc-assets: changed rows */ SELECT [ct].[__$operation]{chosen} FROM {change_table} AS [ct] "
        "WHERE [ct].[__$start_lsn] > ? AND [ct].[__$start_lsn] <= ?"
        f"{skipped_condition(plan.settings.skipped_operations)}"
    )
    if in_order:
        text += " ORDER BY [ct].[__$start_lsn], [ct].[__$command_id], [ct].[__$seqval], [ct].[__$operation]"
    return text, (after.raw, until.raw)


def beyond(keys: Sequence[Column], values: Key) -> tuple[str, list[object]]:
    """Condition that a row's key is greater than the values: k1 > v1 OR k1 = v1 AND k2 > v2 OR …"""
    alternatives, parameters = [], list[object]()
    for index, key in enumerate(keys):
        parts = []
        for equal, value in zip(keys[:index], values[:index], strict=True):
            parts.append(_compared(equal, "=", value))
            parameters += [] if value is None else [value]
        parts.append(_compared(key, ">", values[index]))
        parameters += [] if values[index] is None else [values[index]]
        alternatives.append(" AND ".join(parts))
    if len(alternatives) == 1:
        return f"({alternatives[0]})", parameters
    return "(" + " OR ".join(f"({text})" for text in alternatives) + ")", parameters


def _within(ordered: Ordered, span: Span) -> tuple[str, tuple[object, ...]]:
    conditions, parameters = [], list[object]()
    for values, form in ((span.low, "{}"), (span.high, "NOT {}")):
        if values is not None:
            text, bound = beyond(ordered.columns, values)
            conditions.append(form.format(text))
            parameters += bound
    if ordered.condition:
        conditions.append(f"({ordered.condition})")
    return f" WHERE {' AND '.join(conditions)}" if conditions else "", tuple(parameters)


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
        f"{to_text(key, f'[{alias}].{quote(key.name)}')} AS {quote(_KEY_NAME.format(number))}"
        for number, key in enumerate(keys, 1)
    )
