"""The files of a reader's folder, and which of them hold what was not read.

Paths with a part that begins with `_` or `.` are left out, under which writers keep what is not ready.

*Since when a file waits.* Its time is that of the newest line. A file that was not read to its end has waited since the time that it had
then. One that was, and has grown since, has waited for no longer than its time when that was first found, with the same place
recorded. A process remembers that time, so a file that is appended to continuously gets late as well; a process that checks
once has the time of the newest line.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from pyarrow import fs

from cdc_assets.config.java_patterns import matches_name
from cdc_assets.connectors.engine.feed import Offsets
from cdc_assets.connectors.engine.unread import Unread
from cdc_assets.connectors.reader.known_files import KnownFiles, Progress
from cdc_assets.core.interruption import in_thread
from cdc_assets.errors import CdcError, ConnectionLostError, LakeAwayError, LakeError
from cdc_assets.lake.location import STORE_ERRORS, Location, plain, trouble

DEFAULT_PATTERN: Final = r".*\.(json|jsonl|ndjson)(\.gz)?"
_NOT_READY: Final = re.compile(r"(?:.*/)?[_.][^/]*(?:/.*)?")

_MAX_NAMED: Final = 5

_WAITS: Final[dict[str, dict[str, tuple[int, float]]]] = {}
"""By capture and path: the place up to which a file was read when it was found to wait, and its time then."""


def unread_files(location: Location, pattern: str, offsets: Offsets, capture: str) -> Unread:
    """What files hold after the places up to which they were read: of those that have changed since, or were not read to their ends.

    Args:
        capture: its name.

    Raises:
        LakeError: the folder cannot be listed, or is empty though files of it were read: it may not be mounted.
    """
    known = KnownFiles({partition["file"]: offset for partition, offset in offsets if "file" in partition})
    infos = list_files(location, pattern or DEFAULT_PATTERN, known)
    waiting = [info for info in infos if info.size and not is_done(known, info)]
    if not infos and (read := sum(not progress.gone for _, progress in known.items())):
        raise LakeError(
            f"{location.root} holds no file that matches files.pattern, and {read:,} were read. "
            "Next: see whether its file system is mounted, and files.pattern; a run notes that files are gone"
        )
    before = _WAITS.get(capture, {})
    waits = _WAITS[capture] = {info.path: _wait(known[info.path], info, before.get(info.path)) for info in waiting}
    missing = _missing(known, infos)
    if not waits:
        return Unread(missing=missing, seen=len(infos))
    since = min(at for _, at in waits.values())
    return Unread(datetime.fromtimestamp(since, UTC), f"{len(waiting):,} files", missing, len(infos))


def _missing(known: KnownFiles, infos: Sequence[fs.FileInfo]) -> str:
    """Which files are gone, or were emptied, before they were read to the end; empty if none is, or if it may be one that was not read yet,
    renamed. An empty one is none of these: whoever renames a log often leaves an empty one under its name."""
    filled = {info.path for info in infos if info.size}
    gone = [name for name, read in known.items() if read.offset and not (read.done or read.gone) and name not in filled]
    if not gone or any(path not in known for path in filled):
        return ""
    return (
        f"{', '.join(gone[:_MAX_NAMED])} is gone, empty, or outside of files.pattern, before it was read to its end. Next: put it back; or remove "
        "what is empty, and set errors.tolerance=all: a run then notes that it is gone"
    )


def _wait(read: Progress, info: fs.FileInfo, before: tuple[int, float] | None) -> tuple[int, float]:
    """Up to which place a file was read, and since when it waits."""
    since = (info.mtime_ns or 0) / 1e9
    if read.size and not read.done:
        since = min(since, read.mtime / 1e9)
    if before is not None and before[0] == read.offset:
        since = min(since, before[1])
    return read.offset, since


def list_files(location: Location, pattern: str, known: KnownFiles) -> list[fs.FileInfo]:
    """The files that there are, in the order of their names.

    Raises:
        LakeError: the folder cannot be listed.
        ConnectionLostError: its store is away.
    """
    try:
        # in a thread: nothing ends the listing of a large folder, and a run that is to end does not wait for it
        infos = in_thread(lambda: location.existing("").get_file_info(fs.FileSelector("", recursive=True)))
    except (*STORE_ERRORS, ValueError) as error:
        raise unlisted(location.root, error) from error
    found = [info for info in infos if info.type == fs.FileType.File]
    ready = [info for info in found if info.path in known or not _NOT_READY.fullmatch(info.path)]
    files = [info for info in ready if matches_name("files.pattern", pattern, info.path)]
    return sorted(files, key=lambda info: str(info.path))


def is_done(known: KnownFiles, info: fs.FileInfo) -> bool:
    """Whether a file was read to its end, and has not changed since."""
    before = known[info.path]
    return before.done and (info.size, info.mtime_ns or 0) == (before.size, before.mtime)


def unlisted(what: str, error: Exception) -> CdcError:
    """What to raise if a folder or a file cannot be read: of a store that is away, an error after which another run may succeed."""
    found = trouble(f"{what} cannot be read", error, "check files.path and files.storage.option.<option>")
    if isinstance(found, LakeAwayError):
        return ConnectionLostError(
            f"{what} cannot be read: {plain(error)}. Nothing is lost: the next run continues there. Next: see whether the store can be "
            "reached (files.path, files.storage.option.<option>)."
        )
    return found if isinstance(found, LakeError) else LakeError(str(found))
