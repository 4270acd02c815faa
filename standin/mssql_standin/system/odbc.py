"""Types as the ODBC catalogue procedures describe them.

Codes are the server's own (`uniqueidentifier` −11, `xml` −152, …); drivers translate them. Date and
time types have other codes for an ODBC 2 caller. Lengths and precisions are those of the
vendor's `sp_columns` and `sp_datatype_info` pages.
"""

from dataclasses import dataclass
from typing import Final

from mssql_standin.catalog import Column
from mssql_standin.sqltypes import CHARACTER, DECIMAL, SCALED_TIME, UNICODE, SqlType
from mssql_standin.system.describe import catalog_type_name

_CODES: Final = {
    "bit": -7, "tinyint": -6, "smallint": 5, "int": 4, "bigint": -5, "decimal": 3, "numeric": 2, "money": 3, "smallmoney": 3,
    "real": 7, "float": 6, "date": 91, "time": -154, "datetime": 93, "smalldatetime": 93, "datetime2": 93,
    "datetimeoffset": -155, "char": 1, "varchar": 12, "text": -1, "nchar": -8, "nvarchar": -9, "ntext": -10, "xml": -152,
    "binary": -2, "varbinary": -3, "image": -4, "rowversion": -2, "uniqueidentifier": -11, "sql_variant": -150,
    "hierarchyid": -151, "geometry": -151, "geography": -151,
}  # fmt: skip
UDT: Final = -151
_ODBC2: Final = {91: 9, 93: 11}
_SIZES: Final[dict[str, tuple[int, int, int | None, int | None]]] = {
    # precision, length, scale, radix
    "bit": (1, 1, None, None), "tinyint": (3, 1, 0, 10), "smallint": (5, 2, 0, 10), "int": (10, 4, 0, 10),
    "bigint": (19, 8, 0, 10), "money": (19, 21, 4, 10), "smallmoney": (10, 12, 4, 10), "real": (24, 4, None, 2),
    "float": (53, 8, None, 2), "date": (10, 6, None, None), "datetime": (23, 16, 3, None), "smalldatetime": (16, 16, 0, None),
    "text": (2147483647, 2147483647, None, None), "ntext": (1073741823, 2147483646, None, None),
    "image": (2147483647, 2147483647, None, None), "xml": (2147483647, 2147483647, None, None),
    "rowversion": (8, 8, None, None), "uniqueidentifier": (36, 16, None, None), "sql_variant": (8000, 8000, 0, 10),
    "hierarchyid": (892, 892, None, None), "geometry": (2147483647, 2147483647, None, None),
    "geography": (2147483647, 2147483647, None, None),
}  # fmt: skip
_TIMES: Final = {"time": (8, 12), "datetime2": (19, 16), "datetimeoffset": (26, 20)}
_DATETIMES: Final = frozenset({"date", "datetime", "smalldatetime", "datetime2"})
_OCTETS: Final = frozenset({"binary", "varbinary", "image", "rowversion"})

# the type byte of TDS before version 7: (NOT NULL, nullable)
_TOKENS: Final = {
    "bit": (50, 50), "tinyint": (48, 38), "smallint": (52, 38), "int": (56, 38), "bigint": (63, 108), "decimal": (55, 106),
    "numeric": (63, 108), "money": (60, 110), "smallmoney": (122, 110), "real": (59, 109), "float": (62, 109), "date": (0, 0),
    "time": (0, 0), "datetime": (61, 111), "smalldatetime": (58, 111), "datetime2": (0, 0), "datetimeoffset": (0, 0),
    "char": (47, 39), "varchar": (39, 39), "text": (35, 35), "nchar": (47, 39), "nvarchar": (39, 39), "ntext": (35, 35),
    "xml": (0, 0), "binary": (45, 37), "varbinary": (37, 37), "image": (34, 34), "rowversion": (45, 37),
    "uniqueidentifier": (37, 37), "sql_variant": (39, 39), "hierarchyid": (23, 23), "geometry": (23, 23), "geography": (23, 23),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class OdbcType:
    """A column's type in ODBC terms."""

    code: int
    name: str
    precision: int
    length: int
    scale: int | None
    radix: int | None
    sql_type: int
    datetime_sub: int | None
    octets: int | None


def describe(kind: SqlType, version: int = 3, identity: bool = False) -> OdbcType:
    """A type for an ODBC 2 or 3 caller.

    Args:
        kind: the type.
        version: ODBCVer as the caller passed it.
        identity: adds ` identity` to the name, as the catalogue procedures do.
    """
    code = _CODES[kind.name]
    if version < 3:
        code = _ODBC2.get(code, code)
    precision, length, scale, radix = _sizes(kind)
    octets = length if kind.name in CHARACTER or kind.name in _OCTETS else None
    name = catalog_type_name(kind) + (" identity" if identity else "")
    sql_type, sub = (9, 1 if kind.name == "date" else 3) if kind.name in _DATETIMES else (code, None)
    return OdbcType(code, name, precision, length, scale, radix, sql_type, sub, octets)


def token(column: Column) -> int:
    """SS_DATA_TYPE."""
    return _TOKENS[column.type.name][column.nullable]


def _sizes(kind: SqlType) -> tuple[int, int, int | None, int | None]:
    if kind.name in DECIMAL:
        return kind.precision, kind.precision + 2, kind.scale, 10
    if kind.name in SCALED_TIME:
        digits, length = _TIMES[kind.name]
        return digits + (kind.scale + 1 if kind.scale else 0), length, kind.scale, None
    if kind.name in _SIZES:
        return _SIZES[kind.name]
    if kind.is_max:
        return (1073741823, 2147483646, None, None) if kind.name in UNICODE else (2147483647, 2147483647, None, None)
    return kind.length, kind.max_length, None, None


Datatype = tuple[
    str, str | None, str | None, str | None, int, int, int | None, int, int | None, tuple[int | None, int | None], int
]
# declaration, literal prefix, suffix, create params, case sensitive, searchable, unsigned, money, auto increment, scales, user type
DATATYPES: Final[tuple[Datatype, ...]] = (
    ("sql_variant", None, None, None, 0, 2, None, 0, None, (0, 0), 0),
    ("uniqueidentifier", "'", "'", None, 0, 2, None, 0, None, (None, None), 0),
    ("ntext", "N'", "'", None, 0, 1, None, 0, None, (None, None), 0),
    ("xml", "N'", "'", None, 0, 1, None, 0, None, (None, None), 0),
    ("nvarchar(4000)", "N'", "'", "max length", 0, 3, None, 0, None, (None, None), 0),
    ("sysname", "N'", "'", None, 0, 3, None, 0, None, (None, None), 18),
    ("nchar(4000)", "N'", "'", "length", 0, 3, None, 0, None, (None, None), 0),
    ("bit", None, None, None, 0, 2, None, 0, None, (0, 0), 16),
    ("tinyint", None, None, None, 0, 2, 1, 0, 0, (0, 0), 5),
    ("bigint", None, None, None, 0, 2, 0, 0, 0, (0, 0), 0),
    ("image", "0x", None, None, 0, 0, None, 0, None, (None, None), 20),
    ("varbinary(8000)", "0x", None, "max length", 0, 2, None, 0, None, (None, None), 4),
    ("binary(8000)", "0x", None, "length", 0, 2, None, 0, None, (None, None), 3),
    ("rowversion", "0x", None, None, 0, 2, None, 0, None, (None, None), 80),
    ("text", "'", "'", None, 0, 1, None, 0, None, (None, None), 19),
    ("char(8000)", "'", "'", "length", 0, 3, None, 0, None, (None, None), 1),
    ("numeric(38,0)", None, None, "precision,scale", 0, 2, 0, 0, 0, (0, 38), 10),
    ("decimal(38,0)", None, None, "precision,scale", 0, 2, 0, 0, 0, (0, 38), 24),
    ("money", "$", None, None, 0, 2, 0, 1, 0, (4, 4), 11),
    ("smallmoney", "$", None, None, 0, 2, 0, 1, 0, (4, 4), 21),
    ("int", None, None, None, 0, 2, 0, 0, 0, (0, 0), 7),
    ("smallint", None, None, None, 0, 2, 0, 0, 0, (0, 0), 6),
    ("float", None, None, None, 0, 2, 0, 0, 0, (None, None), 8),
    ("real", None, None, None, 0, 2, 0, 0, 0, (None, None), 23),
    ("varchar(8000)", "'", "'", "max length", 0, 3, None, 0, None, (None, None), 2),
    ("date", "'", "'", None, 0, 3, None, 0, None, (None, 0), 0),
    ("time(7)", "'", "'", "scale", 0, 3, None, 0, None, (0, 7), 0),
    ("datetime2(7)", "'", "'", "scale", 0, 3, None, 0, None, (0, 7), 0),
    ("datetimeoffset(7)", "'", "'", "scale", 0, 3, None, 0, None, (0, 7), 0),
    ("datetime", "'", "'", None, 0, 3, None, 0, None, (3, 3), 12),
    ("smalldatetime", "'", "'", None, 0, 3, None, 0, None, (0, 0), 22),
)
