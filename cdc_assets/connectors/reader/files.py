"""Events from files of a folder that grows: lines of JSON, packed with gzip or not, local or in an object store.

*What is recorded of a file*: its size and time, the bytes and lines read (after unpacking), and checksums of its
beginning and of all that was read (`known_files`). A file of the same size and time that was read to the end is not opened
again. Any other is read on after what was read, if it begins with that; if not, it is another file of the same name.

*A file that was renamed* begins with all that was read of one that is gone from its path, or replaced there: it is read on
where that one ended. Its place and that the old path is free are recorded no later than what is read next, so a crash
before leaves all as it was. In an object store, renaming is copying and deleting: while both are there the copy waits for a
minute. Another file at a path whose file is nowhere is not read. One that is gone before it was read to its end is reported.

*A copy that grows under its final name*, as `gzip` and `cp` write it, is the beginning of a file that was read. It is not read while it is
no more than that, until it has not changed for a minute; a packed one not before its end is there.

*Files that are gone* are known for a while, since a folder that is not mounted for a moment has none either; those that have been gone for
longest are forgotten, so that the record does not grow without end; not while the folder is empty. One of these that came back would be read as
a new one.

*A file that is being written.* A line counts when its end is there. The last line may lack it: it counts if it is a whole
JSON object, which a part of one never is. A packed file that ends too early is read as far as it goes. Paths with a part
that begins with `_` or `.` are left out, under which writers keep what is not ready.

*A look takes time*, and files get other names meanwhile: of two folders one is listed later, and the last file is opened when all others
are read. So what a listing lacks is listed again, and a file that cannot be read is given up by the second look that finds it so.

Files are read in the order of their names, those that come later after those that were there. So after a file that stops,
later ones wait that may hold events of the same topic: those of the topic in their names, or else of the folder. What was read of these in
vain is not recorded, so under another name none is read, nor noted as gone, before the next run.
"""

import codecs
import logging
import re
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from pyarrow import fs

from cdc_assets.config.settings import LakeSettings
from cdc_assets.connectors.engine.feed import FORGOTTEN, Offsets
from cdc_assets.connectors.reader.content import Content, ShorterError
from cdc_assets.connectors.reader.event_lines import EventLines, topic_of_file
from cdc_assets.connectors.reader.feed import Item
from cdc_assets.connectors.reader.known_files import KnownFiles, Progress
from cdc_assets.connectors.reader.listing import DEFAULT_PATTERN, is_done, list_files, unlisted
from cdc_assets.connectors.reader.messages import BadRecordError, Unreadable
from cdc_assets.lake.location import STORE_ERRORS, Location

log = logging.getLogger(__name__)

_MAX_LINES: Final = 10_000
_LIST_EVERY_S: Final = 1.0
_COPYING_S: Final = 60.0
"""For how long a copy waits for the file that it is of to be deleted."""
_MAX_GONE: Final = 10_000
"""Number of files that are known though they are gone."""
_DATE: Final = re.compile(r"[^/]*=[^/]*|[0-9][0-9_-]*")
"""Folders that are no table's, but a day's."""


class FileSource:
    """Reads the files of a folder.

    Args:
        location: the folder.
        pattern: expression for the paths of files below it; empty for the usual ends of names.
        lines: makes messages of lines.
        offsets: where files were read to.
        report: called with the reason why a file is not read on.

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
        self._location, self._pattern = location, pattern or DEFAULT_PATTERN
        self._lines, self._report = lines, report
        self._files = KnownFiles({partition["file"]: offset for partition, offset in offsets if "file" in partition})
        self._stopped: set[str] = set()
        self._waiting: set[str] = set()
        """Topics and folders of which no more files are read."""
        self._missed: set[str] = set()
        """Files that are gone before they were read to the end."""
        self._doubtful: set[str] = set()
        """Files that could not be read by the newest look, for the first time."""
        self._held: set[str] = set()
        """Topics and folders of which the newest look reads no more."""
        self._begun: dict[str, Progress] = {}
        """What is to be recorded beside what is read."""
        self._places: dict[tuple[str, int], Progress] = {}
        """By file and place: what to record, for all that the last call has given."""
        self._is_filled = False
        """Whether the folder holds any file."""
        self._reading: Iterator[list[Item]] = iter(())
        self._listed: float = float("-inf")
        self._list()
        self._listed = float("-inf")  # the first listing takes no time

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
        while len(found) < _MAX_LINES and (items := next(self._reading, None)) is not None:
            found += items
        return found

    @property
    def caught_up(self) -> bool:
        """See `Source`: a look that finds nothing has been through all files, but for those that are tried once more."""
        return not self._doubtful

    def begun(self) -> Mapping[str, int]:
        """See `Source`: files that were renamed or touched, and those that are gone."""
        begun, self._begun = self._begun, {}
        if begun and self._is_filled:  # there is something to be recorded anyway
            begun |= dict.fromkeys(self._files.forget(_MAX_GONE), Progress())
        self._places |= {(path, progress.offset): progress for path, progress in begun.items()}
        return {path: progress.offset for path, progress in begun.items()}

    def offset(self, stream: str, next_offset: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """See `Source`."""
        at = self._places[stream, next_offset]
        return {"file": stream}, FORGOTTEN if at == Progress() else asdict(at)

    def stop(self, stream: str) -> None:
        """See `Source`."""
        self._stopped.add(stream)
        if stream in self._missed:  # it was not put aside, and may have another name
            self._files.put(stream, replace(self._files[stream], done=False, gone=False))
        else:
            self._waiting.add(self._group(stream))

    def waits(self, stream: str, stopped: str) -> bool:
        """See `Source`."""
        return stream == stopped or (stopped not in self._missed and self._group(stream) == self._group(stopped))

    def _is_stopped(self, path: str) -> bool:
        return path in self._stopped or self._group(path) in self._waiting

    def _group(self, path: str) -> str:
        """What the files share whose events may be of the same topic."""
        if self._lines.topic or (topic := topic_of_file(path)) is None:
            folder, separator, _ = path.partition("/")
            is_own = separator and not self._lines.topic and not _DATE.fullmatch(folder)
            return f"{folder}/" if is_own else ""
        return topic

    def committed(self, next_offsets: Mapping[str, int]) -> None:
        """See `Source`."""

    def close(self) -> None:
        """See `Source`."""
        self._reading = iter(())

    def _list(self) -> list[fs.FileInfo]:
        """The files that there are, in the order of their names."""
        self._listed = time.monotonic()
        found = list_files(self._location, self._pattern, self._files)
        shown = {info.path for info in found}
        if any(self._is_missing(path, shown) for path, _ in self._files.items()):
            # one that is renamed while folders are listed may be in none of them
            found = list_files(self._location, self._pattern, self._files)
        self._is_filled = bool(found)
        return found

    def _is_missing(self, path: str, shown: Collection[str]) -> bool:
        """Whether a file that was read is not where it was, for the first time."""
        progress = self._files[path]
        return path not in shown and bool(progress.offset) and not progress.gone and not self._is_stopped(path)

    def _all(self, infos: Sequence[fs.FileInfo]) -> Iterator[list[Item]]:
        before, self._doubtful, self._held = self._doubtful, set(), set()
        self._follow_renamed({info.path: info for info in infos}, before)
        yield self._gone({info.path for info in infos})
        for info in infos:
            if self._is_stopped(info.path) or self._group(info.path) in self._held or self._is_done(info):
                continue
            try:
                yield from self._file(info)
            except (*STORE_ERRORS, ValueError) as error:
                self._doubt(info.path, error, before)

    def _doubt(self, path: str, error: Exception, before: Collection[str]) -> None:
        """Give a file up that cannot be read, if the look before could not read it either."""
        if path in before:
            self._give_up(path, error)
        else:
            self._doubtful.add(path)
            self._held.add(self._group(path))

    def _give_up(self, path: str, error: Exception) -> None:
        self.stop(path)
        place = f"{self._location.root}/{path}"
        refused = not isinstance(error, STORE_ERRORS)  # by us, for what it holds: settings are no remedy
        self._report(path, f"{place} cannot be read: {error}" if refused else str(unlisted(place, error)))

    def _is_done(self, info: fs.FileInfo) -> bool:
        return is_done(self._files, info)

    def _content(self, path: str) -> Content:
        return Content(self._location.existing(""), path)

    def _follow_renamed(self, infos: Mapping[str, fs.FileInfo], doubtful: Collection[str]) -> None:
        """Find under which names files continue that are not at their paths any more."""
        if not any(progress.offset for _, progress in self._files.items()):
            return
        moves: dict[str, str] = {}
        unread = [path for path, info in infos.items() if not self._files[path].offset and not self._is_done(info)]
        new = [path for path in unread if path not in self._stopped]
        while new:
            path = new.pop()
            try:
                alike = [old for old in self._files.same_as(self._content(path)) if old not in (path, *moves.values())]
                old = next((old for old in alike if self._is_elsewhere(old, infos)), None)
            except (*STORE_ERRORS, ValueError) as error:
                self._doubt(path, error, doubtful)
                continue
            if old is not None and self._is_stopped(old):
                self._stopped.add(path)  # what was read of it in vain is not known here; the next run follows it
            elif old is not None:
                log.info("%s was renamed to %s, and is read on there.", old, path)
                moves[path] = old
                if old in infos:  # what is there now may have had another name, as when numbers shift
                    new.append(old)
        self._begun |= self._files.rename(moves)

    def _is_elsewhere(self, path: str, infos: Mapping[str, fs.FileInfo]) -> bool:
        """Whether what was read of a file is not at its path."""
        info = infos.get(path)
        return info is None or (not self._is_done(info) and self._files.verified(path, self._content(path)) is None)

    def _gone(self, shown: set[str]) -> list[Item]:
        """Files that are gone: a replacement for each one of which lines are missing."""
        found: list[Item] = []
        for path, progress in self._files.items():
            if not self._is_missing(path, shown):
                continue
            gone = replace(progress, size=0, mtime=time.time_ns(), done=True, gone=True)
            self._files.put(path, gone)
            if progress.done:
                self._begun[path] = gone
                continue
            self._missed.add(path)
            self._places[path, progress.offset] = gone
            reason = (
                f"the file is gone, or outside of files.pattern, before it was read to its end: everything after byte "
                f"{progress.offset:,} is missing in the lake; put the file back, or set errors.tolerance=all to skip it"
            )
            found.append(Unreadable(path, progress.offset, f"{path} line {progress.line + 1}", "", reason))
        return found

    def _waits_for_original(self, info: fs.FileInfo, content: Content) -> bool:
        """Whether a new file is a copy of one that may be deleted in a moment.

        Raises:
            ValueError: that has been deleted since the listing; who packs a file gives the copy the time of the original.
        """
        alike = self._files.same_as(content)
        if gone := [path for path in alike if not self._is_there(path)]:
            raise ValueError(f"it is a copy of {gone[0]}, which is gone now")
        return any(time.time() - max(self._files[path].mtime, info.mtime_ns or 0) / 1e9 < _COPYING_S for path in alike)

    def _is_being_copied(self, path: str, content: Content) -> bool:
        """Whether all that a new file holds as yet is the beginning of one that was read, or nothing in it counts yet."""
        if content.first_line is None:
            return self._is_fresh(path)
        longer, length, checksum = self._files.longer_than(path, content)
        if any(not self._is_there(old) and not self._is_stopped(old) for old in longer):
            self._doubtful.add(path)  # the next look follows it, or notes that it is gone
            self._held.add(self._group(path))
            return True
        is_copy = any(self._begins(old, length, checksum) for old in longer if self._is_there(old))
        return is_copy and (not content.complete or self._is_fresh(path))

    def _begins(self, path: str, length: int, checksum: int) -> bool:
        """Whether the first bytes of a file have a checksum."""
        content = self._content(path)
        if self._files.note_first(path, content):
            self._begun[path] = self._files[path]
        return content.checksums([length]).get(length) == checksum

    def _is_there(self, path: str) -> bool:
        return bool(self._info(path).type == fs.FileType.File)

    def _is_fresh(self, path: str) -> bool:
        """Whether a file is written as yet: its time in the listing may be that of long ago."""
        return time.time() - (self._info(path).mtime_ns or 0) / 1e9 < _COPYING_S

    def _info(self, path: str) -> fs.FileInfo:
        return self._location.existing("").get_file_info(path)

    def _file(self, info: fs.FileInfo) -> Iterator[list[Item]]:
        """What is new in one file."""
        before, content = self._files[info.path], self._content(info.path)
        if not before.offset and (self._is_being_copied(info.path, content) or self._waits_for_original(info, content)):
            return
        blocks, checksum = self._opened(info.path, content)
        if checksum is None:
            raise ValueError(
                f"it is not the file of which {before.line:,} lines were read, and that file has no other name now; rename this file, "
                "or put the former one back"
            )
        line, offset = before.line, before.offset
        at, gave, first = before, False, before.first or content.first_line or 0
        for block, last in blocks:
            items: list[Item] = []
            start = offset
            for raw in block:
                number, line = line + 1, line + raw.endswith(b"\n")
                offset, checksum = offset + len(raw), zlib.crc32(raw, checksum)
                if raw.strip():
                    at = Progress(0, 0, offset, line, content.head(offset), checksum=checksum, first=first)
                    self._places[info.path, offset] = at
                    items.append(self._item(info.path, offset, number, raw))
            head = content.head(offset)
            at = Progress(info.size, info.mtime_ns or 0, offset, line, head, last, checksum, first=first)
            self._files.put(info.path, at)
            if block:
                self._files.note_block(info.path, start, block)
            if items:
                self._places[info.path, items[-1].next_offset] = self._place_of(items[-1], at)
            yield items
            gave |= bool(items)
            if self._is_stopped(info.path):
                return
        if (
            at.done and at != before and not gave
        ):  # it has another name or time, or blank lines: else it would seem to wait for ever
            self._begun[info.path] = at

    def _opened(self, path: str, content: Content) -> tuple[Iterator[tuple[list[bytes], bool]], int | None]:
        """What follows what was read of a file, and the checksum of that; None if it is another file. It is opened before it is
        compared, since another file may get its name in between."""
        try:
            return content.blocks(self._files[path].offset), self._files.verified(path, content)
        except ShorterError:
            return iter(()), None

    def _place_of(self, last: Item, at: Progress) -> Progress:
        """What is recorded after the last line of a block, which blank lines may follow."""
        return replace(self._places[last.stream, last.next_offset], size=at.size, mtime=at.mtime, done=at.done)

    def _item(self, path: str, next_offset: int, line: int, raw: bytes) -> Item:
        place = f"{path} line {line}"
        try:
            text = raw.removeprefix(codecs.BOM_UTF8) if next_offset == len(raw) else raw
            return self._lines.message(path, next_offset, place, text.decode())
        except (BadRecordError, UnicodeDecodeError) as error:
            return Unreadable(path, next_offset, place, "", str(error), raw.decode("utf-8", "replace"))


def folder_of(path: str, options: Sequence[tuple[str, str]]) -> Location:
    """The folder of the settings."""
    return Location.of(LakeSettings(path=path, storage_options=tuple(options)))
