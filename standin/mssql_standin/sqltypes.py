"""SQL Server's types and the form in which their values are stored.

One representation serves everywhere: the value that lies in SQLite is the value that
expressions compute with, that variables hold and that the wire encoder reads. A value
means nothing without its `SqlType`.

| type | stored as |
|---|---|
| bit, tinyint, smallint, int, bigint | int |
| real, float | float (real rounded to single precision) |
| decimal(p ≤ 18), numeric, money, smallmoney | int, scaled by 10^scale (money: scale 4) |
| decimal(p > 18) | 16 bytes: value + 2^127, big-endian, so that byte order is numeric order |
| date | int, days since 0001-01-01 |
| time | int, 100 ns ticks since midnight, whatever the scale |
| datetime2 | int, 100 ns ticks since 0001-01-01 |
| datetime | int, 1/300 s ticks since 1900-01-01 |
| smalldatetime | int, minutes since 1900-01-01 |
| datetimeoffset | 10 bytes: UTC ticks (as datetime2) big-endian in 8, then offset minutes + 32768 in 2; only the first 8 compare |
| char, nchar | str, padded with blanks to the length |
| varchar, nvarchar, text, ntext, xml | str |
| binary | bytes, padded with zeros to the length |
| varbinary, image, rowversion | bytes |
| uniqueidentifier | 16 bytes in SQL Server's comparison order (see `GUID_ORDER`) |
| sql_variant, hierarchyid, geometry, geography | bytes |

NULL is None everywhere.
"""

import re
from dataclasses import dataclass, replace
from typing import Final

from mssql_standin.errors import SqlError

Value = int | float | str | bytes | None
"""A stored value; its meaning is that of the table above."""

MAX: Final = -1
"""Length of `(max)` types."""

DEFAULT_COLLATION: Final = "SQL_Latin1_General_CP1_CI_AS"

GUID_ORDER: Final = (10, 11, 12, 13, 14, 15, 8, 9, 6, 7, 4, 5, 0, 1, 2, 3)
"""stored[i] = wire[GUID_ORDER[i]]: the order in which SQL Server compares the 16 bytes of the wire form."""

# name: (system_type_id, bytes of the value or 0 when it varies, precedence: the higher number wins)
_TYPES: Final[dict[str, tuple[int, int, int]]] = {
    "sql_variant": (98, 0, 100),
    "datetimeoffset": (43, 10, 97), "datetime2": (42, 8, 96), "datetime": (61, 8, 95),
    "smalldatetime": (58, 4, 94), "date": (40, 3, 93), "time": (41, 5, 92),
    "float": (62, 8, 91), "real": (59, 4, 90), "decimal": (106, 0, 89), "numeric": (108, 0, 89),
    "money": (60, 8, 88), "smallmoney": (122, 4, 87), "bigint": (127, 8, 86), "int": (56, 4, 85),
    "smallint": (52, 2, 84), "tinyint": (48, 1, 83), "bit": (104, 1, 82),
    "xml": (241, -1, 98), "ntext": (99, 16, 81), "text": (35, 16, 80), "image": (34, 16, 79),
    "rowversion": (189, 8, 78), "uniqueidentifier": (36, 16, 77),
    "nvarchar": (231, 0, 76), "nchar": (239, 0, 75), "varchar": (167, 0, 74), "char": (175, 0, 73),
    "varbinary": (165, 0, 72), "binary": (173, 0, 71),
    "hierarchyid": (240, 892, 99), "geometry": (240, -1, 99), "geography": (240, -1, 99),
}  # fmt: skip

CHARACTER: Final = frozenset({"char", "varchar", "nchar", "nvarchar", "text", "ntext", "xml"})
UNICODE: Final = frozenset({"nchar", "nvarchar", "ntext", "xml"})
BINARY: Final = frozenset(
    {"binary", "varbinary", "image", "rowversion", "sql_variant", "hierarchyid", "geometry", "geography"}
)
INTEGER: Final = frozenset({"bit", "tinyint", "smallint", "int", "bigint"})
DECIMAL: Final = frozenset({"decimal", "numeric"})
MONEY: Final = frozenset({"money", "smallmoney"})
APPROXIMATE: Final = frozenset({"real", "float"})
TEMPORAL: Final = frozenset({"date", "time", "datetime", "smalldatetime", "datetime2", "datetimeoffset"})
SCALED_TIME: Final = frozenset({"time", "datetime2", "datetimeoffset"})
LEGACY_LOB: Final = frozenset({"text", "ntext", "image"})

_SYNONYMS: Final = {
    "integer": "int", "dec": "decimal", "timestamp": "rowversion", "sysname": "nvarchar", "character": "char",
    "char varying": "varchar", "character varying": "varchar", "national char": "nchar", "national character": "nchar",
    "national char varying": "nvarchar", "national character varying": "nvarchar", "national text": "ntext",
    "binary varying": "varbinary", "double precision": "float", "double": "float",
}  # fmt: skip

_DECLARATION: Final = re.compile(
    r"\s*(?:\[?sys\]?\s*\.\s*)?\[?(?P<name>[A-Za-z_][A-Za-z_0-9 ]*?)\]?\s*(?:\(\s*(?P<a>max|\d+)\s*(?:,\s*(?P<b>\d+)\s*)?\))?\s*\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type with its arguments.

    Args:
        name: canonical lower-case name, a key of the table above.
        length: characters (char types) or bytes (binary types), `MAX` for (max); 0 where it means nothing.
        precision: of decimal and numeric; 24 or 53 for real and float.
        scale: of decimal and numeric, or fractional-second digits of time, datetime2, datetimeoffset.
        collation: of character types; empty means the database's.
    """

    name: str
    length: int = 0
    precision: int = 0
    scale: int = 0
    collation: str = ""

    @property
    def system_id(self) -> int:
        """`sys.types.system_type_id`."""
        return _TYPES[self.name][0]

    @property
    def precedence(self) -> int:
        """Higher wins when two types meet in an expression (vendor page: data type precedence)."""
        return _TYPES[self.name][2]

    @property
    def is_max(self) -> bool:
        """Whether it is a `(max)` type or xml."""
        return self.length == MAX or self.name == "xml"

    @property
    def is_wide_decimal(self) -> bool:
        """A decimal stored as 16 biased bytes."""
        return self.name in DECIMAL and self.precision > 18

    @property
    def max_length(self) -> int:
        """`sys.columns.max_length`: bytes, -1 for (max) and xml."""
        if self.name in CHARACTER or self.name in ("binary", "varbinary"):
            if self.name in LEGACY_LOB:
                return 16
            if self.is_max:
                return -1
            return self.length * (2 if self.name in UNICODE else 1)
        if self.name in DECIMAL:
            return decimal_bytes(self.precision)
        if self.name == "time":
            return 3 if self.scale <= 2 else 4 if self.scale <= 4 else 5
        if self.name == "datetime2":
            return 6 if self.scale <= 2 else 7 if self.scale <= 4 else 8
        if self.name == "datetimeoffset":
            return 8 if self.scale <= 2 else 9 if self.scale <= 4 else 10
        if self.name == "sql_variant":
            return 8016
        return _TYPES[self.name][1]

    def with_collation(self, collation: str) -> "SqlType":
        """The same type under another collation."""
        return replace(self, collation=collation)

    def __str__(self) -> str:
        """As one would declare it, without collation."""
        if self.name in DECIMAL:
            return f"{self.name}({self.precision},{self.scale})"
        if self.name in SCALED_TIME:
            return f"{self.name}({self.scale})"
        if self.name in ("char", "varchar", "nchar", "nvarchar", "binary", "varbinary"):
            return f"{self.name}({'max' if self.length == MAX else self.length})"
        return self.name


def decimal_bytes(precision: int) -> int:
    """Storage bytes of a decimal with its sign byte: 5, 9, 13 or 17."""
    return 5 if precision <= 9 else 9 if precision <= 19 else 13 if precision <= 28 else 17


def parse_type(text: str, default_length: int = 1) -> SqlType:
    """Read a declaration such as `decimal(10, 2)` or `nvarchar(max)`.

    Args:
        text: the declaration; letter case, blanks and brackets do not matter.
        default_length: of char and binary types without an argument: 1 in declarations, 30 in CAST.

    Raises:
        SqlError: 243 for an unknown type, 1002 / 2750 / 131 for arguments out of range, 291 / 2716 for those of a type without any.
    """
    found = _DECLARATION.match(text)
    if not found:
        raise SqlError(102, f"Incorrect syntax near '{text.strip()}'.", 15)
    written = " ".join(found["name"].lower().split())
    name = _SYNONYMS.get(written, written)
    if name not in _TYPES:
        raise SqlError(243, f"Type {found['name']} is not a defined system type.")
    if written == "sysname":
        return SqlType("nvarchar", length=128)
    return _with_arguments(name, found["a"], found["b"], default_length)


def _with_arguments(name: str, first: str | None, second: str | None, default_length: int) -> SqlType:
    if name in DECIMAL:
        precision = int(first) if first else 18
        scale = int(second or 0)
        if not 1 <= precision <= 38 or scale > precision:
            raise SqlError(
                2750,
                f"Column or parameter: Specified column precision {precision} is greater than the maximum precision of 38.",
            )
        return SqlType(name, precision=precision, scale=scale)
    if name in ("float", "real"):
        bits = int(first) if first and name == "float" else (53 if name == "float" else 24)
        return SqlType("float", precision=53) if bits > 24 else SqlType("real", precision=24)
    if name in SCALED_TIME:
        scale = int(first) if first else 7
        if scale > 7:
            raise SqlError(1002, f"Line 1: Specified scale {scale} is invalid.", 15)
        return SqlType(name, scale=scale)
    if name in ("char", "varchar", "nchar", "nvarchar", "binary", "varbinary"):
        return SqlType(name, length=_length(name, first, default_length))
    if first is not None and default_length > 1:
        raise SqlError(291, f"CAST or CONVERT: invalid attributes specified for type '{name}'")
    if first is not None:
        raise SqlError(2716, f"Column, parameter, or variable #1: Cannot specify a column width on data type {name}.")
    return SqlType(name)


def _length(name: str, first: str | None, default_length: int) -> int:
    if first is None:
        return default_length
    if first.lower() == "max":
        if name in ("char", "nchar", "binary"):
            raise SqlError(102, "Incorrect syntax near 'max'.", 15)
        return MAX
    length = int(first)
    if not 1 <= length <= (4000 if name in UNICODE else 8000):
        raise SqlError(
            131,
            f"The size ({length}) given to the type '{name}' exceeds the maximum allowed for any data type ({8000}).",
            15,
        )
    return length


BIT, TINYINT, SMALLINT, INT, BIGINT = (SqlType(name) for name in ("bit", "tinyint", "smallint", "int", "bigint"))
FLOAT, REAL = SqlType("float", precision=53), SqlType("real", precision=24)
DATETIME, DATE, UNIQUEIDENTIFIER, MONEY_TYPE = (
    SqlType("datetime"),
    SqlType("date"),
    SqlType("uniqueidentifier"),
    SqlType("money"),
)
SYSNAME = SqlType("nvarchar", length=128)
NVARCHAR_MAX, VARCHAR_MAX, VARBINARY_MAX = SqlType("nvarchar", MAX), SqlType("varchar", MAX), SqlType("varbinary", MAX)
LSN_TYPE = SqlType("binary", length=10)


def guid_to_stored(wire: bytes) -> bytes:
    """Wire (mixed-endian) bytes of a uniqueidentifier to the stored form."""
    return bytes(wire[i] for i in GUID_ORDER)


def guid_from_stored(stored: bytes) -> bytes:
    """Stored form of a uniqueidentifier to its wire bytes."""
    wire = bytearray(16)
    for place, source in enumerate(GUID_ORDER):
        wire[source] = stored[place]
    return bytes(wire)


_BIAS: Final = 1 << 127


def decimal_to_stored(scaled: int, sql_type: SqlType) -> int | bytes:
    """A scaled integer to the stored form of that decimal type."""
    return (scaled + _BIAS).to_bytes(16, "big") if sql_type.is_wide_decimal else scaled


def decimal_from_stored(stored: int | bytes) -> int:
    """Stored form of any decimal to its scaled integer."""
    return int.from_bytes(stored, "big") - _BIAS if isinstance(stored, bytes) else stored


def offset_to_stored(utc_ticks: int, offset_minutes: int) -> bytes:
    """UTC ticks and offset to the stored form of a datetimeoffset."""
    return utc_ticks.to_bytes(8, "big") + (offset_minutes + 32768).to_bytes(2, "big")


def offset_from_stored(stored: bytes) -> tuple[int, int]:
    """Stored form of a datetimeoffset to (UTC ticks, offset minutes)."""
    return int.from_bytes(stored[:8], "big"), int.from_bytes(stored[8:], "big") - 32768
