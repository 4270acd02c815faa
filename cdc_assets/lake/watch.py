"""Looks for commits of other programs from time to time, and undoes those that put rows in twice (`foreign`)."""

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from cdc_assets.core.ports import TaskRunner
from cdc_assets.errors import LAKE_ERRORS, EngineError, InvariantError, RetryableError
from cdc_assets.lake.commits import Commit, read_commit
from cdc_assets.lake.files import STATISTICS
from cdc_assets.lake.foreign import OR_EARLIER, ForeignCommit, ForeignScan, scan_foreign
from cdc_assets.lake.positions import keep_once
from cdc_assets.lake.replacing import Fence
from cdc_assets.lake.tables import DeltaTables, arrow_schema
from cdc_assets.lake.undoing import can_be_undone, undo

log = logging.getLogger(__name__)

CHECK_EVERY_S = 20.0
"""Seconds between two looks."""
_THREADS = 8
"""Number of parallel requests to a store."""


class ForeignWatch:
    """Reads the logs of tables behind the versions up to which it has read them.

    Args:
        tables: the lake's Delta tables.
        runner: runs the tasks that read files whose positions overlap.
        fence: raises FencedError if another writer has taken over.
    """

    def __init__(self, tables: DeltaTables, runner: TaskRunner, fence: Fence) -> None:
        self._tables, self._runner, self._fence = tables, runner, fence
        self.checked: dict[str, int] = {}
        """Version up to which each table's log was read."""
        self._last: dict[str, Commit] = {}
        """The newest commit that was read of each log."""
        self.left: list[ForeignCommit] = []
        """What could not be undone by the newest call of `check`, as files are gone and there are no positions."""
        self.vacuumed: set[str] = set()
        """Tables of which the newest call of `check` found that other programs have removed files, which may be named by now."""

    def check(self, directories: Iterable[str]) -> dict[str, list[ForeignCommit]]:
        """What other programs have committed since the last time, by directory; what is there twice is undone.

        A table whose log cannot be read, or that cannot be written now, is checked again the next time. One whose log was gone in
        part is among the results also if its positions say that nobody did anything.

        Raises:
            FencedError: another writer has taken over.
        """
        names = list(directories)
        self.left.clear()

        def read(directory: str) -> ForeignScan | None:
            try:
                return self._scan(directory)
            except LAKE_ERRORS as error:
                log.warning("The log of %s cannot be read; it is tried again: %s", directory, error)
                return None

        with ThreadPoolExecutor(_THREADS) as pool:
            found = {name: seen for name, seen in zip(names, pool.map(read, names), strict=True) if seen is not None}
        self.vacuumed = {name for name, seen in found.items() if seen.is_vacuumed}
        changed: dict[str, list[ForeignCommit]] = {}
        for directory, seen in found.items():
            did = self._undone(directory, seen)
            if did is not None:
                self._note(directory, seen)
                if did or not seen.is_whole:
                    changed[directory] = did
        return changed

    def _scan(self, directory: str) -> ForeignScan:
        """What a log has after the newest commit that was read; with that one, if it was lost, and another program has committed in
        its place.

        Raises:
            LakeError: the log cannot be read.
        """
        checked = self.checked.get(directory, -1)
        seen = scan_foreign(self._tables, directory, first_unread(checked))
        known = self._last.get(directory)
        if known is None or known.version != checked or seen.last is None:
            return seen
        now = read_commit(self._tables.location, directory, checked)
        return seen if now is None or now == known else scan_foreign(self._tables, directory, checked)

    def _note(self, directory: str, seen: ForeignScan) -> None:
        """Remember up to where a log is known now, with the commits by which something was undone."""
        newest = self._newest(directory, seen)
        self.checked[directory] = newest.newest
        if newest.last is not None:
            self._last[directory] = newest.last

    def _newest(self, directory: str, seen: ForeignScan) -> ForeignScan:
        if not seen.commits:
            return seen
        try:
            since = scan_foreign(self._tables, directory, first_unread(seen.newest))
        except LAKE_ERRORS:
            return seen
        return seen if since.commits or not since.is_whole or since.last is None else since

    def _undone(self, directory: str, seen: ForeignScan) -> list[ForeignCommit] | None:
        """What others did, after what put rows in twice was undone, newest first; None if that is to be tried again."""
        doubled = [commit for commit in reversed(seen.commits) if commit.kind == "doubled"]
        left = [commit for commit in doubled if not undo(self._tables, commit, self._fence)]
        for commit in seen.commits:
            log.warning("%s%s.", commit, "; it is undone" if commit in doubled and commit not in left else "")
        known = list(seen.commits)
        if not left and seen.is_whole:
            return known
        try:
            handle = self._tables.open(directory)
            if handle is None or STATISTICS not in arrow_schema(handle).names:
                stuck = [commit for commit in left if not can_be_undone(self._tables, commit)]
                self.left += stuck
                return known if stuck == left else None
            gone = keep_once(self._tables, directory, self._runner, self._fence, [commit.version for commit in left])
        except (*LAKE_ERRORS, InvariantError, RetryableError, EngineError) as error:
            log.warning("Rows of %s may be there twice; it is tried again: %s", directory, error)
            return None
        if gone:
            log.warning("%d rows of %s were there twice; each is there once again.", gone, directory)
        return (
            known if left or not gone else [*known, ForeignCommit(directory, seen.newest, "doubled", gone, OR_EARLIER)]
        )


def first_unread(checked: int) -> int:
    """The first version of a log that was read up to one; -1 if it never was."""
    return checked + 1 if checked >= 0 else -1
