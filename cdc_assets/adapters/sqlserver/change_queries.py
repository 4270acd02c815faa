"""T-SQL texts over the change tables of capture instances (`queries` says how they are built)."""

from collections.abc import Sequence

from cdc_assets.adapters.sqlserver.queries import TAG, union_all
from cdc_assets.core.identifiers import quote
from cdc_assets.core.schema import NEVER_IN_BEFORE_IMAGE, Column


def change_table(database: str, instance: str) -> str:
    """Quoted name of an instance's change table.

    https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-capture-instance-ct-transact-sql
    """
    return f"{quote(database)}.cdc.{quote(f'{instance}_CT')}"


def probes(database: str, instances: Sequence[str]) -> str:
    """Indexes, from 0, of the instances that have change rows in (?, ?]; two parameters each, in order."""
    parts = [
        f"SELECT {index} AS place WHERE EXISTS (SELECT 1 FROM {change_table(database, instance)} "
        "WHERE [__$start_lsn] > ? AND [__$start_lsn] <= ?)"
        for index, instance in enumerate(instances)
    ]
    return f"{TAG.format(name='probes')}SELECT place FROM ({union_all(parts)}) AS u"


def null_probes(database: str, instance: str, columns: Sequence[tuple[Column, int]]) -> str:
    """Indexes, from 0, of the captured columns that are NULL in a change row after (?) and not omitted; one parameter each, in
    order. Each column comes with its place in the update mask, from 1."""
    table = change_table(database, instance)
    parts = [
        f"SELECT {index} AS place WHERE EXISTS (SELECT 1 FROM {table} WHERE [__$start_lsn] > ? "
        f"AND {quote(column.name)} IS NULL{_is_logged(column, place)})"
        for index, (column, place) in enumerate(columns)
    ]
    return f"{TAG.format(name='null_probes')}SELECT place FROM ({union_all(parts)}) AS u"


def _is_logged(column: Column, place: int) -> str:
    """Condition, after another one, for rows in which the log holds a column's value (`envelope.rows`)."""
    is_set = f"sys.fn_cdc_is_bit_set({place}, [__$update_mask]) = 1"
    if column.type_name in NEVER_IN_BEFORE_IMAGE:
        return f" AND ([__$operation] = 2 OR ([__$operation] = 4 AND {is_set}))"
    return f" AND ([__$operation] < 3 OR {is_set})" if column.is_large else ""


def inserted(database: str, instance: str, column: str) -> str:
    """Commit LSN, greater than (?), of an inserted row in which a captured column has a value (?); NULL if there is none.

    https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-capture-instance-ct-transact-sql
    """
    return (
        f"{TAG.format(name='inserted')}SELECT MIN([__$start_lsn]) FROM {change_table(database, instance)} "
        f"WHERE [__$start_lsn] > ? AND [__$operation] = 2 AND {quote(column)} = ?"
    )


def inserted_others(database: str, instance: str, column: str, count: int) -> str:
    """A row if one was inserted after an LSN (?) in which a captured column has none of some values (?, …).

    https://learn.microsoft.com/en-us/sql/relational-databases/system-tables/cdc-capture-instance-ct-transact-sql
    """
    name = quote(column)
    return (
        f"{TAG.format(name='inserted_others')}SELECT TOP (1) 1 FROM {change_table(database, instance)} "
        f"WHERE [__$start_lsn] > ? AND [__$operation] = 2 AND ({name} IS NULL OR {name} NOT IN ({', '.join('?' * count)}))"
    )


def rows_per_commit(database: str, instances: Sequence[str], skipped: Sequence[int] = ()) -> str:
    """Change rows per commit LSN in (?, ?], in order, each with the index of its instance, from 0; two parameters each.

    Rows of one instance are counted in the order of its clustered index, and not grouped again.
    """
    condition = f" AND [__$operation] NOT IN ({', '.join(map(str, skipped))})" if skipped else ""
    parts = [
        f"SELECT {index} AS place, [__$start_lsn] AS lsn, COUNT_BIG(*) AS n FROM {change_table(database, instance)} "
        f"WHERE [__$start_lsn] > ? AND [__$start_lsn] <= ?{condition} GROUP BY [__$start_lsn]"
        for index, instance in enumerate(instances)
    ]
    if len(parts) == 1:
        return f"{TAG.format(name='rows_per_commit')}{parts[0]} ORDER BY [__$start_lsn]"
    return f"{TAG.format(name='rows_per_commit')}SELECT place, lsn, n FROM ({union_all(parts)}) AS u ORDER BY lsn"


def rows_in_commit(database: str, instances: Sequence[str]) -> str:
    """Indexes, from 0, of the instances, with the number of their change rows of commit LSN ?; one parameter each, in
    order."""
    parts = [
        f"SELECT {index} AS place, COUNT_BIG(*) AS n FROM {change_table(database, instance)} WHERE [__$start_lsn] = ?"
        for index, instance in enumerate(instances)
    ]
    return f"{TAG.format(name='rows_in_commit')}SELECT place, n FROM ({union_all(parts)}) AS u"


def position_in_commit(database: str, instance: str, condition: str) -> str:
    """Command id and change LSN of the change row that follows a given number of rows (last parameter) in a commit.

    One seek in the clustered index and a scan from there, without sorting. Parameters: the commit LSN, those of the
    condition, and the number of rows to skip.
    https://learn.microsoft.com/en-us/sql/t-sql/queries/select-order-by-clause-transact-sql
    """
    return (
        f"{TAG.format(name='position_in_commit')}SELECT [__$command_id], [__$seqval] "
        f"FROM {change_table(database, instance)} WHERE [__$start_lsn] = ?{condition} "
        "ORDER BY [__$start_lsn], [__$command_id], [__$seqval], [__$operation] OFFSET ? ROWS FETCH NEXT 1 ROWS ONLY"
    )


def rows_behind(database: str, instance: str) -> str:
    """Number of change rows of a commit LSN and command id after a change LSN; three parameters."""
    return (
        f"{TAG.format(name='rows_behind')}SELECT COUNT_BIG(*) FROM {change_table(database, instance)} "
        "WHERE [__$start_lsn] = ? AND [__$command_id] = ? AND [__$seqval] > ?"
    )
