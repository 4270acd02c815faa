"""Functions over the catalogue: ids and names of databases, schemas, objects, columns and types; properties.

SERVERPROPERTY and DATABASEPROPERTYEX return nvarchar(128) here, not sql_variant.
"""

from collections.abc import Iterator
from typing import Any, Final

from mssql_standin.catalog import Database, Table, fold
from mssql_standin.contract import SessionContext
from mssql_standin.sql.functions.strings import split_name
from mssql_standin.sql.registry import Call, define
from mssql_standin.sqltypes import INT, SYSNAME, SqlType, Value

_NAME: Final = SqlType("nvarchar", 776)
_SMALLINT: Final = SqlType("smallint")


def _database(context: SessionContext, name_or_id: str | int | None) -> Database | None:
    """A database as the session sees it."""
    found = find_database(context, name_or_id)
    return found if found is None or context.rights is None else context.rights.visible(found)


def find_database(context: SessionContext, name_or_id: str | int | None) -> Database | None:
    """A database by name or number; the current one for None."""
    if name_or_id is None:
        return context.catalog.database(context.database)
    if isinstance(name_or_id, str):
        return context.catalog.database(name_or_id)
    return next((one for one in context.catalog.databases.values() if one.database_id == name_or_id), None)


def _constraints(table: Table) -> Iterator[tuple[str, int, str]]:
    """(name, object id, type) of a table's constraints."""
    for index in table.indexes:
        if index.primary_key or index.unique_constraint:
            yield index.name, index.object_id, "PK" if index.primary_key else "UQ"
    for key in table.foreign_keys:
        yield key.name, key.object_id, "F"


def _object_id(context: SessionContext, _: Call, name: str, kind: str | None = None) -> Value:
    parts = split_name(name)
    if not parts:
        return None
    temporary = getattr(context, "temporary", {}).get(fold(parts[-1]))
    if temporary is not None:
        return int(temporary.object_id)
    database = _database(context, parts[-3] or None if len(parts) > 2 else None)
    if database is None:
        return None
    schema = parts[-2] if len(parts) > 1 and parts[-2] else "dbo"
    kind = None if kind is None else kind.strip().upper()
    table = database.table(schema, parts[-1])
    if table is not None and kind in (None, "U"):
        return table.object_id
    procedure = database.procedure(schema, parts[-1])
    if procedure is not None and kind in (None, "P"):
        return procedure.shape.object_id
    for other in database.tables.shared():
        for constraint, object_id, type_name in _constraints(other):
            if fold(other.schema) == fold(schema) and fold(constraint) == fold(parts[-1]) and kind in (None, type_name):
                return object_id
    return None


def _named_object(context: SessionContext, object_id: int, database_id: int | None) -> tuple[str, str] | None:
    """(schema, name) of an object or constraint."""
    database = _database(context, database_id)
    if database is None:
        return None
    for table in database.tables.shared():
        if table.object_id == object_id:
            return table.schema, table.name
        for name, constraint_id, _ in _constraints(table):
            if constraint_id == object_id:
                return table.schema, name
    for made in database.procedures:
        if made.shape.object_id == object_id:
            return made.shape.schema, made.shape.name
    return None


def _object_definition(context: SessionContext, _: Call, object_id: int) -> Value:
    database = _database(context, None)
    made = database.procedures if database is not None else []
    return next((one.text for one in made if one.shape.object_id == object_id), None)


def _object_name(context: SessionContext, _: Call, object_id: int, database_id: int | None = None) -> Value:
    found = _named_object(context, object_id, database_id)
    return found and found[1]


def _object_schema_name(context: SessionContext, _: Call, object_id: int, database_id: int | None = None) -> Value:
    found = _named_object(context, object_id, database_id)
    return found and found[0]


def _db_id(context: SessionContext, _: Call, *name: str | None) -> Value:
    if name and name[0] is None:
        return None
    database = _database(context, name[0] if name else None)
    return database.database_id if database else None


def _db_name(context: SessionContext, _: Call, *number: int | None) -> Value:
    if number and number[0] is None:
        return None
    database = _database(context, number[0] if number else None)
    return database.name if database else None


def _schema_id(context: SessionContext, _: Call, name: str = "dbo") -> Value:
    database = _database(context, None)
    schemas = database.schemas if database else {}
    return next((number for schema, number in schemas.items() if fold(schema) == fold(name)), None)


def _schema_name(context: SessionContext, _: Call, number: int = 1) -> Value:
    database = _database(context, None)
    schemas = database.schemas if database else {}
    return next((schema for schema, known in schemas.items() if known == number), None)


def _table(context: SessionContext, name_or_id: str | int) -> Table | None:
    if isinstance(name_or_id, int):
        database = _database(context, None)
        return database.table_by_id(name_or_id) if database else None
    parts = split_name(name_or_id)
    if not parts:
        return None
    database = _database(context, parts[-3] or None if len(parts) > 2 else None)
    schema = parts[-2] if len(parts) > 1 and parts[-2] else "dbo"
    return database.table(schema, parts[-1]) if database else None


def _col_length(context: SessionContext, _: Call, table_name: str, column_name: str) -> Value:
    table = _table(context, table_name)
    column = table.column(column_name) if table else None
    return column.type.max_length if column else None


_SERVER: Final = {
    "productversion": "16.0.1000.6", "productlevel": "RTM", "edition": "Developer Edition (64-bit)", "engineedition": "3",
    "productmajorversion": "16", "productminorversion": "0", "productbuild": "1000", "servername": "STANDIN", "machinename": "STANDIN",
    "instancename": None, "collation": "SQL_Latin1_General_CP1_CI_AS", "isclustered": "0", "ishadrenabled": "0",
    "isfulltextinstalled": "0", "isintegratedsecurityonly": "0", "issingleuser": "0", "ispolybaseinstalled": "0",
    "isadvancedanalyticsinstalled": "0", "isxtpsupported": "0", "sqlcharsetname": "iso_1", "sqlsortordername": "nocase_iso",
    "lcid": "1033", "comparisonstyle": "196609", "collationid": "872468488", "resourceversion": "16.00.1000",
    "productupdatelevel": None, "islocaldb": "0", "isexternalauthenticationonly": "0", "processid": "1", "editionid": "-2117995310",
}  # fmt: skip


def _server_property(context: Any, _: Call, name: str) -> Value:
    if name.lower() in ("servername", "machinename"):
        return getattr(context, "server_name", None) or "STANDIN"
    return _SERVER.get(name.lower())


def _set(database: Database, option: str) -> str:
    return str(int(database.option(option) == "ON"))


def _database_property(context: SessionContext, _: Call, name: str, wanted: str) -> Value:
    database = _database(context, name)
    if database is None:
        return None
    values = {
        "collation": database.collation, "status": database.state, "updateability": "READ_WRITE",
        "useraccess": "MULTI_USER", "recovery": database.option("RECOVERY"), "version": "957",
        "isautoclose": _set(database, "AUTO_CLOSE"), "isautoshrink": _set(database, "AUTO_SHRINK"), "isfulltextenabled": "0",
        "isautocreatestatistics": _set(database, "AUTO_CREATE_STATISTICS"),
        "isautoupdatestatistics": _set(database, "AUTO_UPDATE_STATISTICS"),
        "isinstandby": "0", "ispublished": "0", "edition": None, "serviceobjective": None, "isparameterizationforced": "0",
        "isansinulldefault": "0", "isquotedidentifiersenabled": _set(database, "QUOTED_IDENTIFIER"),
        "istornpagedetectionenabled": str(int(database.option("PAGE_VERIFY") == "TORN_PAGE_DETECTION")), "comparisonstyle": "196609",
        "lcid": "1033", "sqlsortorder": "52", "issyncwithbackup": "0",
    }  # fmt: skip
    return values.get(wanted.lower())


define("OBJECT_ID", INT, 1, 2, _object_id, True, arguments=(_NAME, _NAME))
define("OBJECT_NAME", SYSNAME, 1, 2, _object_name, True, arguments=(INT, INT))
define("OBJECT_SCHEMA_NAME", SYSNAME, 1, 2, _object_schema_name, True, arguments=(INT, INT))
define("OBJECT_DEFINITION", SqlType("nvarchar", -1), 1, 1, _object_definition, True, arguments=(INT,))
define("DB_ID", _SMALLINT, 0, 1, _db_id, True, strict=False, arguments=(_NAME,))
define("DB_NAME", SYSNAME, 0, 1, _db_name, True, strict=False, arguments=(INT,))
define("SCHEMA_ID", INT, 0, 1, _schema_id, True, arguments=(_NAME,))
define("SCHEMA_NAME", SYSNAME, 0, 1, _schema_name, True, arguments=(INT,))
define("COL_LENGTH", _SMALLINT, 2, 2, _col_length, True, arguments=(_NAME, _NAME))
define("SERVERPROPERTY", SYSNAME, 1, 1, _server_property, True, arguments=(_NAME,))
define("DATABASEPROPERTYEX", SYSNAME, 2, 2, _database_property, True, arguments=(_NAME, _NAME))
