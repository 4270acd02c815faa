"""Keeps tables fast to read: joins small files, and vacuums what nobody names any more.

It runs at the end of a loop, in the process of the single writer. Joining is a commit that says that it changes no row
(`joining`), so a reader of the log sees nothing new.

A table gets what it lacks by the way (`adapt`): the retention of replaced files, if the property of the capture was changed, and
the features that a crash after a commit of new columns has left out.

Vacuum removes files that no version within the retention names: files replaced by compaction or by folding the
manifest, and files of attempts that never committed. It never runs while recorded files wait for their commit, which
may be older than the retention when a run begins long after the last one ended. It lists all files, and a loop replaces more of
them the faster it is, so a loop vacuums after each tenth of the retention: that is a constant number of listed files for
each window, and a tenth more files than necessary.

*Why no file is removed that is needed.* A file is removed only if the version that was read does not name it. It must also have
been written before the newest commit of that version, and longer than the retention before the version was read. So what another run is writing stays, and so does
what was written while the vacuum slept, however long that was. And none outside of the table's folder, to which a link leads.
"""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pyarrow import fs

from cdc_assets.config.settings import LakeSettings
from cdc_assets.core.ports import TaskRunner
from cdc_assets.errors import LAKE_ERRORS
from cdc_assets.lake.commits import commit_path
from cdc_assets.lake.delta_log import RETENTION
from cdc_assets.lake.joining import Join, SmallFiles, join_topic_files
from cdc_assets.lake.location import STORE_ERRORS, trouble
from cdc_assets.lake.replacing import Fence
from cdc_assets.lake.tables import DeltaTables, allow_plain_timestamps, arrow_schema, missing_features, unreadable

_THREADS = 16
"""Number of parallel requests to a store."""
_VACUUM_SHARE = 0.1
"""Time between two vacuums of a loop, as a share of the retention."""


_RECORD_HOURS = 1
"""Age in hours at which files of a record are removed after a fold has replaced them."""


class Upkeep:
    """Removes from disk what no version names.

    Args:
        tables: the lake's Delta tables.
        settings: how long replaced files stay.
    """

    def __init__(self, tables: DeltaTables, settings: LakeSettings) -> None:
        self._tables, self._settings = tables, settings

    def try_vacuum(self, directory: str) -> None:
        """Vacuum, unless that was done a short time ago; after a failure it is retried at the next call."""
        last, now = self._tables.vacuumed.get(directory), time.monotonic()
        if last is not None and now - last < self._settings.retention_hours * 3600 * _VACUUM_SHARE:
            return
        with suppress(*LAKE_ERRORS):
            self.vacuum(directory)
            self._tables.vacuumed[directory] = now

    def try_vacuum_record(self, directory: str) -> None:
        """As `try_vacuum`, for a record whose readers have read it whole at once: what was replaced stays a short time."""
        short = replace(self._settings, retention_hours=min(self._settings.retention_hours, _RECORD_HOURS))
        Upkeep(self._tables, short).try_vacuum(directory)

    def vacuum(self, directory: str) -> list[str]:
        """Remove files that no version within the retention names; return their paths.

        Raises:
            LakeError: the store refuses.
        """
        began = time.time()
        handle = self._tables.open(directory)
        if handle is None:
            return []
        hours = self._settings.retention_hours
        try:
            unnamed = handle.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
            return self._removed(directory, handle.version(), unnamed, began - 3600 * hours)
        except STORE_ERRORS as error:
            raise trouble(f"{directory} cannot be vacuumed", error, "check the rights to delete") from error
        finally:
            self._tables.forget(directory)

    def _removed(self, directory: str, version: int, unnamed: Sequence[str], before: float) -> list[str]:
        """Remove files that a version does not name, of those that were written before a time and before its commit."""
        files = self._tables.location.existing(directory)
        newest = files.get_file_info(commit_path(version)).mtime
        if not unnamed or newest is None:
            return []
        before = min(before, newest.timestamp())
        listed = files.get_file_info(fs.FileSelector("", recursive=any("/" in path for path in unnamed)))
        written = {info.path: info.mtime.timestamp() for info in listed if info.mtime is not None}
        old = [path for path in unnamed if written.get(path, before) < before and self._is_within(directory, path)]
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(files.delete_file, old))
        return old

    def _is_within(self, directory: str, path: str) -> bool:
        """Whether a file lies in the table's folder also when links are followed, as the listing does: whoever may write
        into the lake must not have files removed that he may not remove himself."""
        location = self._tables.location
        if "/" not in path or not location.on_disk:
            return True
        root = Path(location.path(directory)).resolve()
        return (root / path).parent.resolve().is_relative_to(root)


def adapt(tables: DeltaTables, directory: str) -> None:
    """Give a table the retention that the settings say now, and the features that its columns need.

    Raises:
        LakeConflictError: another writer was first.
        LakeError: the store refuses.
    """
    handle = tables.open(directory)
    if handle is None:
        return
    schema = arrow_schema(handle)
    wanted = tables.properties(schema)[RETENTION]
    is_changed = handle.metadata().configuration.get(RETENTION) != wanted
    if not is_changed and not missing_features(handle, schema):
        return
    try:
        allow_plain_timestamps(handle, schema)
        if is_changed:
            handle.alter.set_table_properties({RETENTION: wanted})
    except STORE_ERRORS as error:
        raise unreadable(tables.location.uri(directory), error) from error
    finally:
        tables.forget(directory)


def tidy(
    tables: DeltaTables,
    settings: LakeSettings,
    runner: TaskRunner,
    fence: Fence,
    directories: Iterable[str],
    join: Join = join_topic_files,
) -> list[str]:
    """Join small files of the tables that have too many, and vacuum these; return their names.

    After a failure it is retried at the next call: the data are complete without it.

    Args:
        runner: runs `join`, a task for files that become one.
        fence: raises FencedError if another writer has taken over.

    Raises:
        FencedError: another writer has taken over.
    """
    directories = list(directories)
    for directory in directories:
        with suppress(*LAKE_ERRORS):
            adapt(tables, directory)
    done = SmallFiles(tables, settings, runner, fence, join).join(directories)
    for directory in done:
        Upkeep(tables, settings).try_vacuum(directory)
    return done
