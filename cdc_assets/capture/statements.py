"""T-SQL of the data plane: change rows and table rows, with exactly the columns that the event plan reads.

Direct mode reads the change table and joins the commit's end time once per row
(spec sqlserver-cdc §1.4 no. 29); function mode calls
`cdc.fn_cdc_get_all_changes_<instance>`, which hides `__$command_id`.
https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-capture-instance-ct-transact-sql
https://learn.microsoft.com/en-us/sql/relational-databases/system-functions/cdc-fn-cdc-get-all-changes-capture-instance-transact-sql
"""

from collections.abc import Iterable
from typing import Literal

from cdc_assets.capture.selects import embedded
from cdc_assets.core.identifiers import quote
from cdc_assets.core.ports import KeyRange
from cdc_assets.core.ranges import where
from cdc_assets.core.schema import TableSchema
from cdc_assets.envelope.changes import change_select_list
from cdc_assets.envelope.plan import EventPlan
from cdc_assets.ledger.state import TableRead

Statement = tuple[str, tuple[object, ...]]
"""Text and its parameters in order."""

_OPERATIONS = {"d": (1,), "c": (2,), "u": (3, 4)}
_COMMIT_TIME = "[ltm].[tran_end_time]"


def change_query(plan: EventPlan, read: TableRead, mode: Literal["direct", "function"]) -> Statement:
    """Change rows with commit LSN in (read.after, read.until], in position order."""
    return _direct(plan, read) if mode == "direct" else _function(plan, read)


def _direct(plan: EventPlan, read: TableRead) -> Statement:
    database = quote(read.table.database)
    text = (
        f"/* cdc-assets: changes */ SELECT {change_select_list(plan, 'ct', _COMMIT_TIME)} "  # noqa: S608 - quoted names
        f"FROM {database}.cdc.{quote(f'{read.instance}_CT')} AS [ct] "
        f"LEFT JOIN {database}.cdc.[lsn_time_mapping] AS [ltm] ON [ltm].[start_lsn] = [ct].[__$start_lsn] "
        f"WHERE [ct].[__$start_lsn] > ? AND [ct].[__$start_lsn] <= ?{skipped_condition(plan.settings.skipped_operations)} "
        "ORDER BY [ct].[__$start_lsn], [ct].[__$command_id], [ct].[__$seqval], [ct].[__$operation]"
    )
    return text, (read.after.raw, read.until.raw)


def _function(plan: EventPlan, read: TableRead) -> Statement:
    database = quote(read.table.database)
    function = quote(f"fn_cdc_get_all_changes_{read.instance}")
    text = (
        f"/* cdc-assets: changes */ SELECT {change_select_list(plan, 'ct', _COMMIT_TIME, command_id=False)} "  # noqa: S608
        f"FROM {database}.cdc.{function}(?, ?, N'all update old') AS [ct] "
        f"LEFT JOIN {database}.cdc.[lsn_time_mapping] AS [ltm] ON [ltm].[start_lsn] = [ct].[__$start_lsn]"
        f"{skipped_condition(plan.settings.skipped_operations).replace(' AND ', ' WHERE ', 1)} "
        "ORDER BY [ct].[__$start_lsn], [ct].[__$seqval], [ct].[__$operation]"
    )
    return text, (read.after.next().raw, read.until.raw)


def skipped_condition(letters: Iterable[str]) -> str:
    """Skipped operations never leave the server (spec debezium-sqlserver §3.4)."""
    numbers = sorted(number for letter in letters for number in _OPERATIONS.get(letter, ()))
    return f" AND [ct].[__$operation] NOT IN ({', '.join(map(str, numbers))})" if numbers else ""


def low_water_query(database: str) -> Statement:
    """Low-water mark of each instance, and the newest statement that changed its table: name, start LSN, LSN or NULL."""
    cdc = f"{quote(database)}.cdc"
    altered = f"(SELECT MAX([h].[ddl_lsn]) FROM {cdc}.[ddl_history] AS [h] WHERE [h].[object_id] = [ct].[object_id])"  # noqa: S608
    text = (
        f"SELECT [ct].[capture_instance], [ct].[start_lsn], {altered} AS [altered] FROM {cdc}.[change_tables] AS [ct]"  # noqa: S608
    )
    return f"/* cdc-assets: marks */ {text}", ()


def rows_query(plan: EventPlan, schema: TableSchema, key_range: KeyRange, override: str | None) -> Statement:
    """Rows of a table in a key range, or those of the operator's own statement (spec debezium-sqlserver §2.4)."""
    columns = plan.select_list("t")
    if override is not None:
        return f"/* cdc-assets: rows */ {embedded(override, columns)}", ()
    condition, parameters = where(schema, key_range)
    text = f"/* cdc-assets: rows */ SELECT {columns} FROM {schema.table.quoted} AS [t]"  # noqa: S608 - quoted names
    return f"{text} WHERE {condition}" if condition else text, parameters
