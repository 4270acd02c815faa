"""Bytes of a file of lines, unpacked: its checksums, and the lines after those that were read before."""

import hashlib
import json
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from pyarrow import fs

from cdc_assets.core.interruption import check

_BLOCK: Final = 4 << 20
_LONGEST_LINE: Final = 256 << 20
HEAD: Final = 4096
"""First bytes of which there is a checksum."""


class ShorterError(ValueError):
    """A file is shorter than what was read of it."""


class Content:
    """A file of lines.

    Args:
        files: the file system.
        path: of the file.
    """

    def __init__(self, files: fs.FileSystem, path: str) -> None:
        self._files, self._path = files, path
        self._packed = path.endswith(".gz")
        self._complete = True
        begin = b""
        for part in self._parts(0):
            begin += part
            if len(begin) >= HEAD:
                break
        self._first, self.first_line = begin[:HEAD], _first_line(begin)
        """The first bytes; and the checksum of the first line that is not blank, None if no whole one is there yet."""

    @property
    def complete(self) -> bool:
        """Whether it did not end too early, as far as it was read; only a packed file does."""
        return self._complete

    def head(self, offset: int) -> str:
        """Checksum of the first bytes, of no more than precede a place."""
        return hashlib.sha256(self._first[: min(offset, HEAD)]).hexdigest()[:16]

    def reaches(self, length: int) -> bool:
        """Whether it has so many bytes, of those at its beginning."""
        return len(self._first) >= length

    def checksums(self, places: Iterable[int], start: int = 0) -> dict[int, int]:
        """Checksums of the bytes from a place to others; without places after its end.

        Raises:
            ValueError: it is shorter than the first place, or packed wrongly.
        """
        found: dict[int, int] = {}
        at = checksum = 0
        wanted = deque(sorted({place - start for place in places}))
        for part in self._parts(start):
            begin = 0
            while wanted and wanted[0] <= at + len(part):
                end = wanted.popleft() - at
                checksum = zlib.crc32(part[begin:end], checksum)
                found[start + at + end], begin = checksum, end
            if not wanted:
                break
            checksum = zlib.crc32(part[begin:], checksum)
            at += len(part)
        return found

    def whole(self) -> tuple[int, int]:
        """How many bytes there are now, and their checksum.

        Raises:
            ValueError: it is packed wrongly.
        """
        length = checksum = 0
        for part in self._noted(self._parts(0), 0):
            length, checksum = length + len(part), zlib.crc32(part, checksum)
        return length, checksum

    def blocks(self, offset: int) -> Iterator[tuple[list[bytes], bool]]:
        """Lines after a place with their ends, and whether they are the last. The file is opened now: where names change, what
        is read stays the file that had this one.

        Raises:
            ShorterError: it is shorter than what was read before.
            ValueError: it was replaced since its first bytes were read, is packed wrongly, or a line has no end.
        """
        parts = self._parts(offset)
        first = next(parts, b"")
        length = min(len(first), len(self._first))
        if not offset and first[:length] != self._first[:length]:
            raise ValueError("it was replaced while it was opened")
        return self._blocks(self._noted(chain([first], parts), offset))

    def _noted(self, parts: Iterable[bytes], at: int) -> Iterator[bytes]:
        """The parts after a place; what was appended since the first bytes were read belongs to these."""
        for part in parts:
            if at <= len(self._first) < min(at + len(part), HEAD):
                self._first = (self._first[:at] + part)[:HEAD]
            at += len(part)
            yield part

    def _blocks(self, parts: Iterator[bytes]) -> Iterator[tuple[list[bytes], bool]]:
        rest = b""
        held: list[bytes] | None = None
        for part in parts:
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
        """The bytes after a place; a run that is to end does not read them all first."""
        if self._packed:
            yield from _skipped(self._unpacked(), offset)
            return
        with self._files.open_input_file(self._path) as file:
            if file.size() < offset:
                raise ShorterError(_SHORT)
            file.seek(offset)
            while part := file.read(_BLOCK):
                check()
                yield part

    def _unpacked(self) -> Iterator[bytes]:
        """What a packed file holds, as far as it goes."""
        with self._files.open_input_stream(self._path, compression=None) as stream:
            unpacker, fresh = zlib.decompressobj(zlib.MAX_WBITS | 16), True
            while packed := stream.read(_BLOCK):
                check()
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


def _skipped(parts: Iterator[bytes], offset: int) -> Iterator[bytes]:
    for part in parts:
        if offset < len(part):
            yield part[offset:]
        offset = max(0, offset - len(part))
    if offset:
        raise ShorterError(_SHORT)


def _first_line(begin: bytes) -> int | None:
    line, end, _ = begin.lstrip().partition(b"\n")
    if not (end or len(begin) >= _BLOCK or _is_object(line)):
        return None
    return zlib.crc32(line.rstrip())


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
