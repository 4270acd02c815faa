"""Carries out a planned snapshot, round by round: one job, and one commit per table.

A round is a step (`round_step`); after its completion the next slices follow.

*A table that fails* takes part in no further round, and nothing of it is committed from the round in which it failed. It fails if
its statement is rejected, it is locked for too long, a value fits no event, or it was altered since its structure was recorded.
That is checked after each round. So it does if the settings, changed since, do not fit it or its row that is held back.
The others continue. READs of it that earlier
rounds committed stay, and their watermark is remembered (`EarlyReads`): rows that are deleted before its next snapshot
would otherwise stay for ever. That one takes up the watermark, so all changes after these READs are streamed; if they
are gone from the server, it records a gap (`run`). The same holds for a snapshot that is given up.
An error of the server or the lake as a whole ends the run.
"""

from collections.abc import Callable, Sequence

from cdc_assets.lake.step import carry_out, nothing
from cdc_assets.ledger.snapshot_state import SnapshotRun, SnapshotSlice
from cdc_assets.ledger.state import CaptureState, Window
from cdc_assets.shared.progress import SliceProgress
from cdc_assets.snapshot.locks import by_barrier
from cdc_assets.snapshot.round_step import Entries, RoundContext, RoundInFlight
from cdc_assets.snapshot.slices import MIN_SLICE

_ROUND_SLICES = 4
"""Slices in a round per parallel task; a crash repeats at most one round."""


class Rounds:
    """Reads the slices of snapshots of one capture."""

    def __init__(self, context: RoundContext) -> None:
        self._context, self._lake, self._ledger = context, context.parts.lake, context.parts.ledger
        self._slices_read: dict[int, tuple[SliceProgress, ...]] = {}

    @property
    def _state(self) -> CaptureState:
        return self._ledger.state

    def carry_out(self, database: str, entries: Entries, check_locks: Callable[[], None]) -> None:
        """Finish the round in flight, then read the other slices.

        Args:
            entries: structures of the snapshot's tables.
            check_locks: called when a round was read, before it is recorded; raises if its locks are lost.

        Raises:
            CdcError: the server or the lake failed as a whole, or the database was restored.
        """
        while True:
            if self._state.in_flight(database) is None:
                if self._state.snapshots[database].done == len(self._state.snapshots[database].slices):
                    return
                self._plan(database)
            self.finish(database, entries, check_locks)

    def finish(self, database: str, entries: Entries, check_locks: Callable[[], None] = nothing) -> None:
        """Finish the round in flight; the server is queried unless its files are recorded.

        Args:
            entries: see `carry_out`.
            check_locks: the same.

        Raises:
            CdcError: see `carry_out`.
        """
        window, run = self._state.in_flight(database), self._state.snapshots[database]
        if window is not None:
            current = RoundInFlight(self._context, window, run, entries, check_locks, self._slices_read)
            carry_out(current.step(), self._lake.tables.require_files)

    def _plan(self, database: str) -> None:
        run = self._state.snapshots[database]
        slices = self._next_slices(run, self._context.readers.count * _ROUND_SLICES)
        low = run.of(slices[0].table).low
        numbers = tuple(entry.number for entry in slices)
        window = Window(self._state.next_window, "snapshot", database, low, low, slices=numbers)
        self._ledger.manifest.plan(self._ledger.clock.now(), window)

    def _next_slices(self, run: SnapshotRun, size: int) -> Sequence[SnapshotSlice]:
        """Slices of the next round: `size` full ones, or more small ones with about as many rows, or all if readers must meet."""
        if by_barrier(self._context.parts.config.snapshot):
            size = len(run.slices)
        budget, rows = size * MIN_SLICE, 0
        failed = dict(run.failed)
        chosen: list[SnapshotSlice] = []
        for entry in run.slices[run.done :]:
            if entry.table in failed:
                continue
            if len(chosen) >= size and rows + entry.rows > budget:
                break
            rows += entry.rows
            chosen.append(entry)
        return chosen
