"""Key, check, default and foreign key constraints."""

from mssql_standin.catalog import Database
from mssql_standin.contract import SessionContext
from mssql_standin.system.describe import tables_of
from mssql_standin.system.objects import OBJECT, default_constraint, object_row
from mssql_standin.system.view import Rows, view


@view("sys.key_constraints", OBJECT + ", unique_index_id int, is_system_named bit!, is_enforced bit")
def key_constraints(_: SessionContext, database: Database) -> Rows:
    """Primary keys and unique constraints."""
    for table in tables_of(database):
        for index in table.indexes:
            if index.primary_key or index.unique_constraint:
                kind = ("PK", "PRIMARY_KEY_CONSTRAINT") if index.primary_key else ("UQ", "UNIQUE_CONSTRAINT")
                head = object_row(database, table, index.name, index.object_id, *kind, table.object_id)
                yield (*head, index.index_id, int("__" in index.name), 1)


@view("sys.default_constraints", OBJECT + ", parent_column_id int!, definition nvarchar(max), is_system_named bit!")
def default_constraints(_: SessionContext, database: Database) -> Rows:
    """Defaults of columns."""
    for table in tables_of(database):
        for column in table.columns:
            if column.default is not None:
                name, key = default_constraint(table, column)
                head = object_row(database, table, name, key, "D", "DEFAULT_CONSTRAINT", table.object_id)
                yield (*head, column.column_id, column.default, int(name.startswith("DF__")))
