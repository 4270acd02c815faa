"""T-SQL of the data plane: change rows and table rows, with exactly the columns that the event plan reads.

Direct mode reads the change table and joins the commit's end time once per row (spec sqlserver-cdc §1.4 no. 29);
function mode calls `cdc.fn_cdc_get_all_changes_<instance>`, which hides `__$command_id`.
https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-capture-instance-ct-transact-sql
https://learn.microsoft.com/en-us/sql/relational-databases/system-functions/cdc-fn-cdc-get-all-changes-capture-instance-transact-sql

*Part of a transaction.* A slice may begin or end inside a transaction, after the rows
up to a position (commit LSN, command id, change LSN). It is then read by a few
statements in sequence, each for one range of the change table's
clustered index; for a single condition with OR the server would scan all rows of
the transaction. The ranges are adjacent and in order, so together they are
the slice's rows in position order, each once. Rows without command
id sort before all others.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

from cdc_assets.core.identifiers import quote
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.core.ports import KeyRange
from cdc_assets.core.ranges import type_text, where
from cdc_assets.core.schema import TableSchema
from cdc_assets.envelope.changes import change_select_list
from cdc_assets.envelope.columns import EventColumn
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.ledger.state import TableRead
from cdc_assets.shared.instances import before
from cdc_assets.shared.selects import embedded

Statement = tuple[str, tuple[object, ...]]
"""Text and its parameters in order."""

_OPERATIONS = {"d": (1,), "c": (2,), "u": (3, 4)}
_COMMIT_TIME = "[ltm].[tran_end_time]"


_COMMIT, _COMMAND, _CHANGE = "[ct].[__$start_lsn]", "[ct].[__$command_id]", "[ct].[__$seqval]"
_LAST_OPERATION = 4
_ORDER = f"{_COMMIT}, {_COMMAND}, {_CHANGE}, [ct].[__$operation]"


def change_queries(
    plan: EventPlan,
    read: TableRead,
    mode: Literal["direct", "function"],
    begins: Position | None = None,
    ends: Position | None = None,
) -> list[Statement]:
    """Change rows with commit LSN in (read.after, read.until], in position order.

    Args:
        plan: event plan of the rows' structure.
        read: capture instance and bounds.
        mode: `data.query.mode`; in function mode there is no command id, so slices begin and end at commits, and only
            another reader's position may be inside one.
        begins: position after which rows of its commit are read; None if the slice does not begin inside a commit.
        ends: position up to which rows of its commit are read; None if the slice does not end inside a commit.
    """
    if mode == "function":
        return [_function(plan, read, begins)]
    return [_direct(plan, read, condition, parameters) for condition, parameters in _ranges(read, begins, ends)]


def _direct(plan: EventPlan, read: TableRead, condition: str, parameters: tuple[object, ...]) -> Statement:
    database = quote(read.table.database)
    text = (
        f"/* cdc-assets: changes */ SELECT {change_select_list(plan, 'ct', _COMMIT_TIME)} "
        f"FROM {database}.cdc.{quote(f'{read.instance}_CT')} AS [ct] "
        f"LEFT JOIN {database}.cdc.[lsn_time_mapping] AS [ltm] ON [ltm].[start_lsn] = [ct].[__$start_lsn] "
        f"WHERE {condition}{skipped_condition(plan.settings.skipped_operations)} ORDER BY {_ORDER}"
    )
    return text, parameters


def _ranges(read: TableRead, begins: Position | None, ends: Position | None) -> Iterator[Statement]:
    """Adjacent ranges of the index, in order, each as condition and parameters."""
    first, last = (
        position if position is not None and read.after < position.commit_lsn <= read.until else None
        for position in (begins, ends)
    )
    after, until = read.after, read.until
    if first is not None and last is not None and first.commit_lsn == last.commit_lsn:
        yield from _inside(first.commit_lsn, first, last)
        return
    if first is not None:
        yield from _inside(first.commit_lsn, first, None)
        after = first.commit_lsn
    if last is not None:
        until = before(last.commit_lsn)
    if after < until:
        yield f"{_COMMIT} > ? AND {_COMMIT} <= ?", (after.raw, until.raw)
    if last is not None:
        yield from _inside(last.commit_lsn, None, last)


def _inside(commit: Lsn, first: Position | None, last: Position | None) -> Iterator[Statement]:
    """Ranges of one commit after a position, up to a position, or between two."""
    of_command = f"{_COMMIT} = ? AND {_COMMAND} = ?"
    if first is not None and last is not None and first >= last:
        return
    if first is not None and first.operation < _LAST_OPERATION:  # a DELETE whose INSERT has the same change LSN
        same = (commit.raw, first.command_id, first.change_lsn.raw, first.operation)
        yield f"{of_command} AND {_CHANGE} = ? AND [ct].[__$operation] > ?", same
    if first is not None and last is not None and first.command_id == last.command_id:
        parameters = (commit.raw, first.command_id, first.change_lsn.raw, last.change_lsn.raw)
        yield f"{of_command} AND {_CHANGE} > ? AND {_CHANGE} <= ?", parameters
        return
    if first is not None:
        yield f"{of_command} AND {_CHANGE} > ?", (commit.raw, first.command_id, first.change_lsn.raw)
    if first is not None and last is not None:
        yield f"{_COMMIT} = ? AND {_COMMAND} > ? AND {_COMMAND} < ?", (commit.raw, first.command_id, last.command_id)
    elif first is not None:
        yield f"{_COMMIT} = ? AND {_COMMAND} > ?", (commit.raw, first.command_id)
    elif last is not None:
        yield f"{_COMMIT} = ? AND ({_COMMAND} IS NULL OR {_COMMAND} < ?)", (commit.raw, last.command_id)
    if last is not None:
        yield f"{of_command} AND {_CHANGE} <= ?", (commit.raw, last.command_id, last.change_lsn.raw)


def preceding_queries(plan: EventPlan, read: TableRead, position: Position, rows: int) -> list[Statement]:
    """Change LSNs of the last change rows of a commit up to a position, in descending order: first its own command, then earlier ones."""
    text = (
        f"/* cdc-assets: preceding */ SELECT TOP ({rows:d}) {_CHANGE} AS [change] "
        f"FROM {quote(read.table.database)}.cdc.{quote(f'{read.instance}_CT')} AS [ct] "
        f"WHERE {{condition}}{skipped_condition(plan.settings.skipped_operations)} "
        f"ORDER BY {_ORDER.replace(',', ' DESC,')} DESC"
    )
    *earlier, of_command = _inside(position.commit_lsn, None, position)
    return [(text.replace("{condition}", condition), parameters) for condition, parameters in (of_command, *earlier)]


def _function(plan: EventPlan, read: TableRead, begins: Position | None) -> Statement:
    database = quote(read.table.database)
    function = quote(f"fn_cdc_get_all_changes_{read.instance}")
    condition = skipped_condition(plan.settings.skipped_operations)
    parameters: tuple[object, ...] = (read.after.next().raw, read.until.raw)
    if begins is not None and read.after < begins.commit_lsn <= read.until:
        condition += (
            f" AND ({_COMMIT} > ? OR {_CHANGE} > ? OR ({_CHANGE} = ? AND [ct].[__$operation] > {begins.operation:d}))"
        )
        parameters += (begins.commit_lsn.raw, begins.change_lsn.raw, begins.change_lsn.raw)
    text = (
        f"/* cdc-assets: changes */ SELECT {change_select_list(plan, 'ct', _COMMIT_TIME, command_id=False)} "
        f"FROM {database}.cdc.{function}(?, ?, N'all update old') AS [ct] "
        f"LEFT JOIN {database}.cdc.[lsn_time_mapping] AS [ltm] ON [ltm].[start_lsn] = [ct].[__$start_lsn]"
        f"{condition.replace(' AND ', ' WHERE ', 1)} "
        "ORDER BY [ct].[__$start_lsn], [ct].[__$seqval], [ct].[__$operation]"
    )
    return text, parameters


def rows_of_commit(
    read: TableRead, commit: Lsn, mode: Literal["direct", "function"], skipped: Iterable[str]
) -> Statement:
    """Command id, change LSN and operation of a commit's change rows of one instance, as the connector orders them.

    The change function returns no command id; it is 0 then, as in the positions of events.
    """
    cdc = f"{quote(read.table.database)}.cdc"
    if mode == "function":
        function = quote(f"fn_cdc_get_all_changes_{read.instance}")
        columns, rows, order = f"CAST(0 AS int) AS [command], {_CHANGE}", f"{function}(?, ?, N'all update old')", ""
        parameters: tuple[object, ...] = (commit.raw, commit.raw, commit.raw)
    else:
        columns, rows, order = f"{_COMMAND} AS [command], {_CHANGE}", quote(f"{read.instance}_CT"), f"{_COMMAND}, "
        parameters = (commit.raw,)
    text = (
        f"/* cdc-assets: commit */ SELECT {columns} AS [change], [ct].[__$operation] AS [operation] "
        f"FROM {cdc}.{rows} AS [ct] WHERE {_COMMIT} = ?{skipped_condition(skipped)} "
        f"ORDER BY {order}{_CHANGE}, [ct].[__$operation]"
    )
    return text, parameters


def skipped_condition(letters: Iterable[str]) -> str:
    """Condition that leaves skipped operations on the server (spec debezium-sqlserver §3.4)."""
    numbers = skipped_numbers(letters)
    return f" AND [ct].[__$operation] NOT IN ({', '.join(map(str, numbers))})" if numbers else ""


def skipped_numbers(letters: Iterable[str]) -> list[int]:
    """The server's numbers of skipped operations."""
    return sorted(number for letter in letters for number in _OPERATIONS.get(letter, ()))


def low_water_query(database: str) -> Statement:
    """Low-water mark of each instance, and the newest DDL of its table: name, start LSN, LSN or NULL."""
    cdc = f"{quote(database)}.cdc"
    altered = f"(SELECT MAX([h].[ddl_lsn]) FROM {cdc}.[ddl_history] AS [h] WHERE [h].[object_id] = [ct].[object_id])"
    text = (
        f"SELECT [ct].[capture_instance], [ct].[start_lsn], {altered} AS [altered] FROM {cdc}.[change_tables] AS [ct]"
    )
    return f"/* cdc-assets: marks */ {text}", ()


def rows_query(plan: EventPlan, schema: TableSchema, key_range: KeyRange, override: str | None) -> Statement:
    """Rows of a table in a key range, or those of the user's own statement (spec debezium-sqlserver §2.4)."""
    columns = plan.select_list("t")
    if override is not None:
        return f"/* cdc-assets: rows */ {embedded(override, columns)}", ()
    condition, parameters = where(schema, key_range)
    text = f"/* cdc-assets: rows */ SELECT {columns} FROM {schema.table.quoted} AS [t]"
    return f"{text} WHERE {condition}" if condition else text, parameters


def source_text(column: EventColumn, lacking: frozenset[str]) -> str:
    """T-SQL of a column of the table `t`, in the form that the plan reads; NULL if the table has lost it."""
    wire = column.mapped.wire
    if column.name in lacking:
        return f"{wire.template.format(f'CAST(NULL AS {type_text(column.mapped.column)})')} AS {quote(column.name)}"
    return f"{wire.expression(column.name, 't')} AS {quote(column.name)}"
