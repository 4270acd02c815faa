"""Reading little-endian fields and counted texts."""

import struct

from cdc_assets.standin.wire.packets import ProtocolError


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
            raise ProtocolError(f"the request ends early: {count} bytes wanted at {self.place} of {len(self.data)}")
        taken = self.data[self.place : end]
        self.place = end
        return taken

    def u8(self) -> int:
        """Unsigned byte."""
        return self.take(1)[0]

    def u16(self) -> int:
        """Unsigned, two bytes."""
        return int.from_bytes(self.take(2), "little")

    def u32(self) -> int:
        """Unsigned, four bytes."""
        return int.from_bytes(self.take(4), "little")

    def i32(self) -> int:
        """Signed, four bytes."""
        return int.from_bytes(self.take(4), "little", signed=True)

    def u64(self) -> int:
        """Unsigned, eight bytes."""
        return int.from_bytes(self.take(8), "little")

    def text(self, characters: int) -> str:
        """UTF-16 text of so many code units."""
        return self.take(2 * characters).decode("utf-16-le", "surrogatepass")

    def short_text(self) -> str:
        """Text behind a one-byte count."""
        return self.text(self.u8())


def short_text(text: str) -> bytes:
    """B_VARCHAR: a one-byte count of code units, then the text."""
    data = text[:255].encode("utf-16-le", "surrogatepass")[:510]
    return bytes((len(data) // 2,)) + data


def long_text(text: str) -> bytes:
    """US_VARCHAR: a two-byte count of code units, then the text."""
    data = text.encode("utf-16-le", "surrogatepass")[:8000]
    return struct.pack("<H", len(data) // 2) + data
