"""The catalogue procedure about types."""

from typing import Final

from mssql_standin.capture.arguments import Arguments
from mssql_standin.contract import Parameter, ProcedureContext
from mssql_standin.sqltypes import INT, SMALLINT, SYSNAME, SqlType, Value, parse_type
from mssql_standin.system import odbc
from mssql_standin.system.metadata import columns_of

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
