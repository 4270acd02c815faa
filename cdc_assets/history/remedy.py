"""Ready-to-run T-SQL after which events have a changed table's new structure.

A second capture instance must equal the first one except for its columns: the same gating role, or readers lose their
rights; the same selection of columns plus those that were added since; the same index, file group and support for net
changes. It gets a name that was never used, so that people can tell its rows from those of an instance that is gone.
https://learn.microsoft.com/en-us/sql/relational-databases/system-stored-procedures/sys-sp-cdc-enable-table-transact-sql
https://learn.microsoft.com/en-us/sql/relational-databases/system-stored-procedures/sys-sp-cdc-disable-table-transact-sql
"""

from collections.abc import Collection, Sequence
from itertools import count

from cdc_assets.core.identifiers import TableId, quote
from cdc_assets.core.schema import InstanceOptions


def enable(table: TableId, used: Collection[str], options: InstanceOptions, columns: Sequence[str] | None) -> str:
    """T-SQL that creates an instance in addition to the existing ones.

    Args:
        used: names that instances have, or had.
        options: options of the newest existing instance.
        columns: columns to capture; None captures all.
    """
    arguments = {
        "role_name": _text(options.role),
        "capture_instance": _text(_free_name(table, used)),
        "supports_net_changes": str(int(options.net_changes)),
    }
    if options.index is not None:
        arguments["index_name"] = _text(options.index)
    if columns is not None:
        arguments["captured_column_list"] = _text(", ".join(map(quote, columns)))
    if options.filegroup is not None:
        arguments["filegroup_name"] = _text(options.filegroup)
    if not options.partition_switch:
        arguments["allow_partition_switch"] = "0"
    return _call(table, "sp_cdc_enable_table", arguments)


def disable(table: TableId, instance: str) -> str:
    """T-SQL that drops an instance."""
    return _call(table, "sp_cdc_disable_table", {"capture_instance": _text(instance)})


def _free_name(table: TableId, used: Collection[str]) -> str:
    """A name that no instance has or had; at most 100 characters are allowed."""
    taken = {name.lower() for name in used}
    numbered = (f"{f'{table.schema}_{table.table}'[:94]}_v{number}" for number in count(2))
    return next(name for name in numbered if name.lower() not in taken)


def _call(table: TableId, procedure: str, arguments: dict[str, str]) -> str:
    parameters = {"source_schema": _text(table.schema), "source_name": _text(table.table)} | arguments
    return f"EXEC {quote(table.database)}.sys.{procedure} {', '.join(f'@{name} = {value}' for name, value in parameters.items())};"


def _text(value: str | None) -> str:
    return "NULL" if value is None else "N'" + value.replace("'", "''") + "'"
