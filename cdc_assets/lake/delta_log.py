"""Keeps the Delta log of a table small, so that a commit costs the same however many there were.

Each look at a table lists its log, and reads each commit behind the newest checkpoint. With Delta's own retention, which is a
matter of days, a loop that commits twice a second lists hundreds of thousands of names. Here a checkpoint is written every
`CHECKPOINT_EVERY` commits, and behind each of them `trim` removes what is older than the newest so many commits.

*What is never removed.* The last checkpoint but one and all commits from there on: if the newest checkpoint is lost or cut
off, they are the table. And of the newest `_YOUNG_COMMITS` those younger than `_GRACE_S`, for somebody may be opening the table
at this moment with the names of files that he listed a moment ago. What stays begins with a checkpoint, if there is one that
early, so each version that is left can be opened.

*A damaged checkpoint* can be done without, since all that it says is still there: `repair` removes it, and the hint that
names it, if the checkpoint before it and all commits from there on are left. Both may be missing at any time, so a crash
between them does no harm.

*A newest commit that was cut off*, as a power cut leaves it, makes a table unreadable as a whole. `repair` renames it, and the
table is then as if that commit had been lost, which `audit` finds and tells. Commits appear in one piece in all stores, so one
that lies there in part for `_TORN_S` is nobody's who is still writing it. A crash behind the renaming leaves nothing to do.

*Who could miss what is removed.* Nobody who has opened a table: he holds its files, which `upkeep.vacuum` leaves alone, and
if he looks for news later, he goes on from a checkpoint. Readers that need each commit, such as a stream over the table or a
reader of old versions, must keep up with the newest `lake.log.commits`.

*Crash between any two steps.* Before the checkpoint: the next one does the work. Between two removals, which go from the
oldest on: the log begins at a later commit than it could, below the checkpoint that readers begin with; the next `trim`
removes the rest. Positions, transactions and files are in every checkpoint, so none of them depends on a commit that is gone.
"""

import json
import logging
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow.parquet as pq
from pyarrow import fs

from cdc_assets.lake.location import STORE_ERRORS, Location

log = logging.getLogger(__name__)

CHECKPOINT_EVERY = 25
"""Commits from one checkpoint to the next: at ten times as many, reading what is behind it costs twice the commit."""
LEAST_COMMITS = 4 * CHECKPOINT_EVERY
"""That are kept in any case."""
_GRACE_S = 60.0
_YOUNG_COMMITS = 200
_TORN_S = 10.0
_THREADS = 8
"""A store on the net removes several files at once."""
_ENTRY = re.compile(r"(\d{20})\.(json|crc|checkpoint\.parquet|checkpoint\.\d{10}\.\d{10}\.parquet)")
"""What is known here; other files of other writers are left to them."""


def log_properties(replaced_minutes: int) -> dict[str, str]:
    """Delta's table properties by which other writers keep the log as it is kept here.

    Args:
        replaced_minutes: how long the log remembers files that were replaced. A checkpoint lists them all, and takes four
            microseconds for each.
    """
    return {
        "delta.checkpointInterval": str(CHECKPOINT_EVERY),
        "delta.enableExpiredLogCleanup": "true",
        "delta.logRetentionDuration": "interval 1 hours",
        "delta.deletedFileRetentionDuration": f"interval {max(replaced_minutes, 1)} minutes",
    }


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file of the log."""

    path: str
    version: int
    written: float
    is_checkpoint: bool


def trim(location: Location, directory: str, commits: int) -> int:
    """Remove what is older than a table's newest commits.

    Args:
        commits: how many stay; at least `LEAST_COMMITS`, and those that a damaged checkpoint would need.

    Returns:
        How many files were removed; whatever cannot be removed is left to the next time.
    """
    try:
        entries = _entries(location, directory)
        expired = _expired(entries, max(commits, LEAST_COMMITS))
        if expired:
            files = location.existing(directory)
            if location.on_disk:
                for entry in expired:
                    files.delete_file(entry.path)
            else:
                with ThreadPoolExecutor(_THREADS) as pool:
                    list(pool.map(lambda entry: files.delete_file(entry.path), expired))
    except STORE_ERRORS as error:
        log.debug("The log of %s is shortened later: %s", location.uri(directory), error)
        return 0
    return len(expired)


def _entries(location: Location, directory: str) -> list[_Entry]:
    selector = fs.FileSelector("_delta_log", allow_not_found=True)
    found = []
    for info in location.existing(directory).get_file_info(selector):
        match = _ENTRY.fullmatch(info.base_name)
        if match and info.type == fs.FileType.File:
            whole = match[2] == "checkpoint.parquet" and bool(info.size)
            written = info.mtime.timestamp() if info.mtime else 0.0
            found.append(_Entry(f"_delta_log/{info.base_name}", int(match[1]), written, whole))
    return sorted(found, key=lambda entry: (entry.version, entry.path))


def _expired(entries: Sequence[_Entry], commits: int) -> list[_Entry]:
    """Those of a log, in order, that nobody needs; times are compared with one another, not with a clock."""
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
    """Take away what a table's log can do without and cannot be read with: damaged checkpoints, a newest commit cut off.

    Returns:
        Whether anything was taken away, so that the table may be readable now.
    """
    try:
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
        log.warning("A checkpoint of the log of %s was damaged; its commits are all there.", location.uri(directory))
    if torn:
        log.error("The newest commit of %s is cut off; it is called %s.damaged now.", location.uri(directory), torn)
    return bool(damaged or torn)


def _damaged_checkpoints(entries: Sequence[_Entry], files: fs.FileSystem) -> list[str]:
    """Those newer than the newest whole one, and the hint that names one of them; none if commits are missing behind that."""
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
    """The newest commit, if it is not whole."""
    commits = [entry for entry in entries if entry.path.endswith(".json")]
    if not commits or abs(time.time() - commits[-1].written) < _TORN_S or _is_commit(files, commits[-1].path):
        return ""
    return commits[-1].path


_HINT = "_delta_log/_last_checkpoint"


def _hinted(files: fs.FileSystem) -> object:
    with files.open_input_stream(_HINT) as stream:
        return json.loads(stream.read())["version"]


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
