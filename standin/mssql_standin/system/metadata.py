"""Catalogue procedures about tables, columns, keys and indexes.

Column names, order and types are those of the vendor pages; drivers read several by position.
The qualifier must be the database the procedure runs in, as on a real server (15250).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from mssql_standin.capture.arguments import Arguments
from mssql_standin.catalog import Column, Database, Index, Table, fold
from mssql_standin.contract import Parameter, ProcedureContext, ResultColumn
from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import INT, NVARCHAR_MAX, SMALLINT, SYSNAME, TINYINT, SqlType, Value
from mssql_standin.system import odbc
from mssql_standin.system.describe import tables_of
from mssql_standin.system.patterns import matches

_REMARKS: Final = SqlType("varchar", length=254)


def columns_of(*named: tuple[str, SqlType]) -> tuple[ResultColumn, ...]:
    """Result columns."""
    return tuple(ResultColumn(name, kind) for name, kind in named)


def database_of(context: ProcedureContext, qualifier: str | None) -> Database:
    """The database a procedure runs in, which a qualifier may only repeat.

    Raises:
        SqlError: 15250 for another database's name.
    """
    database = context.catalog.database(context.procedure_database)
    if database is None:
        raise SqlError(911, f"Database '{context.procedure_database}' does not exist.")
    if qualifier and qualifier != "%" and fold(qualifier.replace("\\", "")) != fold(database.name):
        raise SqlError(
            15250, "The database name component of the object qualifier must be the name of the current database."
        )
    return database if context.rights is None else context.rights.visible(database)


def matching(
    database: Database, owner: str | None, name: str | None, pattern: bool = True, kinds: str | None = None
) -> list[Table]:
    """Tables whose schema and name fit, by schema and name.

    Args:
        kinds: `'TABLE'` and other kinds, in quotation marks; None for all.
    """
    tables = tables_of(database) if kinds is None or "'TABLE'" in kinds.upper() else []
    found = [t for t in tables if matches(t.name, name, pattern) and matches(t.schema, owner, pattern)]
    return sorted(found, key=lambda table: (fold(table.schema), fold(table.name)))


_TABLES: Final = columns_of(
    ("TABLE_QUALIFIER", SYSNAME), ("TABLE_OWNER", SYSNAME), ("TABLE_NAME", SYSNAME),
    ("TABLE_TYPE", SqlType("varchar", length=32)), ("REMARKS", _REMARKS),
)  # fmt: skip


def sp_tables(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """Tables, or with `%` in one place and blanks in the others: databases, owners, types."""
    arguments = Arguments(
        "sp_tables", ("table_name", "table_owner", "table_qualifier", "table_type", "fusepattern"), given
    )
    name, owner = arguments.text("table_name"), arguments.text("table_owner")
    qualifier, kinds = arguments.text("table_qualifier"), arguments.text("table_type")
    listing = _listing(context, name, owner, qualifier, kinds)
    if listing is None:
        database = database_of(context, qualifier)
        pattern = bool(arguments.number("fusepattern", 1))
        found = matching(database, owner, name, pattern, kinds)
        listing = [(database.name, one.schema, one.name, "TABLE", None) for one in found]
    context.send(_TABLES, listing)
    return 0


def _listing(
    context: ProcedureContext, name: str | None, owner: str | None, qualifier: str | None, kinds: str | None
) -> list[Sequence[Value]] | None:
    """The three enumerations of SQLTables."""
    if qualifier == "%" and owner == "" and name == "":
        return [(found, None, None, None, None) for found in sorted(d.name for d in context.catalog.databases.values())]
    if owner == "%" and qualifier == "" and name == "":
        return [(None, schema, None, None, None) for schema in sorted(database_of(context, None).schemas)]
    if kinds == "%" and qualifier == "" and owner == "" and name == "":
        return [(None, None, None, kind, None) for kind in ("SYSTEM TABLE", "TABLE", "VIEW")]
    return None


_COLUMNS: Final = columns_of(
    ("TABLE_QUALIFIER", SYSNAME), ("TABLE_OWNER", SYSNAME), ("TABLE_NAME", SYSNAME), ("COLUMN_NAME", SYSNAME),
    ("DATA_TYPE", SMALLINT), ("TYPE_NAME", SYSNAME), ("PRECISION", INT), ("LENGTH", INT), ("SCALE", SMALLINT),
    ("RADIX", SMALLINT), ("NULLABLE", SMALLINT), ("REMARKS", _REMARKS), ("COLUMN_DEF", SqlType("nvarchar", length=4000)),
    ("SQL_DATA_TYPE", SMALLINT), ("SQL_DATETIME_SUB", SMALLINT), ("CHAR_OCTET_LENGTH", INT), ("ORDINAL_POSITION", INT),
    ("IS_NULLABLE", _REMARKS),
)  # fmt: skip
_COLUMNS_100: Final = columns_of(
    ("SS_IS_SPARSE", SMALLINT), ("SS_IS_COLUMN_SET", SMALLINT), ("SS_IS_COMPUTED", SMALLINT), ("SS_IS_IDENTITY", SMALLINT),
    ("SS_UDT_CATALOG_NAME", SYSNAME), ("SS_UDT_SCHEMA_NAME", SYSNAME), ("SS_UDT_ASSEMBLY_TYPE_NAME", NVARCHAR_MAX),
    ("SS_XML_SCHEMACOLLECTION_CATALOG_NAME", SYSNAME), ("SS_XML_SCHEMACOLLECTION_SCHEMA_NAME", SYSNAME),
    ("SS_XML_SCHEMACOLLECTION_NAME", SYSNAME),
)  # fmt: skip
_TOKEN: Final = columns_of(("SS_DATA_TYPE", TINYINT))
_COLUMN_ARGUMENTS: Final = (
    "table_name", "table_owner", "table_qualifier", "column_name", "namescope", "odbcver", "fusepattern",
)  # fmt: skip


def sp_columns_100(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """Columns in the 29-column form of SQL Server 2008 and later."""
    context.send((*_COLUMNS, *_COLUMNS_100, *_TOKEN), list(_columns(context, given)))
    return 0


def _columns(context: ProcedureContext, given: dict[str, Parameter]) -> Iterator[tuple[Value, ...]]:
    arguments = Arguments("sp_columns_100", _COLUMN_ARGUMENTS, given)
    database = database_of(context, arguments.text("table_qualifier"))
    version, pattern = arguments.number("odbcver", 2) or 2, bool(arguments.number("fusepattern", 1))
    for table in matching(database, arguments.text("table_owner"), arguments.text("table_name"), pattern):
        for place, column in enumerate(table.columns, 1):
            if matches(column.name, arguments.text("column_name"), pattern):
                yield _column(database, table, column, place, version)


def _column(database: Database, table: Table, column: Column, place: int, version: int) -> tuple[Value, ...]:
    kind, null = odbc.describe(column.type, version, column.identity is not None), int(column.nullable)
    clr = column.type.name if kind.code == odbc.UDT else None
    return (
        database.name, table.schema, table.name, column.name, kind.code, kind.name, kind.precision, kind.length, kind.scale,
        kind.radix, null, None, column.default, kind.sql_type, kind.datetime_sub, kind.octets, place,
        "YES" if column.nullable else "NO", int(column.sparse), 0, int(column.computed is not None),
        int(column.identity is not None), database.name if clr else None, "sys" if clr else None, clr, None, None, None,
        odbc.token(column),
    )  # fmt: skip


_PKEYS: Final = columns_of(
    ("TABLE_QUALIFIER", SYSNAME), ("TABLE_OWNER", SYSNAME), ("TABLE_NAME", SYSNAME), ("COLUMN_NAME", SYSNAME),
    ("KEY_SEQ", SMALLINT), ("PK_NAME", SYSNAME),
)  # fmt: skip


def sp_pkeys(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """Primary key columns of a table."""
    arguments = Arguments("sp_pkeys", ("table_name", "table_owner", "table_qualifier"), given)
    database = database_of(context, arguments.text("table_qualifier"))
    rows = []
    for table in matching(database, arguments.text("table_owner"), arguments.required("table_name"), False):
        key = table.primary_key
        for place, (name, _) in enumerate(key.keys if key else (), 1):
            rows.append((database.name, table.schema, table.name, name, place, key.name if key else None))
    context.send(_PKEYS, rows)
    return 0


_STATISTICS: Final = columns_of(
    ("TABLE_QUALIFIER", SYSNAME), ("TABLE_OWNER", SYSNAME), ("TABLE_NAME", SYSNAME), ("NON_UNIQUE", SMALLINT),
    ("INDEX_QUALIFIER", SYSNAME), ("INDEX_NAME", SYSNAME), ("TYPE", SMALLINT), ("SEQ_IN_INDEX", SMALLINT),
    ("COLUMN_NAME", SYSNAME), ("COLLATION", SqlType("char", length=1)), ("CARDINALITY", INT), ("PAGES", INT),
    ("FILTER_CONDITION", SqlType("varchar", length=128)),
)  # fmt: skip


def sp_statistics(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """Indexes of a table, headed by a row of type 0; ordered by NON_UNIQUE, TYPE, INDEX_NAME, SEQ_IN_INDEX."""
    names = ("table_name", "table_owner", "table_qualifier", "index_name", "is_unique", "accuracy")
    arguments = Arguments("sp_statistics", names, given)
    database = database_of(context, arguments.text("table_qualifier"))
    only_unique = (arguments.text("is_unique") or "N").upper() == "Y"
    rows: list[Sequence[Value]] = []
    for table in matching(database, arguments.text("table_owner"), arguments.required("table_name"), False):
        head = (database.name, table.schema, table.name)
        count = context.connection.execute(f"SELECT count(*) FROM {table.sqlite}").fetchone()[0]
        rows.append((*head, None, None, None, 0, None, None, None, count, -(-count // 80), None))
        wanted = [
            i for i in table.indexes if (i.unique or not only_unique) and matches(i.name, arguments.text("index_name"))
        ]
        for index in sorted(wanted, key=lambda i: (not i.unique, not i.clustered, fold(i.name))):
            rows += [(*head, *row) for row in _statistics(table, index, count)]
    context.send(_STATISTICS, rows)
    return 0


def _statistics(table: Table, index: Index, count: int) -> Iterator[tuple[Value, ...]]:
    for place, (name, descending) in enumerate(index.keys, 1):
        order, pages = "D" if descending else "A", -(-count // 80)
        kind = 1 if index.clustered else 3
        yield (int(not index.unique), table.name, index.name, kind, place, name, order, count, pages, index.filter)
