"""Characters and bytes: code page 1252 as SQL Server reads it, UTF-16 lengths, binary forms of every type."""

import struct
from array import array
from typing import Any, Final

from mssql_standin.errors import unsupported
from mssql_standin.sql import numbers, temporal
from mssql_standin.sqltypes import (
    APPROXIMATE,
    DECIMAL,
    UNICODE,
    SqlType,
    Value,
    decimal_bytes,
    guid_from_stored,
    guid_to_stored,
    offset_from_stored,
)

_UNDEFINED: Final = {"\x81": 0x81, "\x8d": 0x8D, "\x8f": 0x8F, "\x90": 0x90, "\x9d": 0x9D}
_UNDEFINED_BYTES: Final = {byte: char for char, byte in _UNDEFINED.items()}


def encode_1252(text: str) -> bytes:
    """Code page bytes; characters it lacks become `?`, the five undefined places map to themselves."""
    try:
        return text.encode("cp1252")
    except UnicodeEncodeError:
        return b"".join(
            bytes((_UNDEFINED[c],))
            if c in _UNDEFINED
            else c.encode("cp1252", "replace") * (2 if ord(c) > 0xFFFF else 1)
            for c in text
        )


def decode_1252(data: bytes) -> str:
    """Characters of code page bytes."""
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        return "".join(_UNDEFINED_BYTES.get(b) or bytes((b,)).decode("cp1252") for b in data)


def units(text: str) -> int:
    """Length in UTF-16 code units, in which SQL Server counts."""
    return (
        len(text) if text.isascii() or max(text) < "\U00010000" else len(text.encode("utf-16-le", "surrogatepass")) // 2
    )


def cut(text: str, length: int) -> str:
    """At most `length` UTF-16 code units from the start."""
    if len(text) <= length and units(text) <= length:
        return text
    if text.isascii() or max(text) < "\U00010000":
        return text[:length]
    return slice_units(text, 0, length)


def slice_units(text: str, start: int, length: int) -> str:
    """`length` UTF-16 code units from `start`; half a surrogate pair becomes U+FFFD."""
    if text.isascii() or max(text, default="") < "\U00010000":
        return text[start : start + length]
    return text.encode("utf-16-le", "surrogatepass")[start * 2 : (start + length) * 2].decode("utf-16-le", "replace")


def unit_text(text: str) -> str:
    """A text in which every UTF-16 code unit is one character, so that positions count as SQL Server counts them."""
    if text.isascii() or max(text) < "\U00010000":
        return text
    return "".join(map(chr, array("H", text.encode("utf-16-le", "surrogatepass"))))


def to_page(text: str, target: SqlType) -> str:
    """What is left of a text in the character set of the target type."""
    if target.name in UNICODE or text.isascii():
        return text
    return decode_1252(encode_1252(text))


def text_bytes(text: str, source: SqlType) -> bytes:
    """The bytes of a character value."""
    return text.encode("utf-16-le", "surrogatepass") if source.name in UNICODE else encode_1252(text)


def bytes_text(data: bytes, target: SqlType) -> str:
    """The characters that the bytes mean in a character type; 40510 for half a surrogate pair, which SQLite cannot hold."""
    if target.name in UNICODE:
        try:
            return (data + b"\0" if len(data) % 2 else data).decode("utf-16-le")
        except UnicodeDecodeError as error:
            raise unsupported("text with half of a surrogate pair") from error
    return decode_1252(data)


def _time_bytes(ticks: int, scale: int) -> bytes:
    return (ticks // int(10 ** (7 - scale))).to_bytes(3 if scale <= 2 else 4 if scale <= 4 else 5, "little")


def to_binary(value: Any, source: SqlType) -> bytes:
    """SQL Server's binary form of a value, as CAST AS varbinary shows it."""
    name = source.name
    if name in numbers.INT_BYTES:
        return int(value).to_bytes(numbers.INT_BYTES[name], "big", signed=name not in ("bit", "tinyint"))
    if name in APPROXIMATE:
        return bytes(struct.pack(">f" if name == "real" else ">d", value))
    if name in DECIMAL:
        scaled, _ = numbers.scaled_of(value, source)
        magnitude = abs(scaled).to_bytes(decimal_bytes(source.precision) - 1, "little")
        return bytes((source.precision, source.scale, 0, int(scaled >= 0))) + magnitude
    if name == "uniqueidentifier":
        return guid_from_stored(value)
    return _temporal_bytes(value, source)


def _temporal_bytes(value: Any, source: SqlType) -> bytes:
    if source.name == "datetimeoffset":
        utc, offset = offset_from_stored(value)
        day, ticks = divmod(utc, temporal.DAY)
        return (
            bytes((source.scale,))
            + _time_bytes(ticks, source.scale)
            + day.to_bytes(3, "little")
            + struct.pack("<h", offset)
        )
    match source.name:
        case "date":
            return int(value).to_bytes(3, "little")
        case "time":
            return bytes((source.scale,)) + _time_bytes(value, source.scale)
        case "datetime2":
            day, ticks = divmod(int(value), temporal.DAY)
            return bytes((source.scale,)) + _time_bytes(ticks, source.scale) + day.to_bytes(3, "little")
        case "datetime":
            day, ticks = divmod(value, 86400 * 300)
            return struct.pack(">iI", day, ticks)
        case _:
            day, minutes = divmod(value, 1440)
            return struct.pack(">HH", day, minutes)


def from_binary(data: bytes, target: SqlType) -> Value:
    """The value whose binary form the bytes are.

    Raises:
        SqlError: 40510 for decimals and temporal types.
    """
    name = target.name
    if name in numbers.INT_BYTES and name != "bit":
        size = numbers.INT_BYTES[name]
        return int.from_bytes(data[-size:].rjust(size, b"\0"), "big", signed=name != "tinyint")
    if name == "bit":
        return int(any(data[-1:]))
    if name == "uniqueidentifier":
        return guid_to_stored(data[:16].ljust(16, b"\0"))
    raise unsupported(f"converting bytes to {target}")
