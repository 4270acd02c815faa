"""Catalogue procedures about types, databases, procedures and the server."""

from typing import Final

from cdc_assets.standin.capture.arguments import Arguments
from cdc_assets.standin.capture.procedures import PROCEDURES as CAPTURE
from cdc_assets.standin.catalog import Database
from cdc_assets.standin.contract import Parameter, ProcedureContext
from cdc_assets.standin.sqltypes import INT, SMALLINT, SYSNAME, SqlType, Value, parse_type
from cdc_assets.standin.system import odbc
from cdc_assets.standin.system.describe import procedures_of
from cdc_assets.standin.system.metadata import columns_of, database_of
from cdc_assets.standin.system.patterns import matches

_SHORT: Final = SqlType("varchar", length=32)
_DATATYPES: Final = columns_of(
    ("TYPE_NAME", SYSNAME), ("DATA_TYPE", SMALLINT), ("PRECISION", INT), ("LITERAL_PREFIX", _SHORT),
    ("LITERAL_SUFFIX", _SHORT), ("CREATE_PARAMS", _SHORT), ("NULLABLE", SMALLINT), ("CASE_SENSITIVE", SMALLINT),
    ("SEARCHABLE", SMALLINT), ("UNSIGNED_ATTRIBUTE", SMALLINT), ("MONEY", SMALLINT), ("AUTO_INCREMENT", SMALLINT),
    ("LOCAL_TYPE_NAME", SYSNAME), ("MINIMUM_SCALE", SMALLINT), ("MAXIMUM_SCALE", SMALLINT), ("SQL_DATA_TYPE", SMALLINT),
    ("SQL_DATETIME_SUB", SMALLINT), ("NUM_PREC_RADIX", INT), ("INTERVAL_PRECISION", SMALLINT), ("USERTYPE", SMALLINT),
)  # fmt: skip


def sp_datatype_info(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """Types of the server, all or those of one ODBC code; by code, then the most natural first."""
    arguments = Arguments("sp_datatype_info", ("data_type", "odbcver"), given)
    wanted, version = arguments.number("data_type", 0) or 0, arguments.number("odbcver", 2) or 2
    rows = [_datatype(info, version) for info in odbc.DATATYPES]
    chosen = [row for row in rows if wanted in (0, row[1])]
    context.send(_DATATYPES, sorted(chosen, key=lambda row: (int(row[1] or 0), row[0] in ("sysname", "smalldatetime"))))
    return 0


def _datatype(info: odbc.Datatype, version: int) -> tuple[Value, ...]:
    declared, prefix, suffix, parameters, case, searchable, unsigned, money, auto, scales, user = info
    kind = odbc.describe(parse_type(declared), version)
    name = "sysname" if declared == "sysname" else kind.name
    return (
        name, kind.code, kind.precision, prefix, suffix, parameters, int(name not in ("sysname", "timestamp")), case, searchable,
        unsigned, money, auto, name, *scales, kind.sql_type, kind.datetime_sub, kind.radix, None, user,
    )  # fmt: skip


_PROCEDURES: Final = columns_of(
    ("PROCEDURE_QUALIFIER", SYSNAME), ("PROCEDURE_OWNER", SYSNAME), ("PROCEDURE_NAME", SqlType("nvarchar", length=134)),
    ("NUM_INPUT_PARAMS", INT), ("NUM_OUTPUT_PARAMS", INT), ("NUM_RESULT_SETS", INT),
    ("REMARKS", SqlType("varchar", length=254)), ("PROCEDURE_TYPE", SMALLINT),
)  # fmt: skip


def sp_stored_procedures(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """User procedures, and those of change data capture."""
    arguments = Arguments("sp_stored_procedures", ("sp_name", "sp_owner", "sp_qualifier", "fusepattern"), given)
    database = database_of(context, arguments.text("sp_qualifier"))
    rows = [
        (database.name, "sys", f"{name};1", -1, -1, -1, None, 2)
        for name in sorted(CAPTURE)
        if matches(name, arguments.text("sp_name")) and matches("sys", arguments.text("sp_owner"))
    ]
    rows += [
        (database.name, found.shape.schema, f"{found.shape.name};1", -1, -1, -1, None, 2)
        for found in procedures_of(database)
        if matches(found.shape.name, arguments.text("sp_name"))
        and matches(found.shape.schema, arguments.text("sp_owner"))
    ]
    context.send(_PROCEDURES, rows)
    return 0


_DATABASES: Final = columns_of(
    ("DATABASE_NAME", SYSNAME), ("DATABASE_SIZE", INT), ("REMARKS", SqlType("varchar", length=254))
)


def sp_databases(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """Databases; sizes in KB are nominal."""
    Arguments("sp_databases", (), given)
    context.send(_DATABASES, [(database.name, 16384, None) for database in _entered(context)])
    return 0


def _entered(context: ProcedureContext) -> list[Database]:
    """The databases that the login may use, by name."""
    rights, every = context.rights, context.catalog.databases.values()
    return sorted((one for one in every if rights is None or rights.enters(one)), key=lambda one: one.name)


_SERVER: Final = columns_of(
    ("ATTRIBUTE_ID", INT), ("ATTRIBUTE_NAME", SqlType("varchar", length=60)),
    ("ATTRIBUTE_VALUE", SqlType("varchar", length=255)),
)  # fmt: skip
_ATTRIBUTES: Final = {
    1: ("DBMS_NAME", "Microsoft SQL Server"), 2: ("DBMS_VER", "Microsoft SQL Server 2022 - 16.0.1000.6"),
    10: ("OWNER_TERM", "owner"), 11: ("TABLE_TERM", "table"), 12: ("MAX_OWNER_NAME_LENGTH", "128"),
    13: ("TABLE_LENGTH", "128"), 14: ("MAX_QUAL_LENGTH", "128"), 15: ("COLUMN_LENGTH", "128"),
    16: ("IDENTIFIER_CASE", "MIXED"), 17: ("TX_ISOLATION", "2"), 18: ("COLLATION_SEQ", "charset=iso_1 collation=1033"),
    19: ("SAVEPOINT_SUPPORT", "Y"), 20: ("MULTI_RESULT_SETS", "Y"), 22: ("ACCESSIBLE_TABLES", "Y"),
    100: ("USERID_LENGTH", "128"), 101: ("QUALIFIER_TERM", "database"), 102: ("NAMED_TRANSACTIONS", "Y"),
    103: ("SPROC_AS_LANGUAGE", "Y"), 104: ("ACCESSIBLE_SPROC", "Y"), 105: ("MAX_INDEX_COLS", "16"),
    106: ("RENAME_TABLE", "Y"), 107: ("RENAME_COLUMN", "Y"), 108: ("DROP_COLUMN", "Y"),
    109: ("INCREASE_COLUMN_LENGTH", "Y"), 110: ("DDL_IN_TRANSACTION", "Y"), 111: ("DESCENDING_INDEXES", "Y"),
    112: ("SP_RENAME", "Y"), 113: ("REMOTE_SPROC", "Y"), 500: ("SYS_SPROC_VERSION", "16.00.1000"),
}  # fmt: skip


def sp_server_info(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """Attributes of the server, all or one."""
    arguments = Arguments("sp_server_info", ("attribute_id",), given)
    wanted = arguments.number("attribute_id")
    rows = [(key, *value) for key, value in _ATTRIBUTES.items() if wanted in (None, key)]
    context.send(_SERVER, rows)
    return 0


_HELPDB: Final = columns_of(
    ("name", SYSNAME), ("db_size", SqlType("nvarchar", length=13)), ("owner", SYSNAME), ("dbid", SMALLINT),
    ("created", SqlType("nvarchar", length=11)), ("status", SqlType("nvarchar", length=600)),
    ("compatibility_level", SqlType("tinyint")),
)  # fmt: skip


def sp_helpdb(context: ProcedureContext, given: dict[str, Parameter]) -> int:
    """Databases with owner and date of creation; sizes are nominal."""
    arguments = Arguments("sp_helpdb", ("dbname",), given)
    rows = [
        (
            d.name,
            "     16.00 MB",
            "sa",
            d.database_id,
            d.created.strftime("%b %d %Y"),
            f"Status={d.state}, UserAccess={d.user_access}, Recovery={d.option('RECOVERY')}",
            int(d.option("COMPATIBILITY_LEVEL")),
        )
        for d in _entered(context)
        if matches(d.name, arguments.text("dbname"), False)
    ]
    context.send(_HELPDB, rows)
    return 0
