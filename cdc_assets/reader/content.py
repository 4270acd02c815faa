"""Bytes of a file of lines, unpacked, behind those that were read before."""

import hashlib
import json
import zlib
from collections.abc import Iterator
from typing import Final

from pyarrow import fs

_BLOCK: Final = 4 << 20
_LONGEST_LINE: Final = 256 << 20
_HEAD: Final = 4096


class Content:
    """A file from a place on.

    Args:
        files: the file system.
        path: of the file.
        offset: bytes that were read before.
    """

    def __init__(self, files: fs.FileSystem, path: str, offset: int) -> None:
        self._files, self._path, self._offset = files, path, offset
        self._packed = path.endswith(".gz")
        self._complete = True
        self._first = b""
        for part in self._parts(0):
            self._first = (self._first + part)[:_HEAD]
            if len(self._first) == _HEAD:
                break

    def head(self, offset: int) -> str:
        """Checksum of the first bytes, of no more than stand before a place."""
        return hashlib.sha256(self._first[: min(offset, _HEAD)]).hexdigest()[:16]

    def begins_with(self, head: str) -> bool:
        """Whether the file begins as the one that was read before."""
        return not self._offset or (len(self._first) >= min(_HEAD, self._offset) and self.head(self._offset) == head)

    def blocks(self) -> Iterator[tuple[list[bytes], bool]]:
        """Lines with their ends, and whether they are the last.

        Raises:
            ValueError: it is shorter than what was read before, packed wrongly, or a line has no end.
        """
        rest = b""
        held: list[bytes] | None = None
        for part in self._parts(self._offset):
            rest += part
            end = rest.rfind(b"\n") + 1
            if not end and len(rest) > _LONGEST_LINE:
                raise ValueError(f"a line is longer than {_LONGEST_LINE:,} bytes")
            if end:
                if held is not None:
                    yield held, False
                held, rest = [line + b"\n" for line in rest[:end].split(b"\n")[:-1]], rest[end:]
        is_whole = _is_object(rest)
        last = [rest] if is_whole else []
        yield (held or []) + last, self._complete and (is_whole or not rest.strip())

    def _parts(self, offset: int) -> Iterator[bytes]:
        """The bytes behind a place."""
        if self._packed:
            yield from _behind(self._unpacked(), offset)
            return
        with self._files.open_input_file(self._path) as file:
            if file.size() < offset:
                raise ValueError(_SHORT)
            file.seek(offset)
            while part := file.read(_BLOCK):
                yield part

    def _unpacked(self) -> Iterator[bytes]:
        """What a packed file holds, as far as it goes."""
        with self._files.open_input_stream(self._path, compression=None) as stream:
            unpacker, fresh = zlib.decompressobj(zlib.MAX_WBITS | 16), True
            while packed := stream.read(_BLOCK):
                while packed:
                    fresh = False
                    try:
                        part = unpacker.decompress(packed, _BLOCK)
                    except zlib.error as error:
                        raise ValueError(f"it is no gzip: {error}") from None
                    if part:
                        yield part
                    packed = unpacker.unconsumed_tail or unpacker.unused_data
                    if unpacker.eof:
                        unpacker, fresh = zlib.decompressobj(zlib.MAX_WBITS | 16), True
            self._complete = fresh


_SHORT: Final = "it is shorter than what was read of it"


def _behind(parts: Iterator[bytes], offset: int) -> Iterator[bytes]:
    for part in parts:
        if offset < len(part):
            yield part[offset:]
        offset = max(0, offset - len(part))
    if offset:
        raise ValueError(_SHORT)


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
