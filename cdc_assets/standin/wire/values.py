"""Values of parameters: from their wire form to the stored form of their type."""

import struct
from collections.abc import Callable
from typing import Final

from cdc_assets.standin.sqltypes import (
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
from cdc_assets.standin.wire.buffers import Reader
from cdc_assets.standin.wire.typeinfo import WireType

DAY_TICKS: Final = 864_000_000_000
DAY_THIRDS: Final = 86400 * 300
DAY_MINUTES: Final = 1440

_PLP_NULL: Final = 0xFFFFFFFFFFFFFFFF
_NULL_32: Final = 0xFFFFFFFF
_NULL_16: Final = 0xFFFF


def read_value(reader: Reader, wire: WireType) -> Value:
    """The stored form of the value that follows a parameter's TYPE_INFO."""
    data = _raw(reader, wire)
    if data is None:
        return None
    if wire.codec:
        return data.decode(wire.codec, "surrogatepass" if wire.codec == "utf-16-le" else "replace")
    return _decoder(wire.type)(data, wire.type)


def _raw(reader: Reader, wire: WireType) -> bytes | None:
    """The bytes of the value, without its length; None for NULL in its several forms (spec standin §11 no. 5)."""
    if wire.fixed:
        return reader.take(wire.fixed)
    name = wire.type.name
    if wire.type.length == MAX or name == "xml":
        return _chunks(reader)
    if name in LEGACY_LOB:
        length = reader.u32()
        return None if length == _NULL_32 else reader.take(length)
    if name in CHARACTER or name in ("binary", "varbinary"):
        length = reader.u16()
        return None if length == _NULL_16 else reader.take(length)
    length = reader.u8()
    return reader.take(length) if length else None


def _chunks(reader: Reader) -> bytes | None:
    """A partially length-prefixed value: chunks up to one of length 0."""
    if reader.u64() == _PLP_NULL:
        return None
    parts = list[bytes]()
    while length := reader.u32():
        parts.append(reader.take(length))
    return b"".join(parts)


def _decoder(sql_type: SqlType) -> Callable[[bytes, SqlType], Value]:
    name = sql_type.name
    if name in INTEGER:
        return _integer
    if name in DECIMAL:
        return _decimal
    if name in SCALED_TIME or name == "date":
        return _temporal
    return _DECODERS.get(name, _bytes)


def _integer(data: bytes, sql_type: SqlType) -> int:
    value = int.from_bytes(data, "little", signed=len(data) > 1)
    return min(value, 1) if sql_type.name == "bit" else value


def _decimal(data: bytes, sql_type: SqlType) -> int | bytes:
    magnitude = int.from_bytes(data[1:], "little")
    return decimal_to_stored(magnitude if data[0] else -magnitude, sql_type)


def _temporal(data: bytes, sql_type: SqlType) -> int | bytes:
    if sql_type.name == "date":
        return int.from_bytes(data, "little")
    tail = {"time": 0, "datetime2": 3, "datetimeoffset": 5}[sql_type.name]
    clock = len(data) - tail
    ticks: int = int.from_bytes(data[:clock], "little") * 10 ** (7 - sql_type.scale)
    if not tail:
        return ticks
    ticks += int.from_bytes(data[clock : clock + 3], "little") * DAY_TICKS
    if tail == 3:
        return ticks
    return offset_to_stored(ticks, int.from_bytes(data[clock + 3 :], "little", signed=True))


def _float(data: bytes, sql_type: SqlType) -> float:
    value: float = struct.unpack("<f" if sql_type.name == "real" else "<d", data)[0]
    return value


def _money(data: bytes, sql_type: SqlType) -> int:
    if sql_type.name == "smallmoney":
        return int.from_bytes(data, "little", signed=True)
    high, low = struct.unpack("<iI", data)
    return int(high << 32 | low)


def _datetime(data: bytes, sql_type: SqlType) -> int:
    if sql_type.name == "smalldatetime":
        days, minutes = struct.unpack("<HH", data)
        return int(days * DAY_MINUTES + minutes)
    days, thirds = struct.unpack("<iI", data)
    return int(days * DAY_THIRDS + thirds)


def _guid(data: bytes, sql_type: SqlType) -> bytes:
    return guid_to_stored(data)


def _bytes(data: bytes, sql_type: SqlType) -> bytes:
    return data


_DECODERS: Final[dict[str, Callable[[bytes, SqlType], Value]]] = {
    "real": _float,
    "float": _float,
    "money": _money,
    "smallmoney": _money,
    "datetime": _datetime,
    "smalldatetime": _datetime,
    "uniqueidentifier": _guid,
}
