"""Values of parameters: from their wire form to the stored form of their type."""

import struct
from codecs import utf_16_le_decode
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from math import isfinite
from typing import Final, NoReturn

from mssql_standin.errors import SqlError
from mssql_standin.sql.xmltext import normalized
from mssql_standin.sqltypes import (
    CHARACTER,
    DECIMAL,
    INTEGER,
    LEGACY_LOB,
    MAX,
    SCALED_TIME,
    SqlType,
    Value,
    decimal_to_stored,
    guid_to_stored,
    offset_to_stored,
)
from mssql_standin.wire.buffers import Reader
from mssql_standin.wire.packets import ProtocolError
from mssql_standin.wire.typeinfo import INFO_BYTES, WireType, read_type_info

DAY_TICKS: Final = 864_000_000_000
DAY_THIRDS: Final = 86400 * 300
DAY_MINUTES: Final = 1440
MINUTE_TICKS: Final = DAY_TICKS // DAY_MINUTES
DAYS: Final = 3_652_059
"""From 0001-01-01 to 9999-12-31."""
FIRST_DATETIME_DAY, LAST_DATETIME_DAY = -53_690, 2_958_463
"""1753-01-01 and 9999-12-31, from 1900-01-01."""
OFFSET_MINUTES: Final = 14 * 60

_PLP_NULL: Final = 0xFFFFFFFFFFFFFFFF
_NULL_32: Final = 0xFFFFFFFF
_NULL_16: Final = 0xFFFF
_U32, _U64 = struct.Struct("<I").unpack_from, struct.Struct("<Q").unpack_from
_REAL, _FLOAT = struct.Struct("<f").unpack, struct.Struct("<d").unpack


@dataclass(frozen=True, slots=True)
class Form:
    """How values of a type are read."""

    type: SqlType
    raw: "Raw"
    decode: Callable[[bytes], Value]


Raw = Callable[[bytes, int], tuple[bytes | None, int]]
"""Request and place → the bytes of a value without its length, None for NULL in its several forms (spec standin §11 no. 5),
and the place behind it, which lies behind the end of the request when that ends early."""


def read_typed(data: bytes, place: int) -> tuple[SqlType, Value, int]:
    """TYPE_INFO of a parameter and the stored form of the value that follows it; written for speed.

    Returns:
        Type, value, the place behind both.

    Raises:
        SqlError: for sql_variant, table-valued and CLR parameters, xml that is not well-formed, values that their type
            does not hold.
        ProtocolError: the request ends early, a type that cannot be, a value of another size than its type's.
        LookupError, ValueError, struct.error: it cannot be read.
    """
    behind = place + INFO_BYTES[data[place]]
    form = _form(data[place:behind]) if behind > place else form_of(read_type_info(Reader(data, place)))
    value, end = form.raw(data, behind)
    if end > len(data):
        raise ProtocolError(f"the request ends early: a value up to {end} of {len(data)}")
    return form.type, None if value is None else form.decode(value), end


@lru_cache(maxsize=4096)
def _form(info: bytes) -> Form:
    """A client sends the same few types again and again."""
    return form_of(read_type_info(Reader(info)))


def form_of(wire: WireType) -> Form:
    """How values behind this TYPE_INFO are read."""
    if wire.type.name == "xml":
        return Form(wire.type, _raw(wire), _xml)
    return Form(wire.type, _raw(wire), _text_decoder(wire.codec) if wire.codec else _decoder(wire.type))


def _xml(data: bytes) -> str:
    """ODBC puts a byte order mark in front."""
    return normalized(utf_16_le_decode(data, "surrogatepass", True)[0])


def _text_decoder(codec: str) -> Callable[[bytes], str]:
    if codec == "utf-16-le":
        return lambda data: utf_16_le_decode(data, "surrogatepass", True)[0]
    return lambda data: data.decode(codec, "replace")


def _raw(wire: WireType) -> Raw:
    if wire.fixed:
        size = wire.fixed
        return lambda data, place: (data[place : place + size], place + size)
    name = wire.type.name
    if wire.type.length == MAX or name == "xml":
        return _chunks
    if name in LEGACY_LOB:
        return _long
    if name in CHARACTER or name in ("binary", "varbinary"):
        return _medium
    return _short if name in DECIMAL else _of_size(wire.type.max_length)


def _of_size(size: int) -> Raw:
    """Values that are NULL or have so many bytes."""

    def raw(data: bytes, place: int) -> tuple[bytes | None, int]:
        length = data[place]
        if length == size:
            end = place + 1 + size
            return data[place + 1 : end], end
        if length:
            raise ProtocolError(f"a value of {length} bytes at {place} where {size} belong")
        return None, place + 1

    return raw


def _short(data: bytes, place: int) -> tuple[bytes | None, int]:
    end = place + 1 + data[place]
    return data[place + 1 : end] or None, end


def _medium(data: bytes, place: int) -> tuple[bytes | None, int]:
    length = data[place] | data[place + 1] << 8
    if length == _NULL_16:
        return None, place + 2
    end = place + 2 + length
    return data[place + 2 : end], end


def _long(data: bytes, place: int) -> tuple[bytes | None, int]:
    length: int = _U32(data, place)[0]
    if length == _NULL_32:
        return None, place + 4
    end = place + 4 + length
    return data[place + 4 : end], end


def _chunks(data: bytes, place: int) -> tuple[bytes | None, int]:
    """A partially length-prefixed value: chunks up to one of length 0."""
    if _U64(data, place)[0] == _PLP_NULL:
        return None, place + 8
    parts, place = list[bytes](), place + 8
    while length := _U32(data, place)[0]:
        end = place + 4 + length
        parts.append(data[place + 4 : end])
        place = end
    return b"".join(parts), place + 4


def _decoder(sql_type: SqlType) -> Callable[[bytes], Value]:
    name = sql_type.name
    if name in INTEGER:
        return _bit if name == "bit" else _integer
    if name in DECIMAL:
        return partial(_decimal, sql_type)
    if name in SCALED_TIME:
        return partial(_temporal, sql_type)
    return _DECODERS.get(name, _bytes)


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=len(data) > 1)


def _bit(data: bytes) -> int:
    return min(data[0], 1)


def _date(data: bytes) -> int:
    days = int.from_bytes(data, "little")
    return days if days < DAYS else _refuse("date")


def _decimal(sql_type: SqlType, data: bytes) -> int | bytes:
    magnitude = int.from_bytes(data[1:], "little")
    if magnitude >= 10**sql_type.precision:
        return _refuse(sql_type.name)
    return decimal_to_stored(magnitude if data[0] else -magnitude, sql_type)


def _temporal(sql_type: SqlType, data: bytes) -> int | bytes:
    tail = {"time": 0, "datetime2": 3, "datetimeoffset": 5}[sql_type.name]
    clock = len(data) - tail
    ticks: int = int.from_bytes(data[:clock], "little") * 10 ** (7 - sql_type.scale)
    if ticks >= DAY_TICKS:
        return _refuse(sql_type.name)
    ticks += int.from_bytes(data[clock : clock + 3], "little") * DAY_TICKS
    minutes = int.from_bytes(data[clock + 3 :], "little", signed=True)
    if abs(minutes) > OFFSET_MINUTES or not 0 <= ticks + minutes * MINUTE_TICKS < DAYS * DAY_TICKS > ticks:
        return _refuse(sql_type.name)
    return offset_to_stored(ticks, minutes) if tail == 5 else ticks


def _real(data: bytes) -> float:
    return _valid(_REAL(data)[0])


def _float(data: bytes) -> float:
    return _valid(_FLOAT(data)[0])


def _valid(number: float) -> float:
    return number if isfinite(number) else _refuse("float")


def _refuse(name: str) -> NoReturn:
    raise SqlError(
        8023,
        "The incoming tabular data stream (TDS) remote procedure call (RPC) protocol stream is incorrect. "
        f"The supplied value is not a valid instance of data type {name}. Check the source data for invalid values. "
        "An example of an invalid value is data of numeric type with scale greater than precision.",
    )


def _smallmoney(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _money(data: bytes) -> int:
    high, low = struct.unpack("<iI", data)
    return int(high << 32 | low)


def _datetime(data: bytes) -> int:
    days, thirds = struct.unpack("<iI", data)
    if not FIRST_DATETIME_DAY <= days <= LAST_DATETIME_DAY or thirds >= DAY_THIRDS:
        return _refuse("datetime")
    return int(days * DAY_THIRDS + thirds)


def _smalldatetime(data: bytes) -> int:
    days, minutes = struct.unpack("<HH", data)
    return int(days * DAY_MINUTES + minutes) if minutes < DAY_MINUTES else _refuse("smalldatetime")


def _bytes(data: bytes) -> bytes:
    return data


_DECODERS: Final[dict[str, Callable[[bytes], Value]]] = {
    "date": _date, "real": _real, "float": _float, "money": _money, "smallmoney": _smallmoney,
    "datetime": _datetime, "smalldatetime": _smalldatetime, "uniqueidentifier": guid_to_stored,
}  # fmt: skip
