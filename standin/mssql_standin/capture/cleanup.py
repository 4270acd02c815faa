"""Clean-up: moving the low end of capture instances and deleting what lies below.

`cdc.change_tables.start_lsn` is moved first and the rows below it are deleted in the same
transaction, so no reader sees an old low-water mark over a table that has lost rows. Rows
of `cdc.lsn_time_mapping` go when every instance of the database has passed them.
"""

import sqlite3

from mssql_standin.capture import instances, lsn, tables
from mssql_standin.capture.arguments import Arguments
from mssql_standin.capture.messages import error
from mssql_standin.catalog import Catalog, Table
from mssql_standin.contract import Parameter, ProcedureContext


def clean_instance(
    connection: sqlite3.Connection, catalog: Catalog, database: str, capture_instance: str, mark: bytes
) -> None:
    """Move an instance's low end to `mark`, delete its changes below and the time rows nobody needs.

    Raises:
        SqlError: 22981 for an unknown instance, 22964 when the mark is no commit LSN, 22957 when it lies outside the
            instance's timeline.
    """
    tables.require_database(catalog, database)
    found = instances.named(connection, catalog, database, capture_instance)
    change_table = instances.change_table(catalog, database, capture_instance)
    if found is None or change_table is None:
        raise error(22981)
    mapping = tables.system_table(catalog, database, "lsn_time_mapping")
    if not tables.select(connection, mapping, ("start_lsn",), "{start_lsn} = ?", (mark,)):
        raise error(22964, lsn.literal(mark))
    highest = connection.execute(f"SELECT max(c1) FROM {mapping.sqlite}").fetchone()[0]
    if not found.start_lsn <= mark <= highest:
        raise error(22957, lsn.literal(mark), found.name, lsn.literal(found.start_lsn), lsn.literal(highest))
    listed = tables.system_table(catalog, database, "change_tables")
    statement = "UPDATE {table} SET {start_lsn} = ? WHERE {object_id} = ?"
    tables.change(connection, listed, statement, (mark, found.object_id))
    connection.execute(f"DELETE FROM {change_table.sqlite} WHERE c1 < ?", (mark,))
    lowest = connection.execute(f"SELECT min({_start_column(listed)}) FROM {listed.sqlite}").fetchone()[0]
    connection.execute(f"DELETE FROM {mapping.sqlite} WHERE c1 < ?", (lowest,))


def clean_by_age(connection: sqlite3.Connection, catalog: Catalog, database: str, before: int) -> None:
    """What the clean-up job does: move every instance to the newest commit that is old enough.

    Args:
        connection: under the write lock, inside a transaction.
        catalog: the catalogue.
        database: name of the database.
        before: commits up to this stored datetime have outlived the retention.
    """
    mapping = tables.system_table(catalog, database, "lsn_time_mapping")
    mark = connection.execute(f"SELECT max(c1) FROM {mapping.sqlite} WHERE c3 <= ?", (before,)).fetchone()[0]
    for found in instances.read(connection, catalog, database):
        if mark is not None and found.start_lsn < mark:
            clean_instance(connection, catalog, database, found.name, mark)


def _start_column(table: Table) -> str:
    return next(column.sqlite for column in table.columns if column.name == "start_lsn")


def cleanup_change_table(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """`sys.sp_cdc_cleanup_change_table`; a NULL mark leaves the low end and only deletes below it.

    Raises:
        SqlError: see `clean_instance`; 22901; 22850 for a threshold below 1.
    """
    names = ("capture_instance", "low_water_mark", "threshold", "fcleanupfailed")
    arguments = Arguments("sp_cdc_cleanup_change_table", names, given)
    database = tables.require_database(context.catalog, context.procedure_database)
    name, mark = arguments.required("capture_instance"), arguments.binary("low_water_mark")
    if (arguments.number("threshold", 1) or 0) < 1:
        raise error(22850)
    arguments.output("fcleanupfailed", 0)  # what fails raises an error of its own
    context.edit()
    if mark is not None:
        clean_instance(context.connection, context.catalog, database.name, name, mark.ljust(10, b"\0"))
        return 0
    found = instances.named(context.connection, context.catalog, database.name, name)
    change_table = instances.change_table(context.catalog, database.name, name)
    if found is None or change_table is None:
        raise error(22981)
    context.connection.execute(f"DELETE FROM {change_table.sqlite} WHERE c1 < ?", (found.start_lsn,))
    return 0
