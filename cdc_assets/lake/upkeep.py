"""Compaction and vacuum of topic tables.

A loop writes one small file per table and slice in each window; many small files make every reader slow (500 files: 25
times, spec spark §5). Compaction rewrites them and marks the commit as no change of data, so that a reader of the log
sees nothing new. It runs at the end of a loop, in the process of the single writer; `TopicTables.commit` repeats a
commit that conflicts with it.

A table property gives compacted files the same statistics as files of windows; tables of earlier releases are upgraded
once.

Vacuum removes files that no version within the retention names: files replaced by compaction or by folding the
manifest, and files of attempts that never committed. It never runs while recorded files wait for their commit, which
may be older than the retention when a run begins long after the last one ended. Files that another run is writing now
are younger than the retention.
"""

from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from cdc_assets.config.settings import LakeSettings
from cdc_assets.errors import LakeError, LakeFullError
from cdc_assets.lake.location import STORE_ERRORS, trouble
from cdc_assets.lake.topics import HOOKS, TopicTables

_SMALL = 0.75
"""Fraction of the target size below which a file counts as small."""


class Upkeep:
    """Keeps topic tables fast to read.

    Args:
        tables: the lake's Delta tables.
        settings: thresholds.
    """

    def __init__(self, tables: TopicTables, settings: LakeSettings) -> None:
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
        """Vacuum; after a failure it is retried at the next call."""
        with suppress(LakeError, LakeFullError):
            self.vacuum(directory)

    def _due(self, directory: str) -> bool:
        handle = self._tables.open(directory)
        if handle is None or not self._settings.compact_after_files:
            return False
        sizes = pa.table(handle.get_add_actions())["size_bytes"].to_pylist()
        small = sum(size < self._settings.target_file_bytes * _SMALL for size in sizes)
        return bool(small >= self._settings.compact_after_files)

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
            handle.optimize.compact(target_size=self._settings.target_file_bytes, post_commithook_properties=HOOKS)
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
