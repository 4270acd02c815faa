"""Indexes of a database, and how many rows and pages they hold."""

from collections.abc import Iterator, Sequence
from typing import Final

from mssql_standin.catalog import Database, Index, Table
from mssql_standin.contract import SessionContext
from mssql_standin.sqltypes import Value
from mssql_standin.system.describe import tables_of
from mssql_standin.system.view import Rows, view

_INDEX: Final = (
    "object_id int!, name sysname, index_id int!, type tinyint!, type_desc nvarchar(60), is_unique bit, data_space_id int, "
    "ignore_dup_key bit, is_primary_key bit, is_unique_constraint bit, fill_factor tinyint!, is_padded bit, is_disabled bit, "
    "is_hypothetical bit, is_ignored_in_optimization bit, allow_row_locks bit, allow_page_locks bit, has_filter bit, "
    "filter_definition nvarchar(max), compression_delay int, suppress_dup_key_messages bit, auto_created bit, "
    "optimize_for_sequential_key bit"
)


@view("sys.indexes", _INDEX)
def indexes(_: SessionContext, database: Database) -> Rows:
    """Indexes, and one row of type HEAP for a table without clustered index."""
    for table in tables_of(database):
        if table.clustered_key is None:
            yield (table.object_id, None, 0, 0, "HEAP", 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, None, None, 0, 0, 0)
        for index in sorted(table.indexes, key=lambda index: index.index_id):
            kind = (1, "CLUSTERED") if index.clustered else (2, "NONCLUSTERED")
            yield (
                table.object_id, index.name, index.index_id, *kind, int(index.unique), 1, 0, int(index.primary_key),
                int(index.unique_constraint), 0, 0, 0, 0, 0, 1, 1, int(index.filter is not None), index.filter,
                None, 0, 0, 0,
            )  # fmt: skip


@view(
    "sys.index_columns",
    "object_id int!, index_id int!, index_column_id int!, column_id int!, key_ordinal tinyint!, partition_ordinal tinyint!, "
    "is_descending_key bit, is_included_column bit, column_store_order_ordinal tinyint!",
)
def index_columns(_: SessionContext, database: Database) -> Rows:
    """Key and included columns of every index."""
    for table in tables_of(database):
        for index in table.indexes:
            yield from _index_columns(table, index)


def _index_columns(table: Table, index: Index) -> Iterator[Sequence[Value]]:
    listed = [(name, place, descending) for place, (name, descending) in enumerate(index.keys, 1)]
    listed += [(name, 0, False) for name in index.included]
    for place, (name, ordinal, descending) in enumerate(listed, 1):
        column = table.column(name)
        if column is not None:
            yield (
                table.object_id, index.index_id, place, column.column_id, ordinal, 0, int(descending), int(not ordinal), 0,
            )  # fmt: skip


@view(
    "sys.partitions",
    "partition_id bigint!, object_id int!, index_id int!, partition_number int!, hobt_id bigint!, rows bigint, filestream_filegroup_id smallint!, data_compression tinyint!, data_compression_desc nvarchar(60)",
)
def partitions(context: SessionContext, database: Database) -> Rows:
    """One partition per index with the table's exact row count."""
    for table in tables_of(database):
        rows = context.connection.execute(f"SELECT count(*) FROM {table.sqlite}").fetchone()[0]
        for index_id in _index_ids(table):
            key = (table.object_id << 16) + index_id
            yield (key, table.object_id, index_id, 1, key, rows, 0, 0, "NONE")


def _index_ids(table: Table) -> list[int]:
    own = sorted(index.index_id for index in table.indexes)
    return own if table.clustered_key is not None else [0, *own]


@view(
    "sys.dm_db_partition_stats",
    "partition_id bigint, object_id int!, index_id int!, partition_number int!, in_row_data_page_count bigint, in_row_used_page_count bigint, in_row_reserved_page_count bigint, lob_used_page_count bigint, lob_reserved_page_count bigint, row_overflow_used_page_count bigint, row_overflow_reserved_page_count bigint, used_page_count bigint, reserved_page_count bigint, row_count bigint",
)
def partition_stats(context: SessionContext, database: Database) -> Rows:
    """Exact row counts; page counts assume 80 rows a page."""
    for key, object_id, index_id, number, _, rows, *_ in partitions(context, database):
        pages = -(-int(rows or 0) // 80)
        yield (key, object_id, index_id, number, pages, pages + 1, pages + 8, 0, 0, 0, 0, pages + 1, pages + 8, rows)
