"""The window manifest: planned windows, complete windows, and the state of each table.

An append-only Delta table `<prefix>.__windows`. Its rows, folded in order, give the `CaptureState`; each change of
state is one row, committed before anything acts on it. Only the manifest maps a window number to an LSN interval, and
only the topic tables' application transactions say which window each table has reached.

*Where a position is recorded, and why.* A topic table's newest application transaction (capture, window) says up to which window
it is committed. The manifest says which LSNs that window covers. Both survive log clean-up:
application transactions are carried into every Delta checkpoint, and manifest rows are data. Commit metadata (`from_lsn`,
`to_lsn`) is written for people and tools, but nothing relies on it. `history()` drops commits older than the log's retention, and
an idle table has no commit. A `complete` row states "every healthy table of
the database is complete to the end of its window", so reading this small table replaces opening all topic tables. Only
the windows in flight need the tables themselves.

*Several databases.* Windows in flight are planned in one row and share their number, each with bounds of its own. A
table that all databases share (transactions, schema history) gets the rows of all of them in one commit under that
number. So no window may be repeated under a number that a shared table reached without it. Therefore a window that
cannot be read is abandoned, in a row of its own, before anything of the others is committed (`streaming.windows`).

*Fencing.* A writer that was believed dead and resumes cannot write another row (`fenced_log`). Until it tries, it may
commit files of what was planned, with the same bounds, places and application transactions. That is harmless while its
successor commits the same. Where the successor does not, it takes the number first, by a commit without files
(`TopicTables.leave_out`): in tables that a repeated window leaves behind, or of a database that is given up, and for recorded
files of a round that is dropped. Only then is the manifest told that they are not committed under that number.

*Crash between any two steps.* Before `planned`: nothing happened. After it: the windows are repeated with their bounds,
except for abandoned ones. After some topic tables: those have reached the number and are skipped. After `complete`: the
next windows are planned. Rows are replaced by their fold in one atomic commit (`folded_log`). What each row carries besides, marks,
notifications and jobs: `manifest_rows`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.notification import Notification, Outbox
from cdc_assets.core.ran_on import JobAccount
from cdc_assets.errors import InvariantError
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.retained import Retained
from cdc_assets.lake.system_topics import manifest_directory
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.codec import encode
from cdc_assets.ledger.fold import encode_early
from cdc_assets.ledger.gaps import EarlyReads, Interval
from cdc_assets.ledger.manifest_rows import ManifestRows
from cdc_assets.ledger.signal_state import SignalState
from cdc_assets.ledger.snapshot_state import RoundFiles, SnapshotRun
from cdc_assets.ledger.state import CaptureState, LogHistory, Unpublished, Window
from cdc_assets.ledger.table_state import TableState


class Manifest(ManifestRows):
    """Reads and writes `<prefix>.__windows`.

    Args:
        tables: the lake's Delta tables.
        prefix: topic prefix.
        outbox: sender of notifications; None for readers, which record nothing.
        jobs: jobs of the run; none if None.
    """

    def __init__(
        self, tables: TopicTables, prefix: str, outbox: Outbox | None = None, jobs: JobAccount | None = None
    ) -> None:
        super().__init__(tables, manifest_directory(prefix), outbox, jobs)

    def plan(self, now: datetime, *windows: Window) -> None:
        """Fix the bounds of windows that are carried out together.

        Args:
            now: aware, UTC: when it was planned.
            windows: windows of the log, each of another database, or one round. `window_id` of all must be the state's
                `next_window`.

        Raises:
            FencedError: another writer has taken over.
        """
        kinds = sorted(window.kind for window in windows)
        distinct = len({window.database for window in windows}) == len(kinds) and kinds in (
            ["snapshot"],
            ["stream"] * len(kinds),
        )
        numbers = {window.window_id for window in windows}
        if self.state.pending or not distinct or numbers != {self.state.next_window}:
            raise InvariantError(
                f"Windows {sorted(numbers)} of {', '.join(window.database for window in windows)} cannot be planned: the "
                f"manifest expects {self.state.next_window} once for each database, and has "
                f"{'some' if self.state.pending else 'none'} in flight. Next: report this."
            )
        reached = "window-planned" if kinds[0] == "stream" else "round-planned"
        self._record(now, "planned", {"windows": encode(windows)}, reached, windows=windows)

    def record_destinations(self, now: datetime, windows: Sequence[Window]) -> None:
        """Record the pending windows again, with the directories that their events go to, or with operations that are left out of
        them, before any event is written.

        Raises:
            FencedError: another writer has taken over.
        """
        self._record(now, "planned", {"windows": encode(windows)}, windows=windows)

    def complete(
        self,
        now: datetime,
        changed: Iterable[TableState],
        behind: Iterable[TableId],
        rows: Mapping[str, Mapping[str, int]],
        notifications: Iterable[Notification] = (),
        database: str | None = None,
        unpublished: Mapping[str, Unpublished] | None = None,
        *,
        published: bool = True,
    ) -> CaptureState:
        """Record that pending windows are committed, except for tables that stay behind.

        Args:
            now: time of completion, with time zone UTC.
            changed: new states of tables.
            behind: tables that keep their position, because nothing of them was committed.
            rows: number of events by table and operation, for people.
            notifications: notifications about the windows.
            database: the only database whose window is completed; None completes all pending windows.
            unpublished: transactions that are still to be published, by database.
            published: whether the transactions of the windows are published.

        Raises:
            FencedError: another writer has taken over.
        """
        windows = tuple(window for window in self.state.pending if database in (None, window.database))
        if {window.kind for window in windows} != {"stream"}:
            raise InvariantError(f"No window of {database or 'any database'} is in flight. Next: report this.")
        detail = {
            "databases": [window.database for window in windows],
            "tables": encode(list(changed)),
            "behind": encode(list(behind)),
            "operations": encode(rows),
        }
        if not published:
            detail["published"] = False
        if unpublished:
            detail["unpublished"] = encode(dict(unpublished))
        self._record(
            now, "complete", detail, "window-complete", windows=windows, rows=_total(rows), notifications=notifications
        )
        return self.state

    def record_files(self, now: datetime, written: RoundFiles) -> None:
        """Record the files of the pending round, whose tasks have ended; these files will be committed.

        Raises:
            FencedError: another writer has taken over.
        """
        self._record(now, "written", {"written": encode(written)}, "round-written", windows=[self._round()])

    def complete_round(self, now: datetime, notifications: Iterable[Notification] = ()) -> CaptureState:
        """Record that the pending snapshot round is committed, with notifications about it.

        Raises:
            FencedError: another writer has taken over.
        """
        window, written = self._round(), self.state.written
        if written is None:
            raise InvariantError(f"Round {window.window_id} was not written. Next: report this.")
        rows = sum(file.rows for _, files in written.files for file in files)
        self._record(now, "complete", {}, "round-complete", windows=[window], rows=rows, notifications=notifications)
        return self.state

    def start_snapshot(
        self,
        now: datetime,
        run: SnapshotRun,
        signals: Mapping[str, SignalState] | None = None,
        notifications: Iterable[Notification] = (),
    ) -> None:
        """Fix a snapshot's ranges and low watermarks. Signal states are recorded with it, so that a request is handled
        once."""
        detail = {"snapshot": encode(run), "signals": encode(dict(signals or {}))}
        low = run.tables[0].low
        self._record(
            now,
            "snapshot-planned",
            detail,
            "snapshot-planned",
            database=run.database,
            until=low,
            notifications=notifications,
        )

    def finish_snapshot(
        self, now: datetime, database: str, tables: Iterable[TableState], notifications: Iterable[Notification] = ()
    ) -> None:
        """End a snapshot that is complete or abandoned."""
        detail = {"tables": encode(list(tables))}
        self._record(
            now, "snapshot-complete", detail, "snapshot-complete", database=database, notifications=notifications
        )

    def close_readings(self, now: datetime, database: str, window: int, high: Lsn) -> None:
        """Record that all that was read of a database in rounds up to a number has no change of a commit above an LSN.

        Raises:
            FencedError: another writer has taken over.
        """
        self._record(now, "readings", {"until_window": window}, "readings-closed", database=database, until=high)

    def record_unread(self, now: datetime, database: str, failed: Mapping[TableId, str]) -> None:
        """Record why no first snapshot of tables could be planned.

        Raises:
            FencedError: another writer has taken over.
        """
        detail = {"unread": encode(list(failed.items()))}
        self._record(now, "unread", detail, "tables-marked", database=database)

    def mark(self, now: datetime, database: str, tables: Iterable[TableState]) -> None:
        """Record new states of tables; no row is written if there are none."""
        changed = encode(list(tables))
        if changed:
            self._record(now, "tables", {"tables": changed}, "tables-marked", database=database)

    def adopt(self, now: datetime, tables: Iterable[TableState], next_window: int | None = None) -> None:
        """Record tables that continue where another reader stopped.

        Args:
            now: time, with time zone UTC.
            tables: their states.
            next_window: number after the one under which their structures are going to be written; None if they are.

        Raises:
            FencedError: another writer has taken over.
        """
        detail: dict[str, Any] = {"tables": encode(list(tables))}
        if next_window is None:
            self._record(now, "adopted", detail, "adoption-complete")
        else:
            self._record(now, "adopting", detail | {"next_window": next_window}, "adoption-planned")

    def forget(self, now: datetime, tables: Sequence[TableId]) -> None:
        """Remove the states of tables, so that they count as never captured.

        Raises:
            FencedError: another writer has taken over.
        """
        self._record(now, "forgotten", {"forgotten": encode(list(tables))}, "tables-marked")

    def advance(self, now: datetime, database: str, until: Lsn) -> None:
        """Record that all streaming tables of a database are complete to `until`, because there are no changes before
        it."""
        self._record(now, "advance", {}, "positions-advanced", database=database, until=until)

    def record_log(
        self,
        now: datetime,
        database: str,
        log: LogHistory,
        notifications: Iterable[Notification] = (),
        tables: Iterable[TableState] = (),
        lost: Interval | None = None,
    ) -> None:
        """Record that a database's log is on another fork. If it was restored, its tables fail and work in flight is
        abandoned.

        Args:
            now: time of detection, with time zone UTC.
            log: new history of the log.
            notifications: notifications about the abandoned work.
            tables: changed states of tables.
            lost: of a history that begins: what of the former one is lost, for tables that have no state.

        Raises:
            FencedError: another writer has taken over.
        """
        reached, detail = "tables-marked" if log.restored else "", {"log": encode(log)}
        if lost is not None:
            detail |= {"lost": encode(lost)}
        if changed := encode(list(tables)):
            reached, detail = "tables-marked", detail | {"tables": changed}
        self._record(now, "log", detail, reached, database=database, notifications=notifications)

    def record_audit(
        self,
        now: datetime,
        tables: Iterable[TableState],
        marks: Mapping[str, Mark | None],
        next_window: int,
        early: Mapping[TableId, EarlyReads] | None = None,
    ) -> None:
        """Record the content of the lake's tables, the states of those that lost data, and a window number that no
        table has reached.

        Args:
            early: what tables have that lost data and have no state.

        Raises:
            FencedError: another writer has taken over.
        """
        detail = {"tables": encode(list(tables)), "marks": encode(dict(marks)), "next_window": next_window}
        if early:
            detail["early"] = encode_early(early)
        self._record(now, "audit", detail, "tables-marked")

    def record_retained(self, now: datetime, retained: Mapping[str, Retained], marks: Mapping[str, Mark]) -> None:
        """Record what topics hold from now on, before anything is dropped, or the content of their tables afterwards.

        Args:
            retained: by topic; none if there is nothing to drop.
            marks: by directory.

        Raises:
            FencedError: another writer has taken over.
        """
        detail = {"retained": encode(dict(retained)), "marks": encode(dict(marks)), "looked": now.isoformat()}
        self._record(now, "retained", detail, "retention-recorded" if retained else "")

    def record_kept(self, now: datetime, topic: str, why: str) -> None:
        """Record why old events of a topic stay for good, if that is another reason than before; empty if they do not.

        Raises:
            FencedError: another writer has taken over.
        """
        if self.state.kept.get(topic, "") != why:
            self._record(now, "retained", {"retained": {}, "looked": now.isoformat(), "kept": {topic: why}})

    def record_sent(self, now: datetime) -> None:
        """Record that all pending notifications were sent, before a quiet period."""
        if self.state.notifications:
            self._record(now, "notified", {})

    def record_signals(
        self, now: datetime, states: Mapping[str, SignalState], notifications: Iterable[Notification] = ()
    ) -> None:
        """Record new signal states of databases; new files of an incremental round use the next window's number.

        Raises:
            FencedError: another writer has taken over.
        """
        known = {database: entry.reads for database, entry in self.state.signals.items()}
        if self.state.pending and any(new.reads not in (None, known.get(name)) for name, new in states.items()):
            raise InvariantError("An incremental round cannot be committed inside a window. Next: report this.")
        detail = {"states": {database: encode(signals) for database, signals in states.items()}}
        self._record(
            now, "signals", detail, "signals-recorded", database=", ".join(states), notifications=notifications
        )

    def _round(self) -> Window:
        if [window.kind for window in self.state.pending] != ["snapshot"]:
            raise InvariantError("No round of a snapshot is in flight. Next: report this.")
        return self.state.pending[0]


def _total(rows: Mapping[str, Mapping[str, int]]) -> int:
    return sum(sum(counts.values()) for counts in rows.values())
