"""Key, check, default and foreign key constraints."""

from cdc_assets.standin.catalog import Database, ForeignKey, Table
from cdc_assets.standin.contract import SessionContext
from cdc_assets.standin.system.describe import referenced_index, schema_id, stored_datetime, tables_of
from cdc_assets.standin.system.objects import OBJECT, default_constraint, object_row
from cdc_assets.standin.system.view import Rows, view


@view("sys.key_constraints", OBJECT + ", unique_index_id int, is_system_named bit!, is_enforced bit")
def key_constraints(_: SessionContext, database: Database) -> Rows:
    """Primary keys and unique constraints."""
    for table in tables_of(database):
        for index in table.indexes:
            if index.primary_key or index.unique_constraint:
                kind = ("PK", "PRIMARY_KEY_CONSTRAINT") if index.primary_key else ("UQ", "UNIQUE_CONSTRAINT")
                head = object_row(database, table, index.name, index.object_id, *kind, table.object_id)
                yield (*head, index.index_id, int("__" in index.name), 1)


@view(
    "sys.check_constraints",
    OBJECT
    + ", is_disabled bit!, is_not_for_replication bit!, is_not_trusted bit!, parent_column_id int!, definition nvarchar(max), uses_database_collation bit, is_system_named bit!",
)
def check_constraints(_: SessionContext, database: Database) -> Rows:
    """Check constraints."""
    for table in tables_of(database):
        for check in table.checks:
            head = object_row(database, table, check.name, check.object_id, "C", "CHECK_CONSTRAINT", table.object_id)
            yield (*head, 0, 0, 0, 0, check.expression, 0, int("__" in check.name))


@view("sys.default_constraints", OBJECT + ", parent_column_id int!, definition nvarchar(max), is_system_named bit!")
def default_constraints(_: SessionContext, database: Database) -> Rows:
    """Defaults of columns."""
    for table in tables_of(database):
        for column in table.columns:
            if column.default is not None:
                name, key = default_constraint(table, column)
                head = object_row(database, table, name, key, "D", "DEFAULT_CONSTRAINT", table.object_id)
                yield (*head, column.column_id, column.default, int(name.startswith("DF__")))


_ACTIONS = {"NO_ACTION": 0, "CASCADE": 1, "SET_NULL": 2, "SET_DEFAULT": 3}


@view(
    "sys.foreign_keys",
    OBJECT
    + ", referenced_object_id int, key_index_id int, is_disabled bit!, is_not_for_replication bit!, is_not_trusted bit!, delete_referential_action tinyint, delete_referential_action_desc nvarchar(60), update_referential_action tinyint, update_referential_action_desc nvarchar(60), is_system_named bit!",
)
def foreign_keys(_: SessionContext, database: Database) -> Rows:
    """Foreign keys."""
    for table in tables_of(database):
        for key in table.foreign_keys:
            referenced = database.table(key.referenced_schema, key.referenced_table)
            head = object_row(database, table, key.name, key.object_id, "F", "FOREIGN_KEY_CONSTRAINT", table.object_id)
            index = referenced_index(database, key)
            yield (
                *head, referenced.object_id if referenced else None, index.index_id if index else None, 0, 0, 0, *_action(key.on_delete),
                *_action(key.on_update), int("__" in key.name),
            )  # fmt: skip


def _action(name: str) -> tuple[int, str]:
    plain = name.upper().replace(" ", "_")
    return _ACTIONS.get(plain, 0), plain


@view(
    "sys.foreign_key_columns",
    "constraint_object_id int!, constraint_column_id int!, parent_object_id int!, parent_column_id int!, referenced_object_id int!, referenced_column_id int!",
)
def foreign_key_columns(_: SessionContext, database: Database) -> Rows:
    """Column pairs of foreign keys."""
    for table in tables_of(database):
        for key in table.foreign_keys:
            for place, (own, other, referenced) in enumerate(_pairs(database, table, key), 1):
                yield (key.object_id, place, table.object_id, own, referenced, other)


def _pairs(database: Database, table: Table, key: ForeignKey) -> list[tuple[int, int, int]]:
    """(own column id, referenced column id, referenced object id)."""
    referenced = database.table(key.referenced_schema, key.referenced_table)
    found = []
    for name, other in zip(key.columns, key.referenced_columns, strict=True) if referenced else ():
        column, target = table.column(name), referenced.column(other) if referenced else None
        if column is not None and target is not None and referenced is not None:
            found.append((column.column_id, target.column_id, referenced.object_id))
    return found


@view("sys.synonyms", OBJECT + ", base_object_name nvarchar(1035)")
def none_of_them(_: SessionContext, __: Database) -> Rows:
    """The stand-in has no synonyms."""
    return ()


@view(
    "sys.triggers",
    "name sysname!, object_id int!, parent_class tinyint!, parent_class_desc nvarchar(60), parent_id int!, type char(2)!, type_desc nvarchar(60), create_date datetime!, modify_date datetime!, is_ms_shipped bit!, is_disabled bit!, is_not_for_replication bit!, is_instead_of_trigger bit!",
)
def triggers(_: SessionContext, database: Database) -> Rows:
    """The database DDL trigger of change data capture while the database is enabled."""
    if database.cdc_enabled:
        made = stored_datetime(min(table.created for table in database.tables.shared() if table.ms_shipped))
        yield (
            "tr_MScdc_ddl_event",
            885578100 + database.database_id,
            0,
            "DATABASE",
            0,
            "TR",
            "SQL_TRIGGER",
            made,
            made,
            1,
            0,
            0,
            0,
        )


@view(
    "sys.sysobjects",
    "name sysname!, id int!, xtype char(2)!, uid smallint, info smallint, status int, parent_obj int!, crdate datetime!, type char(2)",
)
def sysobjects(_: SessionContext, database: Database) -> Rows:
    """The old view, tables only."""
    for table in tables_of(database):
        made = stored_datetime(table.created)
        yield (table.name, table.object_id, "U ", schema_id(database, table.schema), 0, 0, 0, made, "U ")
