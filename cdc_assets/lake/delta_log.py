"""Keeps the Delta log of a table small, so that the cost of a commit does not grow with the number of commits.

Opening a table lists its log and reads each commit after the newest checkpoint. Delta's default retention is days, so a
loop that commits twice a second would list hundreds of thousands of names. Here a checkpoint is written every
`CHECKPOINT_EVERY` commits, and after each of them `trim` removes all but the newest commits.

*What other programs remove.* Their checkpoints clean the log up by age, which says nothing of what a capture has read: one
that runs by night reads in the morning's log what was deleted on purpose since (`expected`). So the tables' own property has them keep a
month, and only `trim` keeps the log short.

*What is never removed.* The second newest checkpoint and all commits after it: if the newest checkpoint is lost or
truncated, the table is read from them. And those of the newest `_YOUNG_COMMITS` that are younger than `_GRACE_S`,
because a reader may be opening the table with file names that it listed a moment ago. The remaining log begins with a
checkpoint, if there is one that early, so each remaining version can be opened.

*A damaged checkpoint* is redundant: `repair` removes it, and the hint that names it, if the checkpoint before it and
all later commits exist. Both files are optional, so a crash between the two removals does no harm.

*A truncated newest commit*, as a power cut may leave it, makes the whole table unreadable. `repair` renames it, and when it
is called again the one before, if that is truncated too; the table is then as if that commit had been lost, which `audit`
detects and reports. Commits appear atomically in all stores, so one that is incomplete for `_TORN_S` is not being written
any more. After a crash following the renaming nothing is left to do. Only one process repairs a log at a time: who slept after it saw a truncated commit would rename the
one that was made in its place meanwhile.

*Effect on readers.* A reader that has opened a table is not affected: `upkeep.vacuum` keeps the files of its version,
and a later refresh continues from a checkpoint. Readers that need each commit, such as a stream over the table or a
reader of old versions, must keep up with the newest `lake.log.commits`.

*Crash between any two steps.* Before the checkpoint: the next one does the work. Between two removals, which start with
the oldest file: the log starts earlier than necessary, before the checkpoint that readers start from; the next `trim`
removes the remaining files. Positions, transactions and files are in every checkpoint, so none of them depends on a
removed commit.
"""

import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow.parquet as pq
from pyarrow import fs

from cdc_assets.lake.location import STORE_ERRORS, Location, list_files, trouble

log = logging.getLogger(__name__)

CHECKPOINT_EVERY = 25
"""Commits from one checkpoint to the next; with ten times as many, reading the commits after it would double the cost
of a commit."""
MIN_COMMITS = 4 * CHECKPOINT_EVERY
"""Number of commits that are always kept."""
RETENTION = "delta.deletedFileRetentionDuration"
"""Delta's property that says for how long the log keeps entries of replaced files."""
_GRACE_S = 60.0
_YOUNG_COMMITS = 200
_TORN_S = 10.0
_THREADS = 8
"""Number of parallel removals in a remote store."""
_ENTRY = re.compile(r"(\d{20})\.(json|crc|checkpoint\.parquet|checkpoint\.\d{10}\.\d{10}\.parquet)")
"""File names that are handled here; other files belong to other writers."""


def log_properties(replaced_minutes: int) -> dict[str, str]:
    """Delta's table properties with which other writers write checkpoints as often, and keep all that a capture may read yet.

    Args:
        replaced_minutes: time for which the log keeps entries of replaced files. A checkpoint lists them all, at four
            microseconds each.
    """
    return {
        "delta.checkpointInterval": str(CHECKPOINT_EVERY),
        "delta.enableExpiredLogCleanup": "true",
        "delta.logRetentionDuration": "interval 30 days",
        RETENTION: f"interval {max(replaced_minutes, 1)} minutes",
    }


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file of the log."""

    path: str
    version: int
    written: float
    is_checkpoint: bool


def trim(location: Location, directory: str, commits: int) -> int:
    """Remove log files older than a table's newest commits.

    Args:
        commits: number of commits to keep; at least `MIN_COMMITS`, and those needed if the newest checkpoint is
            damaged.

    Returns:
        Number of removed files; a file that cannot be removed is left for the next call.
    """
    try:
        entries = _entries(location, directory)
        expired = _expired(entries, max(commits, MIN_COMMITS))
        if expired:
            files = location.existing(directory)
            if location.on_disk:
                for entry in expired:
                    files.delete_file(entry.path)
            else:
                with ThreadPoolExecutor(_THREADS) as pool:
                    list(pool.map(lambda entry: files.delete_file(entry.path), expired))
    except STORE_ERRORS as error:
        log.debug("The log of %s could not be shortened; it is retried later: %s", location.uri(directory), error)
        return 0
    return len(expired)


def newest_version(location: Location, directory: str) -> int:
    """Version of a table's newest commit, by a listing; -1 if it has none.

    Raises:
        LakeError: it cannot be listed.
    """
    try:
        return max((entry.version for entry in _entries(location, directory)), default=-1)
    except STORE_ERRORS as error:
        what = f"The log of {location.uri(directory)} cannot be listed"
        raise trouble(what, error, "check the path and its rights") from error


def _entries(location: Location, directory: str) -> list[_Entry]:
    found = []
    for info in list_files(location.existing(directory), "_delta_log"):
        match = _ENTRY.fullmatch(info.base_name)
        if match and info.type == fs.FileType.File:
            whole = match[2] == "checkpoint.parquet" and bool(info.size)
            written = info.mtime.timestamp() if info.mtime else 0.0
            found.append(_Entry(f"_delta_log/{info.base_name}", int(match[1]), written, whole))
    return sorted(found, key=lambda entry: (entry.version, entry.path))


def _expired(entries: Sequence[_Entry], commits: int) -> list[_Entry]:
    """Log files that are not needed, in order; ages come from comparing file times with each other, not with a
    clock."""
    checkpoints = [entry.version for entry in entries if entry.is_checkpoint]
    if len(checkpoints) < 2:
        return []
    now = max(entry.written for entry in entries)
    young = [entry.version for entry in entries if entry.written > now - _GRACE_S]
    newest = entries[-1].version
    first = min(checkpoints[-2], newest - commits + 1, max(min(young, default=newest), newest - _YOUNG_COMMITS + 1))
    first = max((version for version in checkpoints if version <= first), default=0)
    return [entry for entry in entries if entry.version < first]


def repair(location: Location, directory: str) -> bool:
    """Remove from a table's log what makes it unreadable and is not needed: damaged checkpoints, a truncated newest
    commit.

    Returns:
        Whether anything was removed, so that the table may be readable now.
    """
    try:
        with _one_by_one(location, directory):
            entries, files = _entries(location, directory), location.existing(directory)
            damaged = _damaged_checkpoints(entries, files)
            torn = _torn(entries, files)
            for path in damaged:
                files.delete_file(path)
            if torn:
                files.move(torn, f"{torn}.damaged")
    except (*STORE_ERRORS, ValueError) as error:
        log.debug("The log of %s cannot be repaired: %s", location.uri(directory), error)
        return False
    if damaged:
        log.warning(
            "A damaged checkpoint of the log of %s was removed; all its commits exist.", location.uri(directory)
        )
    if torn:
        log.error("The newest commit of %s is truncated; it was renamed to %s.damaged.", location.uri(directory), torn)
    return bool(damaged or torn)


@contextmanager
def _one_by_one(location: Location, directory: str) -> Iterator[None]:
    """A block in which no other process repairs this log.

    Raises:
        BlockingIOError: one does.
    """
    if not location.on_disk:  # no store of objects has commits that are truncated
        yield
        return
    folder = os.open(location.path(f"{directory}/_delta_log"), os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:
            log.debug("%s has no locks: %s", location.uri(directory), error)
        yield
    finally:
        os.close(folder)


def _damaged_checkpoints(entries: Sequence[_Entry], files: fs.FileSystem) -> list[str]:
    """Checkpoints newer than the newest intact one, and the hint that names one of them; none if commits after that one
    are missing."""
    named = [entry for entry in entries if entry.path.endswith(".checkpoint.parquet")]
    found: list[str] = []
    while named and not (named[-1].is_checkpoint and _is_parquet(files, named[-1].path)):
        found.append(named.pop().path)
    begin = named[-1].version if named else -1
    commits = [entry.version for entry in entries if entry.path.endswith(".json") and entry.version > begin]
    if not (named or commits) or commits != list(range(begin + 1, begin + 1 + len(commits))):
        return []
    if files.get_file_info(_HINT).type == fs.FileType.File and _hinted(files) not in {entry.version for entry in named}:
        return [_HINT, *found]
    return found


def _torn(entries: Sequence[_Entry], files: fs.FileSystem) -> str:
    """The newest commit, if it is truncated."""
    commits = [entry for entry in entries if entry.path.endswith(".json")]
    if not commits or abs(time.time() - commits[-1].written) < _TORN_S or _is_commit(files, commits[-1].path):
        return ""
    return commits[-1].path


_HINT = "_delta_log/_last_checkpoint"


def _hinted(files: fs.FileSystem) -> object:
    """The version that the hint names; None if it is damaged, as what damages a checkpoint may damage the hint written after it."""
    with files.open_input_stream(_HINT) as stream:
        try:
            return json.loads(stream.read())["version"]
        except (ValueError, KeyError, TypeError):
            return None


def _is_parquet(files: fs.FileSystem, path: str) -> bool:
    try:
        pq.read_metadata(path, filesystem=files)
    except STORE_ERRORS:
        return False
    return True


def _is_commit(files: fs.FileSystem, path: str) -> bool:
    with files.open_input_stream(path) as stream:
        lines = stream.read().splitlines()
    try:
        return all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return False
