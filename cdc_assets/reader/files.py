"""Events from files of a folder that grows: lines of JSON, packed with gzip or not, local or in an object store.

*What is recorded of a file*: its size and time, the bytes and lines read (after unpacking), and a checksum of its
beginning. A file of the same size and time that was read to the end is not opened again. Any other is read on behind
what was read, if its beginning is the same; if not, or if it is shorter than what was read, it is another file of the same
name, and nothing of it is read.

*A file that is being written.* A line counts when its end is there. The last line may lack it: it counts if it is a whole
JSON object, which a part of one never is. A packed file that ends too early is read as far as it goes.

Files are read in the order of their names, those that come later after those that were there.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from pyarrow import fs

from cdc_assets.config.java_patterns import matches_name
from cdc_assets.config.settings import LakeSettings
from cdc_assets.engine.feed import Offsets
from cdc_assets.errors import LakeError
from cdc_assets.lake.location import STORE_ERRORS, Location, trouble
from cdc_assets.reader.content import Content
from cdc_assets.reader.event_lines import EventLines
from cdc_assets.reader.feed import Item
from cdc_assets.reader.messages import BadRecordError, Unreadable

_DEFAULT: Final = r".*\.(json|jsonl|ndjson)(\.gz)?"
_MOST_LINES: Final = 10_000
_LIST_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a file was read.

    Args:
        size: of the file when it was last looked at.
        mtime: its time then, in nanoseconds.
        offset: bytes of it that were read, after unpacking.
        line: lines of it that were read.
        head: checksum of its first bytes, of no more than were read.
        done: whether it was read to its end.
    """

    size: int = 0
    mtime: int = 0
    offset: int = 0
    line: int = 0
    head: str = ""
    done: bool = False


class FileSource:
    """Reads the files of a folder.

    Args:
        location: the folder.
        pattern: expression for the paths of files below it; empty for the usual ends of names.
        lines: makes messages of lines.
        offsets: where files were read to.
        report: told why a file is not read on.

    Raises:
        LakeError: the folder cannot be listed.
    """

    def __init__(
        self,
        location: Location,
        pattern: str,
        lines: EventLines,
        offsets: Offsets,
        report: Callable[[str, str], None],
    ) -> None:
        self._location, self._pattern = location, pattern or _DEFAULT
        self._lines, self._report = lines, report
        self._files = {partition["file"]: Progress(**offset) for partition, offset in offsets if "file" in partition}
        self._stopped: set[str] = set()
        self._places: dict[tuple[str, int], Progress] = {}
        """By file and place: what to record, for all that the last call has given."""
        self._reading: Iterator[list[Item]] = iter(())
        self._listed: float = float("-inf")
        self._list()
        self._listed = float("-inf")  # the first look at them takes no time

    def read(self, timeout_s: float) -> Sequence[Item]:
        """See `Source`."""
        self._places = {}
        if found := self._some():
            return found
        if (wait := self._listed + _LIST_EVERY_S - time.monotonic()) > 0:
            time.sleep(min(wait, timeout_s))
            return []
        self._reading = self._all(self._list())
        return self._some()

    def _some(self) -> list[Item]:
        """Lines that were found, of several files if they are small."""
        found: list[Item] = []
        while len(found) < _MOST_LINES and (items := next(self._reading, None)) is not None:
            found += items
        return found

    def begun(self) -> Mapping[str, int]:
        """See `Source`: a file is read from its beginning."""
        return {}

    def offset(self, stream: str, behind: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """See `Source`."""
        return {"file": stream}, asdict(self._places[stream, behind])

    def stop(self, stream: str) -> None:
        """See `Source`."""
        self._stopped.add(stream)

    def committed(self, behind: Mapping[str, int]) -> None:
        """See `Source`."""

    def close(self) -> None:
        """See `Source`."""
        self._reading = iter(())

    def _list(self) -> list[fs.FileInfo]:
        """The files that there are, in the order of their names."""
        self._listed = time.monotonic()
        try:
            infos = self._location.existing("").get_file_info(fs.FileSelector("", recursive=True))
        except (*STORE_ERRORS, ValueError) as error:
            raise _trouble(self._location.root, error) from error
        found = [info for info in infos if info.type == fs.FileType.File]
        files = [info for info in found if matches_name("files.pattern", self._pattern, info.path)]
        return sorted(files, key=lambda info: str(info.path))

    def _all(self, infos: Sequence[fs.FileInfo]) -> Iterator[list[Item]]:
        for info in infos:
            before = self._files.get(info.path, Progress())
            same = (info.size, info.mtime_ns or 0) == (before.size, before.mtime)
            if info.path in self._stopped or (same and before.done):
                continue
            try:
                yield from self._file(info, before)
            except (*STORE_ERRORS, ValueError) as error:
                self.stop(info.path)
                self._report(info.path, str(_trouble(f"{self._location.root}/{info.path}", error)))

    def _file(self, info: fs.FileInfo, before: Progress) -> Iterator[list[Item]]:
        """What is new in one file."""
        content = Content(self._location.existing(""), info.path, before.offset)
        if not content.begins_with(before.head):
            raise ValueError(f"it is another file than the one of which {before.line:,} lines were read")
        line, offset = before.line, before.offset
        for block, last in content.blocks():
            items: list[Item] = []
            for raw in block:
                line, offset = line + 1, offset + len(raw)
                if raw.strip():
                    self._places[info.path, offset] = Progress(0, 0, offset, line, content.head(offset))
                    items.append(self._item(info.path, offset, line, raw))
            at = Progress(info.size, info.mtime_ns or 0, offset, line, content.head(offset), last)
            self._files[info.path] = at
            if items:
                self._places[info.path, items[-1].behind] = replace(at, offset=items[-1].behind)
            yield items
            if info.path in self._stopped:
                return

    def _item(self, path: str, behind: int, line: int, raw: bytes) -> Item:
        place = f"{path} line {line}"
        try:
            return self._lines.message(path, behind, place, raw.decode())
        except (BadRecordError, UnicodeDecodeError) as error:
            return Unreadable(path, behind, place, "", str(error), raw.decode("utf-8", "replace"))


def _trouble(what: str, error: Exception) -> Exception:
    found = trouble(f"{what} cannot be read", error, "check files.path and files.storage.option.<option>")
    return found if isinstance(found, LakeError) else LakeError(str(found))


def folder_of(path: str, options: Sequence[tuple[str, str]]) -> Location:
    """The folder of the settings."""
    return Location.of(LakeSettings(path=path, storage_options=tuple(options)))
