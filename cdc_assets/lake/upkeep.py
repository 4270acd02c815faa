"""Compaction and vacuum of topic tables.

A loop writes one small file per table and slice in each window; many small files make every reader slow (500 files: 25
times, spec spark §5). Compaction rewrites them and marks the commit as no change of data, so that a reader of the log
sees nothing new. Files are joined to files of 1/512 of the target size, eight of these to 1/64, and so on. So a row is
rewritten a few times in all; if all small files became one each time, a growing file would be rewritten again and again
until it has the target size. It runs at the end of a loop, in the process of the single writer; `DeltaTables.commit` repeats a
commit that conflicts with it.

A table property gives compacted files the same statistics as files of windows; tables of earlier releases are upgraded
once.

Vacuum removes files that no version within the retention names: files replaced by compaction or by folding the
manifest, and files of attempts that never committed. It never runs while recorded files wait for their commit, which
may be older than the retention when a run begins long after the last one ended. It lists all files, and a loop replaces more of
them the faster it is, so a loop vacuums after each tenth of the retention: that is a constant number of listed files for
each window, and a tenth more files than necessary. Files that another run is writing now
are younger than the retention.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from cdc_assets.config.settings import LakeSettings
from cdc_assets.errors import LakeError, LakeFullError
from cdc_assets.lake.location import STORE_ERRORS, trouble
from cdc_assets.lake.tables import HOOKS, DeltaTables

_SMALL = 0.75
"""Fraction of the target size below which a file counts as small."""
_STEP = 8
"""Ratio of the sizes to which files are joined, one after another, and number of files of one size that are joined."""
_LEVELS = 4
"""Number of these sizes; the last is the target size."""
_VACUUM_SHARE = 0.1
"""Time between two vacuums of a loop, as a share of the retention."""


_RECORD_HOURS = 1
"""Age in hours at which files of a record are removed after a fold has replaced them."""


class Upkeep:
    """Keeps topic tables fast to read.

    Args:
        tables: the lake's Delta tables.
        settings: thresholds.
    """

    def __init__(self, tables: DeltaTables, settings: LakeSettings) -> None:
        self._tables, self._settings = tables, settings

    def tidy(self, directories: Iterable[str]) -> list[str]:
        """Compact and vacuum the tables that have too many small files; return their names.

        After a failure it is retried at the next call: the data are complete without it.
        """
        directories = list(directories)
        for directory in directories:
            with suppress(LakeError, LakeFullError):
                self._tables.modernize(directory)
        done = [directory for directory in directories if self._due(directory) and self._try_compact(directory)]
        for directory in done:
            self.try_vacuum(directory)
        return done

    def try_vacuum(self, directory: str) -> None:
        """Vacuum, unless that was done a short time ago; after a failure it is retried at the next call."""
        last, now = self._tables.vacuumed.get(directory), time.monotonic()
        if last is not None and now - last < self._settings.retention_hours * 3600 * _VACUUM_SHARE:
            return
        with suppress(LakeError, LakeFullError):
            self.vacuum(directory)
            self._tables.vacuumed[directory] = now

    def try_vacuum_record(self, directory: str) -> None:
        """As `try_vacuum`, for a record whose readers have read it whole at once: what was replaced stays a short time."""
        short = replace(self._settings, retention_hours=min(self._settings.retention_hours, _RECORD_HOURS))
        Upkeep(self._tables, short).try_vacuum(directory)

    def _due(self, directory: str) -> bool:
        handle = self._tables.open(directory)
        if handle is None or not self._settings.compact_after_files:
            return False
        small = sum(size < self._settings.target_file_bytes * _SMALL for size in _sizes(handle))
        return small >= self._settings.compact_after_files

    def _try_compact(self, directory: str) -> bool:
        try:
            self.compact(directory)
        except (LakeError, LakeFullError, CommitFailedError):
            return False
        return True

    def compact(self, directory: str) -> None:
        """Join small files.

        Raises:
            LakeError: the store refuses.
        """
        handle = self._tables.open(directory)
        if handle is None:
            return
        try:
            size = size_to_join(_sizes(handle), self._settings.target_file_bytes, self._settings.compact_after_files)
            handle.optimize.compact(target_size=size, post_commithook_properties=HOOKS)
        except STORE_ERRORS as error:
            raise trouble(f"{directory} cannot be compacted", error, "check its rights") from error
        finally:
            self._tables.forget(directory)

    def vacuum(self, directory: str) -> list[str]:
        """Remove files that no version within the retention names; return their paths.

        Raises:
            LakeError: the store refuses.
        """
        handle = self._tables.open(directory)
        if handle is None:
            return []
        try:
            return list(
                handle.vacuum(
                    retention_hours=self._settings.retention_hours,
                    dry_run=False,
                    enforce_retention_duration=False,
                    full=True,
                    post_commithook_properties=HOOKS,
                )
            )
        except STORE_ERRORS as error:
            raise trouble(f"{directory} cannot be vacuumed", error, "check the rights to delete") from error
        finally:
            self._tables.forget(directory)


def _sizes(handle: DeltaTable) -> list[int]:
    sizes: list[int] = pa.table(handle.get_add_actions())["size_bytes"].to_pylist()
    return sizes


def size_to_join(sizes: Sequence[int], target: int, after_files: int) -> int:
    """Size up to which small files are joined now: the greatest for which there are enough files of the size before it.

    Args:
        sizes: of all files of a table.
        target: the greatest size.
        after_files: number of small files at which they are joined.
    """
    enough = max(2, min(_STEP, after_files // _LEVELS))
    levels = [max(int(target / _STEP**level), 1) for level in range(_LEVELS)]
    for level, before in pairwise([*levels, 0]):
        if sum(before * _SMALL <= size < level * _SMALL for size in sizes) >= enough:
            return level
    return target
