"""Reads the offset file of standalone Kafka Connect and of Debezium's engine: a Java map of byte arrays.

`FileOffsetBackingStore` writes a `HashMap<byte[], byte[]>` with Java's object serialization. Only this one form is
read; anything else in the file is refused, and no class is ever loaded.
https://docs.oracle.com/en/java/javase/17/docs/specs/serialization/protocol.html
"""

import struct
from collections.abc import Iterator

from cdc_assets.errors import InvalidValueError

MAGIC = b"\xac\xed\x00\x05"
"""First bytes of every Java serialization stream."""

_NULL, _REFERENCE, _CLASS, _OBJECT, _ARRAY, _BLOCK, _END = 0x70, 0x71, 0x72, 0x73, 0x75, 0x77, 0x78
_PRIMITIVES = b"BCDFIJSZ"
_WIDTHS = dict(zip(_PRIMITIVES, (1, 2, 8, 4, 4, 8, 2, 1), strict=True))


def parse_java_map(content: bytes) -> list[tuple[bytes, bytes | None]]:
    """Keys and values of the map in a file.

    Raises:
        InvalidValueError: the file is not a serialized map of byte arrays, or it is cut off.
    """
    try:
        return list(_Stream(content).entries())
    except (struct.error, IndexError, ValueError, UnicodeDecodeError) as error:
        raise InvalidValueError(
            "offset file", content[:20].hex(), "a map of byte arrays, as Java serializes it", "copy the whole file"
        ) from error


class _Stream:
    """A position in the file."""

    def __init__(self, content: bytes) -> None:
        self._content, self._place = content, len(MAGIC)
        self._widths: int = 0

    def entries(self) -> Iterator[tuple[bytes, bytes | None]]:
        self._expect(_OBJECT)
        if self._class() != "java.util.HashMap":
            raise ValueError("not a HashMap")
        self._take(self._widths)
        self._expect(_BLOCK)
        _, count = struct.unpack(">ii", self._take(self._take(1)[0]))
        for _ in range(count):
            key, value = self._array(), self._array()
            if key is not None:
                yield key, value
        self._expect(_END)

    def _take(self, size: int) -> bytes:
        found = self._content[self._place : self._place + size]
        if len(found) < size:
            raise ValueError("cut off")
        self._place += size
        return found

    def _expect(self, mark: int) -> None:
        if self._take(1)[0] != mark:
            raise ValueError(f"no mark {mark:#x}")

    def _text(self) -> str:
        (size,) = struct.unpack(">H", self._take(2))
        return self._take(size).decode()

    def _class(self) -> str | None:
        """Name of a class that is described here; None for a reference to one that was described before."""
        mark = self._take(1)[0]
        if mark == _REFERENCE:
            self._take(4)
            return None
        if mark != _CLASS:
            raise ValueError("no class")
        name = self._text()
        self._take(8 + 1)
        (fields,) = struct.unpack(">H", self._take(2))
        self._widths = 0
        for _ in range(fields):
            kind = self._take(1)[0]
            if kind not in _WIDTHS:
                raise ValueError("a field that is no number")
            self._widths += _WIDTHS[kind]
            self._text()
        self._expect(_END)
        self._expect(_NULL)
        return name

    def _array(self) -> bytes | None:
        mark = self._take(1)[0]
        if mark == _NULL:
            return None
        if mark != _ARRAY or self._class() not in ("[B", None):
            raise ValueError("no array of bytes")
        (size,) = struct.unpack(">i", self._take(4))
        return self._take(size)
