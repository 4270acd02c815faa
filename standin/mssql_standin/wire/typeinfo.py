"""TYPE_INFO: types on the wire, both ways (MS-TDS 2.2.5.4, 2.2.5.6).

Numbers and the old date types of a column that is NOT NULL travel in their fixed form, without
length byte, as SQL Server sends them: ODBC tells nullability by the form, not by the flag. Lengths are in bytes.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mssql_standin.contract import ResultColumn
from mssql_standin.errors import unsupported
from mssql_standin.sqltypes import CHARACTER, DECIMAL, LEGACY_LOB, MAX, SCALED_TIME, UNICODE, SqlType
from mssql_standin.wire.buffers import Reader, long_text, short_text
from mssql_standin.wire.collations import codec_of_bytes, collation_bytes
from mssql_standin.wire.packets import ProtocolError

IMAGE, TEXT, GUID, INTN, DATEN, TIMEN, DATETIME2N, DATETIMEOFFSETN = 0x22, 0x23, 0x24, 0x26, 0x28, 0x29, 0x2A, 0x2B
VARIANT, NTEXT, BITN, DECIMALN, NUMERICN, FLTN, MONEYN, DATETIMN = 0x62, 0x63, 0x68, 0x6A, 0x6C, 0x6D, 0x6E, 0x6F
BIGVARBINARY, BIGVARCHAR, BIGBINARY, BIGCHAR, NVARCHAR, NCHAR = 0xA5, 0xA7, 0xAD, 0xAF, 0xE7, 0xEF
UDT, XML, TABLE_VALUE = 0xF0, 0xF1, 0xF3

MAX_BYTES: Final = 0xFFFF
VARIANT_LIMIT: Final = 8009

_SIZED: Final = {
    "bit": (BITN, 1), "tinyint": (INTN, 1), "smallint": (INTN, 2), "int": (INTN, 4), "bigint": (INTN, 8),
    "real": (FLTN, 4), "float": (FLTN, 8), "smallmoney": (MONEYN, 4), "money": (MONEYN, 8),
    "smalldatetime": (DATETIMN, 4), "datetime": (DATETIMN, 8), "uniqueidentifier": (GUID, 16),
}  # fmt: skip
_SIZED_BACK: Final = {key: name for name, key in _SIZED.items()}
_SCALED: Final = {"time": TIMEN, "datetime2": DATETIME2N, "datetimeoffset": DATETIMEOFFSETN}
_SCALED_BACK: Final = {token: name for name, token in _SCALED.items()}
_COUNTED: Final = {
    "varbinary": BIGVARBINARY, "varchar": BIGVARCHAR, "binary": BIGBINARY, "char": BIGCHAR, "nvarchar": NVARCHAR, "nchar": NCHAR,
}  # fmt: skip
_COUNTED_BACK: Final = {token: name for name, token in _COUNTED.items()}
_LOBS: Final = {"image": (IMAGE, 0x7FFFFFFF), "text": (TEXT, 0x7FFFFFFF), "ntext": (NTEXT, 0x7FFFFFFE)}
_LOBS_BACK: Final = {IMAGE: "image", TEXT: "text", NTEXT: "ntext"}
# token: (type, bytes of the value)
_FIXED_BACK: Final = {
    0x30: ("tinyint", 1), 0x32: ("bit", 1), 0x34: ("smallint", 2), 0x38: ("int", 4), 0x7F: ("bigint", 8),
    0x3A: ("smalldatetime", 4), 0x3D: ("datetime", 8), 0x3B: ("real", 4), 0x3E: ("float", 8),
    0x3C: ("money", 8), 0x7A: ("smallmoney", 4),
}  # fmt: skip
_INFO_SIZES: Final = {
    **{token: 8 if name in CHARACTER else 3 for token, name in _COUNTED_BACK.items()},
    **dict.fromkeys(_FIXED_BACK, 1), DATEN: 1,
    **dict.fromkeys((INTN, BITN, FLTN, MONEYN, DATETIMN, GUID, XML, *_SCALED_BACK), 2),
    DECIMALN: 4, NUMERICN: 4, IMAGE: 5, TEXT: 10, NTEXT: 10,
}  # fmt: skip
INFO_BYTES: Final = tuple(_INFO_SIZES.get(token, 0) for token in range(256))
"""Bytes of the TYPE_INFO that begins with a token; 0 for those that no parameter may have."""
_FIXED: Final = {name: token for token, (name, _) in _FIXED_BACK.items()}
_PRECISION: Final = {"real": 24, "float": 53}
_CLR: Final = {"hierarchyid": 892, "geometry": MAX_BYTES, "geography": MAX_BYTES}


@dataclass(frozen=True, slots=True)
class WireType:
    """The type of a value that arrives."""

    token: int
    type: SqlType
    fixed: int = 0
    """Bytes of the value for types without a length byte."""
    codec: str = ""
    """Of character data."""


def has_fixed_form(sql_type: SqlType) -> bool:
    """Whether values of a NOT NULL column travel without length byte."""
    return sql_type.name in _FIXED


def type_info(sql_type: SqlType, nullable: bool = True) -> bytes:
    """TYPE_INFO of a type we send."""
    name = sql_type.name
    if not nullable and name in _FIXED:
        return bytes((_FIXED[name],))
    if name in _SIZED:
        return bytes(_SIZED[name])
    if name in DECIMAL:
        token = DECIMALN if name == "decimal" else NUMERICN
        return bytes((token, decimal_length(sql_type.precision) + 1, sql_type.precision, sql_type.scale))
    if name == "date":
        return bytes((DATEN,))
    if name in SCALED_TIME:
        return bytes((_SCALED[name], sql_type.scale))
    if name in _COUNTED:
        size = MAX_BYTES if sql_type.length == MAX else max(sql_type.max_length, 1)
        return struct.pack("<BH", _COUNTED[name], size) + _collation(sql_type)
    return _rare_type_info(sql_type)


def _rare_type_info(sql_type: SqlType) -> bytes:
    name = sql_type.name
    if name == "rowversion":
        return struct.pack("<BH", BIGBINARY, 8)
    if name == "xml":
        return bytes((XML, 0))
    if name == "sql_variant":
        return struct.pack("<BI", VARIANT, VARIANT_LIMIT)
    if name in _CLR:
        assembly = f"Microsoft.SqlServer.Types.Sql{name.capitalize()}, Microsoft.SqlServer.Types"
        names = short_text("") + short_text("sys") + short_text(name) + long_text(assembly)
        return struct.pack("<BH", UDT, _CLR[name]) + names
    token, size = _LOBS[name]
    return struct.pack("<BI", token, size) + _collation(sql_type)


def _collation(sql_type: SqlType) -> bytes:
    return collation_bytes(sql_type.collation) if sql_type.name in CHARACTER else b""


def decimal_length(precision: int) -> int:
    """Bytes of a decimal's magnitude: 4, 8, 12 or 16."""
    return 4 if precision <= 9 else 8 if precision <= 19 else 12 if precision <= 28 else 16


def time_length(scale: int) -> int:
    """Bytes of a time of that scale: 3, 4 or 5."""
    return 3 if scale <= 2 else 4 if scale <= 4 else 5


def column_metadata(columns: Sequence[ResultColumn]) -> bytes:
    """COLMETADATA."""
    parts = [struct.pack("<BH", 0x81, len(columns))]
    for column in columns:
        table = b"\x01" + long_text("") if column.type.name in LEGACY_LOB else b""
        user_type = 80 if column.type.name == "rowversion" else 0
        parts.append(struct.pack("<IH", user_type, _flags(column)) + type_info(column.type, column.nullable) + table)
        parts.append(short_text(column.name))
    return b"".join(parts)


def _flags(column: ResultColumn) -> int:
    """Nullability reaches Arrow schemas: it comes from the catalogue (spec standin §11 no. 9)."""
    writable = 0 if column.computed or column.type.name == "rowversion" or column.identity else 0x08
    flags = (0x01 if column.nullable else 0) | writable
    return flags | (0x10 if column.identity else 0) | (0x20 if column.computed else 0)


def read_type_info(reader: Reader) -> WireType:
    """TYPE_INFO of a parameter.

    Raises:
        SqlError: for sql_variant, table-valued and CLR parameters.
        ProtocolError: a precision or scale that the type does not have.
        LookupError: a number of bytes that no such type has.
    """
    token = reader.u8()
    if token in _FIXED_BACK:
        name, size = _FIXED_BACK[token]
        return WireType(token, SqlType(name, precision=_PRECISION.get(name, 0)), fixed=size)
    if token in (INTN, BITN, FLTN, MONEYN, DATETIMN, GUID):
        name = _SIZED_BACK[token, reader.u8()]
        return WireType(token, SqlType(name, precision=_PRECISION.get(name, 0)))
    if token in (DECIMALN, NUMERICN):
        _, precision, scale = reader.take(3)
        if not 1 <= precision <= 38 or scale > precision:
            raise ProtocolError(f"a decimal({precision},{scale})")
        return WireType(token, SqlType("decimal" if token == DECIMALN else "numeric", precision=precision, scale=scale))
    if token == DATEN:
        return WireType(token, SqlType("date"))
    if token in _SCALED_BACK:
        scale = reader.u8()
        if scale > 7:
            raise ProtocolError(f"a {_SCALED_BACK[token]}({scale})")
        return WireType(token, SqlType(_SCALED_BACK[token], scale=scale))
    if token in _COUNTED_BACK:
        return _read_counted(token, reader)
    return _read_rare(token, reader)


def _read_counted(token: int, reader: Reader) -> WireType:
    name, size = _COUNTED_BACK[token], reader.u16()
    codec = _read_codec(name, reader)
    if size == MAX_BYTES:
        return WireType(token, SqlType(name, MAX), codec=codec)
    return WireType(token, SqlType(name, max(size // (2 if name in UNICODE else 1), 1)), codec=codec)


def _read_codec(name: str, reader: Reader) -> str:
    if name not in CHARACTER:
        return ""
    codec = codec_of_bytes(reader.take(5))
    return "utf-16-le" if name in UNICODE else codec


def _read_rare(token: int, reader: Reader) -> WireType:
    if token in _LOBS_BACK:
        name = _LOBS_BACK[token]
        reader.take(4)
        return WireType(token, SqlType(name), codec=_read_codec(name, reader))
    if token == XML:
        if reader.u8():
            raise unsupported("xml parameters with a schema collection")
        return WireType(token, SqlType("xml"), codec="utf-16-le")
    kinds = {VARIANT: "sql_variant", TABLE_VALUE: "table-valued", UDT: "CLR type"}
    raise unsupported(f"{kinds.get(token, f'type {token:#x} of')} parameters")
