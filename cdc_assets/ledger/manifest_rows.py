"""Rows of the window manifest: what they show of windows, and what each one carries besides.

*Marks.* Each row also records the content of the topic tables that were committed to since the previous row (`audit`).

*Notifications* about a change are recorded in its row and sent after it, before another row is written. So those of the
newest row may not have been sent: `claim` records and sends them again. They keep their numbers (`notifications`).

*Jobs.* A row says where the run's jobs have run until now, by kind, if there were any since the row before; for people, nothing
relies on it. A crash forgets those that no row was written behind.

*Crash between any two steps.* Before the commit of a row nothing of it has happened, and nothing was reported. After it the marks
count, and its notifications are sent by the next `claim` if this writer does not live to do it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from cdc_assets.core.lsn import Lsn
from cdc_assets.core.notification import Notification, Outbox
from cdc_assets.core.processes import own_process
from cdc_assets.core.ran_on import JobAccount, RanOn
from cdc_assets.core.steps import step
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.codec import encode
from cdc_assets.ledger.fenced_log import Row
from cdc_assets.ledger.fold import FOLDING
from cdc_assets.ledger.folded_log import FoldedLog
from cdc_assets.ledger.notices import encode_notices
from cdc_assets.ledger.state import CaptureState, Window
from cdc_assets.ledger.transitions import log_changes

_CHECKPOINT_EVERY = 100
"""Number of commits after which the rows are folded; limits the time to read the manifest."""
_KEEP_ROWS = 1000
"""Number of folded rows that are kept for people."""


class ManifestRows(FoldedLog[CaptureState]):
    """Reads and writes rows of the manifest; `Manifest` says which.

    Args:
        tables: the lake's Delta tables.
        directory: of the manifest.
        outbox: sender of notifications; None for readers, which record nothing.
        jobs: jobs of the run; none if None.
    """

    def __init__(self, tables: TopicTables, directory: str, outbox: Outbox | None, jobs: JobAccount | None) -> None:
        super().__init__(tables, directory, FOLDING, every=_CHECKPOINT_EVERY, keep=_KEEP_ROWS)
        self._tables, self._outbox, self._jobs = tables, outbox, jobs or JobAccount()
        self._recorded_jobs: Mapping[str, RanOn] = {}
        self.claimed: int | None = None
        """Number of the row by which this writer has claimed it; the newer writer has the higher one."""

    def claim(self, now: datetime) -> CaptureState:
        """Become the single writer, and send notifications that the previous writer may not have sent.

        Raises:
            FencedError: another writer claimed it at the same moment.
            LakeError: it cannot be read or written.
        """
        self._take_over()
        self._tables.guard = self._log.require_place
        self.claimed = self._log.next_sequence
        self._record(now, "claim", {"writer": own_process()}, notifications=self.state.notifications)
        return self.state

    def end_doubt(self, now: datetime) -> None:
        """Have a state that no earlier attempt to write a row can change any more: a row that may still be written finds its
        number taken.

        Raises:
            LakeAwayError, LakeConflictError: not yet; it may be tried again.
            FencedError: another writer has taken over.
        """
        self.resolve()
        if self._log.in_doubt:
            self._record(now, "claim", {"writer": own_process()}, notifications=self._state.notifications)

    def _note_late(self, row: Row) -> None:
        before = self._state
        super()._note_late(row)
        if row["event"] != "state":
            log_changes(before, self._state)
            self._send()

    def _send(self) -> None:
        if self._outbox:
            for notification in self._state.notifications:
                self._outbox.send(notification)

    def _record(
        self,
        now: datetime,
        event: str,
        detail: Mapping[str, Any],
        reached: str = "",
        windows: Sequence[Window] = (),
        database: str | None = None,
        until: Lsn | None = None,
        rows: int | None = None,
        notifications: Iterable[Notification] = (),
    ) -> None:
        """Write a row, report step `reached`, and send the row's notifications."""
        if self._outbox and (stamped := [self._outbox.stamped(notification) for notification in notifications]):
            detail = {**detail, **encode_notices(stamped)}
        if committed := self._tables.fresh_marks():
            detail = {**detail, "marks": encode(committed) | detail.get("marks", {})}
        if (jobs := self._jobs.by_kind()) != self._recorded_jobs:
            detail = {**detail, "ran_on": encode(jobs)}
        before = self._state
        columns = _columns(windows) if windows else {"database": database, "until": until and str(until)}
        self._append(now, event, detail, **columns, rows=rows)
        self._tables.forget_marks(committed)
        self._recorded_jobs = jobs
        if event != "adopting":  # the next row says where they continue; if it is missing, every later run says so
            log_changes(before, self._state)
        if reached:
            step(reached)
        self._send()
        if event in ("complete", "snapshot-complete", "advance", "claim"):
            self._fold_if_due(now)


def _columns(windows: Sequence[Window]) -> dict[str, Any]:
    """What a row about windows shows of them beside its detail; bounds of several are only in the detail."""
    found: dict[str, Any] = {
        "number": windows[0].window_id,
        "kind": windows[0].kind,
        "database": ", ".join(window.database for window in windows),
    }
    if len(windows) > 1:
        return found
    [window] = windows
    return found | {"after": str(window.after), "until": str(window.until)}
