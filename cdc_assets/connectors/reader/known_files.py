"""What is recorded of files, and by which a file is known again, also under another name.

A file is what was read of it: the checksum of its first bytes, and that of all bytes before the place to continue at. The first
is cheap, but files whose lines carry their schema begin all alike; the second distinguishes them.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cdc_assets.connectors.reader.content import HEAD, Content, ShorterError


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a file was read.

    Args:
        size: of the file when it was last checked.
        mtime: its time then, in nanoseconds.
        offset: bytes of it that were read, after unpacking.
        line: line ends among them.
        head: checksum of its first bytes, of no more than were read.
        done: whether it was read to its end.
        checksum: of all bytes that were read.
        gone: whether it is gone from its path, under no other name; then `mtime` is when that was seen. If it comes back it is compared
            with what was read, and read on.
        first: checksum of its first line that is not blank; 0 in a record of before there was one.
    """

    size: int = 0
    mtime: int = 0
    offset: int = 0
    line: int = 0
    head: str = ""
    done: bool = False
    checksum: int = 0
    gone: bool = False
    first: int = 0


class KnownFiles:
    """Files by their paths.

    Args:
        recorded: what is recorded by path.
    """

    def __init__(self, recorded: Mapping[str, Mapping[str, Any]]) -> None:
        self._files: dict[str, Progress] = {}
        self._heads: dict[int, dict[str, set[str]]] = {}
        """Paths by how many first bytes their checksum is of, and by the checksum."""
        self._firsts: dict[int | str, set[str]] = {}
        """Paths by the checksum of their first lines; by their names where it is not known."""
        self._blocks: dict[str, tuple[int, int]] = {}
        """Of files that this run has read: the place and checksum of what was read last."""
        for path, progress in recorded.items():
            self.put(path, Progress(**progress))

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def __getitem__(self, path: str) -> Progress:
        return self._files.get(path, Progress())

    def items(self) -> list[tuple[str, Progress]]:
        """All that are known."""
        return list(self._files.items())

    def put(self, path: str, progress: Progress) -> None:
        """Note how far a file was read."""
        if before := self._files.get(path):
            self._heads.get(min(before.offset, HEAD), {}).get(before.head, set()).discard(path)
            self._firsts.get(before.first or _name(path), set()).discard(path)
        self._files[path] = progress
        if progress.offset and not progress.gone:
            self._heads.setdefault(min(progress.offset, HEAD), {}).setdefault(progress.head, set()).add(path)
            self._firsts.setdefault(progress.first or _name(path), set()).add(path)

    def note_block(self, path: str, start: int, block: Iterable[bytes]) -> None:
        """Note what was read last of a file."""
        checksum = 0
        for line in block:
            checksum = zlib.crc32(line, checksum)
        self._blocks[path] = start, checksum

    def note_first(self, path: str, content: Content) -> bool:
        """Note the first line of a file whose record has none; whether there is something to be recorded."""
        before = self[path]
        if not before.first and content.first_line and content.head(before.offset) == before.head:
            self.put(path, replace(before, first=content.first_line))
        return self[path] != before

    def rename(self, moves: Mapping[str, str]) -> dict[str, Progress]:
        """Note that files have other names now, all at once, for they may have each other's.

        Args:
            moves: the former path by the one now.

        Returns:
            What is to be recorded; nothing more is known of a path that no file has now.
        """
        found = dict.fromkeys(moves.values(), Progress())
        found |= {new: replace(self[old], size=0, mtime=0) for new, old in moves.items()}
        for path, progress in found.items():
            self._blocks.pop(path, None)
            self.put(path, progress)
        for path in moves.values() - moves.keys():
            del self._files[path]
        return found

    def forget(self, max_files: int) -> list[str]:
        """Forget files that are gone, but for the last ones.

        Args:
            max_files: how many are kept.

        Returns:
            Their paths.
        """
        gone = sorted((progress.mtime, path) for path, progress in self._files.items() if progress.gone)
        found = [path for _, path in gone[: max(0, len(gone) - max_files)]]
        for path in found:
            del self._files[path]
        return found

    def verified(self, path: str, content: Content) -> int | None:
        """Checksum of all that was read of a file; None if what is there now does not begin with it.

        The first time in a run all of it is read again; later on only what was read last.
        """
        before = self[path]
        if not before.offset:
            return 0
        if content.head(before.offset) != before.head:
            return None
        if path in self._blocks:
            start, checksum = self._blocks[path]
            try:
                found = content.checksums([before.offset], start).get(before.offset)
            except ShorterError:  # another file, whose first bytes are the same
                return None
            return before.checksum if found == checksum else None
        found = content.checksums([before.offset]).get(before.offset)
        return found if found == before.checksum else None

    def same_as(self, content: Content) -> list[str]:
        """Paths of files that a file begins with all that was read of, the longest first."""
        alike = {
            path
            for length, heads in self._heads.items()
            if content.reaches(length)
            for path in heads.get(content.head(length), ())
        }
        if not alike:
            return []
        sums = content.checksums(self[path].offset for path in alike)
        found = [path for path in alike if sums.get(self[path].offset) == self[path].checksum]
        return sorted(found, key=lambda path: (-self[path].offset, path))

    def longer_than(self, path: str, content: Content) -> tuple[list[str], int, int]:
        """Paths of files of which more was read than a new file holds, and that may begin with all of it, by what is recorded.

        Returns:
            Them, how many bytes the new file holds, and the checksum of these.
        """
        near = (self._firsts.get(content.first_line or 0, set()) | self._firsts.get(_name(path), set())) - {path}
        if content.reaches(HEAD):
            alike = self._heads.get(HEAD, {}).get(content.head(HEAD), set())
            near |= {old for old in alike - {path} if not self[old].first}
        if not near:
            return [], 0, 0
        length, checksum = content.whole()
        longer = [old for old in near if self[old].offset > length]
        if content.reaches(HEAD):
            longer = [old for old in longer if self[old].head == content.head(HEAD)]
        return sorted(longer), length, checksum


def _name(path: str) -> str:
    """A file's name, with which it is copied or packed."""
    return path.rpartition("/")[2].removesuffix(".gz")
