"""Reading little-endian fields and counted texts."""

import struct
from collections.abc import Callable
from typing import Final

from mssql_standin.wire.packets import ProtocolError

_U16: Final = struct.Struct("<H").unpack_from
_U32: Final = struct.Struct("<I").unpack_from


class Reader:
    """A place in a request; every method takes what it returns.

    Raises:
        ProtocolError: the request ends early.
    """

    __slots__ = ("data", "place")

    def __init__(self, data: bytes, place: int = 0) -> None:
        self.data, self.place = data, place

    @property
    def left(self) -> int:
        """Bytes not yet taken."""
        return len(self.data) - self.place

    def take(self, count: int) -> bytes:
        """So many bytes."""
        end = self.place + count
        if count < 0 or end > len(self.data):
            raise _short(self, count)
        taken = self.data[self.place : end]
        self.place = end
        return taken

    def u8(self) -> int:
        """Unsigned byte."""
        place = self.place
        self.place = place + 1
        try:
            return self.data[place]
        except IndexError:
            raise _short(self, 1) from None

    def u16(self) -> int:
        """Unsigned, two bytes."""
        return self._number(_U16, 2)

    def u32(self) -> int:
        """Unsigned, four bytes."""
        return self._number(_U32, 4)

    def _number(self, unpack: Callable[[bytes, int], tuple[int]], size: int) -> int:
        place = self.place
        self.place = place + size
        try:
            return unpack(self.data, place)[0]
        except struct.error:
            raise _short(self, size) from None

    def text(self, characters: int) -> str:
        """UTF-16 text of so many code units."""
        return self.take(2 * characters).decode("utf-16-le", "surrogatepass")

    def short_text(self) -> str:
        """Text behind a one-byte count."""
        characters = self.u8()
        return self.text(characters) if characters else ""


def _short(reader: Reader, count: int) -> ProtocolError:
    return ProtocolError(f"the request ends early: {count} bytes wanted at {reader.place} of {len(reader.data)}")


def short_text(text: str) -> bytes:
    """B_VARCHAR: a one-byte count of code units, then the text."""
    data = text[:255].encode("utf-16-le", "surrogatepass")[:510]
    return bytes((len(data) // 2,)) + data


def long_text(text: str) -> bytes:
    """US_VARCHAR: a two-byte count of code units, then the text."""
    data = text.encode("utf-16-le", "surrogatepass")[:8000]
    return struct.pack("<H", len(data) // 2) + data
