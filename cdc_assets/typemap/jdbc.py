"""What the JDBC driver reports of a column: type name, length and scale.

Debezium's schema parameters (`__debezium.source.column.*`), truncation rule and
schema history are in these terms (measured: `debezium-events/schema-history-types.json`).
"""

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
_TEXT_BEFORE_FRACTION = {"time": 8, "datetime2": 19, "datetimeoffset": 26}


def reported_type(column: Column) -> str:
    """Type name in lower case: the alias if there is one, with ` identity` for an identity column."""
    name = column.alias or ("timestamp" if column.type_name == "rowversion" else column.type_name)
    if column.type_name == "float" and column.precision is not None and column.precision <= 24:
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
    if name == "float" and column.precision is not None and column.precision <= 24:
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
