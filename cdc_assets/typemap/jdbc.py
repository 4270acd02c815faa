"""A column's metadata as the JDBC driver reports it: type number and name, length and scale.

Debezium's schema parameters (`__debezium.source.column.*`), truncation rule and schema history use these values
(measured with mssql-jdbc 12.4: `debezium-events/schema-history-types.json`).
"""

from dataclasses import dataclass

from cdc_assets.core.schema import Column

_WIDE_MAX, _NARROW_MAX = 1_073_741_823, 2_147_483_647

_LENGTH = {
    "bit": 1,
    "tinyint": 3,
    "smallint": 5,
    "int": 10,
    "bigint": 19,
    "real": 24,
    "float": 53,
    "money": 19,
    "smallmoney": 10,
    "date": 10,
    "datetime": 23,
    "smalldatetime": 16,
    "uniqueidentifier": 36,
    "rowversion": 8,
    "timestamp": 8,
    "xml": _NARROW_MAX,
    "text": _NARROW_MAX,
    "image": _NARROW_MAX,
    "ntext": _WIDE_MAX,
    "hierarchyid": 892,
    "sql_variant": 8000,
    "geometry": _NARROW_MAX,
    "geography": _NARROW_MAX,
}
_SCALE = {
    "tinyint": 0,
    "smallint": 0,
    "int": 0,
    "bigint": 0,
    "money": 4,
    "smallmoney": 4,
    "datetime": 3,
    "smalldatetime": 0,
}
_NUMBER = {
    "bit": -7,
    "tinyint": -6,
    "smallint": 5,
    "int": 4,
    "bigint": -5,
    "real": 7,
    "float": 8,
    "numeric": 2,
    **dict.fromkeys(("decimal", "money", "smallmoney"), 3),
    "date": 91,
    "time": 92,
    **dict.fromkeys(("smalldatetime", "datetime", "datetime2"), 93),
    "datetimeoffset": -155,
    "char": 1,
    "varchar": 12,
    "nchar": -15,
    "nvarchar": -9,
    "text": -1,
    **dict.fromkeys(("ntext", "xml"), -16),
    "uniqueidentifier": 1,
    "binary": -2,
    **dict.fromkeys(("rowversion", "timestamp"), -2),
    **dict.fromkeys(("varbinary", "hierarchyid"), -3),
    "image": -4,
    "sql_variant": -156,
    "geometry": -157,
    "geography": -158,
}
"""Type numbers of `java.sql.Types`, or Microsoft's own."""
_OTHER = 1111
_TEXT_BEFORE_FRACTION = {"time": 8, "datetime2": 19, "datetimeoffset": 26}


@dataclass(frozen=True, slots=True)
class JdbcType:
    """A column's type as the driver's catalogue describes it.

    Args:
        number: type number of the base type; 1111 (OTHER) if this release does not know it.
        name: see `reported_type`.
        length: see `reported_length`.
        scale: see `reported_scale`.
    """

    number: int
    name: str
    length: int
    scale: int | None


def jdbc_type(column: Column) -> JdbcType:
    """The driver's view of a column."""
    number = _NUMBER.get("real" if _is_real(column) else column.type_name, _OTHER)
    return JdbcType(number, reported_type(column), reported_length(column), reported_scale(column))


def _is_real(column: Column) -> bool:
    return column.type_name == "float" and column.precision is not None and column.precision <= 24


def reported_type(column: Column) -> str:
    """Type name in lower case: the alias if there is one, with ` identity` for an identity column."""
    name = column.alias or ("timestamp" if column.type_name == "rowversion" else column.type_name)
    if _is_real(column):
        name = "real"
    return f"{name} identity" if column.identity else name


def reported_length(column: Column) -> int:
    """Length of a character or binary column, precision of a number, width of a time's text."""
    name = column.type_name
    if name in ("decimal", "numeric"):
        return 18 if column.precision is None else column.precision
    if name in _TEXT_BEFORE_FRACTION:
        scale = 7 if column.scale is None else column.scale
        return _TEXT_BEFORE_FRACTION[name] + (scale + 1 if scale else 0)
    if _is_real(column):
        return _LENGTH["real"]
    if column.length == -1:
        return _WIDE_MAX if name in ("nvarchar", "sysname") else _NARROW_MAX
    return _LENGTH.get(name, column.length or 0)


def reported_scale(column: Column) -> int | None:
    """Scale of a number or digits of fractional seconds; None where there is none."""
    name = column.type_name
    if name in ("decimal", "numeric"):
        return column.scale or 0
    if name in _TEXT_BEFORE_FRACTION:
        return 7 if column.scale is None else column.scale
    return _SCALE.get(name)
