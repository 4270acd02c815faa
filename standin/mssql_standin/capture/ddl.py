"""Definition statements on captured tables.

An instance keeps its column list for life: a new column is not captured, a dropped one
becomes NULL, a changed type changes the column of the change table in place. SQLite
refuses to drop a column that a trigger mentions and rewrites triggers on a rename, so the
engine calls `lift` before and `follow` after; both run in the transaction of the statement.
"""

from mssql_standin.capture import instances, triggers
from mssql_standin.capture.instances import CaptureInstance
from mssql_standin.capture.tables import change, insert, system_table
from mssql_standin.capture.times import to_stored
from mssql_standin.catalog import Table, fold
from mssql_standin.contract import ProcedureContext, SessionContext


def instances_of(context: SessionContext, table: Table) -> list[CaptureInstance]:
    """The table's capture instances."""
    if not table.tracked_by_cdc:
        return []
    return instances.of_source(context.connection, context.catalog, table)


def captures(context: SessionContext, table: Table, column: str) -> bool:
    """Whether an instance captures the column."""
    return any(
        fold(name) == fold(column)
        for instance in instances_of(context, table)
        for name, *_ in instances.captured_columns(
            context.connection, context.catalog, table.database, instance.object_id
        )
    )


def lift(context: SessionContext, table: Table) -> None:
    """Drop the capture triggers until `follow`."""
    triggers.drop_triggers(context.connection, table)


def follow(context: SessionContext, table: Table, ddl_text: str) -> None:
    """Adapt change tables to changed types, record the statement per instance and wire the triggers again."""
    found = instances_of(context, table)
    if not found:
        return
    history = system_table(context.catalog, table.database, "ddl_history")
    now = to_stored(context.clock.local())
    position = context.agent.next_lsn(table.database)
    for instance in found:
        widened = _follow_types(context, table, instance)
        row = (table.object_id, instance.object_id, int(widened), ddl_text, position, now)
        insert(context.connection, history, [row])
    instances.wire(context.connection, context.catalog, table)


def _follow_types(context: SessionContext, table: Table, instance: CaptureInstance) -> bool:
    """Give changed columns of the change table their new type; whether there were any."""
    connection, catalog, database = context.connection, context.catalog, table.database
    change_table = instances.change_table(catalog, database, instance.name)
    if change_table is None:
        return False
    by_id = {column.column_id: column for column in table.columns}
    changed = False
    for _, column_id, _, ordinal in instances.captured_columns(connection, catalog, database, instance.object_id):
        source, target = by_id.get(column_id), change_table.columns[instances.FIRST_CAPTURED + ordinal - 2]
        wanted = instances.captured_type(source) if source is not None else target.type
        if source is not None and wanted != target.type:
            convert = getattr(context, "convert_column", None)
            if convert is not None:
                convert(change_table, target, wanted)
            target.type, changed = wanted, True
            _update_type(context, database, instance, ordinal, source.type.name)
    return changed


def _update_type(context: SessionContext, database: str, instance: CaptureInstance, ordinal: int, name: str) -> None:
    columns = system_table(context.catalog, database, "captured_columns")
    statement = "UPDATE {table} SET {column_type} = ? WHERE {object_id} = ? AND {column_ordinal} = ?"
    change(context.connection, columns, statement, (name, instance.object_id, ordinal))


def drop_instances(context: ProcedureContext, table: Table) -> None:
    """Drop every instance of the table with change table, metadata and triggers."""
    for instance in instances_of(context, table):
        drop_instance(context, table.database, instance)
    triggers.drop_triggers(context.connection, table)
    table.tracked_by_cdc = False


def drop_instance(context: ProcedureContext, database: str, instance: CaptureInstance) -> None:
    """Drop an instance's change table, functions and metadata; the caller wires the source table anew."""
    for name in ("change_tables", "captured_columns", "index_columns", "ddl_history"):
        table = system_table(context.catalog, database, name)
        change(context.connection, table, "DELETE FROM {table} WHERE {object_id} = ?", (instance.object_id,))
    change_table = instances.change_table(context.catalog, database, instance.name)
    if change_table is not None:
        context.drop_table(change_table)
    instances.unwire(context.connection, instance.object_id)
