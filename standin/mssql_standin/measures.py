"""Precision, scale and lengths of types, as every catalogue of SQL Server tells them."""

from typing import Final

from mssql_standin.sqltypes import APPROXIMATE, CHARACTER, DECIMAL, LEGACY_LOB, SCALED_TIME, SqlType

_NUMERIC: Final[dict[str, tuple[int, int]]] = {
    "bit": (1, 0), "tinyint": (3, 0), "smallint": (5, 0), "int": (10, 0), "bigint": (19, 0), "money": (19, 4),
    "smallmoney": (10, 4), "date": (10, 0), "datetime": (23, 3), "smalldatetime": (16, 0), "real": (24, 0), "float": (53, 0),
}  # fmt: skip
_COUNTED: Final = frozenset({"tinyint", "smallint", "int", "bigint", "money", "smallmoney"})
_FRACTIONS: Final = {"date": 0, "smalldatetime": 0, "datetime": 3}
_TIME_DIGITS: Final = {"time": 8, "datetime2": 19, "datetimeoffset": 26}


def precision(kind: SqlType) -> int:
    """`sys.columns.precision`."""
    if kind.name in DECIMAL:
        return kind.precision
    if kind.name in SCALED_TIME:
        return _TIME_DIGITS[kind.name] + (kind.scale + 1 if kind.scale else 0)
    return _NUMERIC.get(kind.name, (0, 0))[0]


def scale(kind: SqlType) -> int:
    """`sys.columns.scale`."""
    if kind.name in DECIMAL or kind.name in SCALED_TIME:
        return kind.scale
    return _NUMERIC.get(kind.name, (0, 0))[1]


def measures(kind: SqlType) -> tuple[int | None, ...]:
    """Length in characters and in bytes, precision, its radix, scale, and digits of a second, as INFORMATION_SCHEMA has them."""
    approximate = kind.name in APPROXIMATE
    numeric = kind.name in _COUNTED or approximate or kind.name in DECIMAL
    digits = (
        (precision(kind), 2 if approximate else 10, None if approximate else scale(kind)) if numeric else (None,) * 3
    )
    fraction = kind.scale if kind.name in SCALED_TIME else _FRACTIONS.get(kind.name)
    return (*_lengths(kind), *digits, fraction)


def _lengths(kind: SqlType) -> tuple[int | None, int | None]:
    if kind.name in LEGACY_LOB:
        octets = 2147483646 if kind.name == "ntext" else 2147483647
        return (1073741823 if kind.name == "ntext" else octets), octets
    if kind.name == "xml" or (kind.is_max and (kind.name in CHARACTER or kind.name == "varbinary")):
        return -1, -1
    if kind.name in CHARACTER or kind.name in ("binary", "varbinary"):
        return kind.length, kind.max_length
    return None, None
