"""Retires tables whose position does not belong to the table that the server now has under their name.

A table is identified by its object id. When capture was turned off, or the table was
dropped, created again, renamed or moved to another schema, its changes end at its
position: its state holds the reason, the schema history gets a DROP, and the public
topic publishes it. The other tables continue. The same holds for a whole database.
The tables of a restored database get no DROP, for their changes did not end (`forks`).

*Exactly once.* The DROPs are committed under the number of a window that reads
nothing:

| crash after | next run |
|---|---|
| the plan of that window | completes it; the next check finds the same tables again |
| the history's commit | publishes the event when it loads the history; a table with a DROP gets no second one |
| completion | nothing is left to do |
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Sequence

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.core.steps import step
from cdc_assets.errors import TURN_ERRORS, CdcDisabledError, CdcError, DatabaseRestoredError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.lake.step import leave_out_if_readable
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.state import CaptureState, TableRead, Unpublished, Window
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.forks import greatest_lsn_in_lake
from cdc_assets.shared.lake import Lake

log = logging.getLogger(__name__)


def retire(ledger: Ledger, lake: Lake, database: str, gone: Sequence[TableState]) -> None:
    """Record the end of tables, and publish their DROPs.

    Args:
        ledger: ledger of the capture. While a window is in flight, only the states are recorded: call again.
        gone: new states of the tables.

    Raises:
        FencedError: another writer has taken over.
        LakeError: the lake cannot be written.
    """
    drops = [drop for state in gone if (drop := _drop(ledger, lake, state))]
    now = ledger.clock.now()
    if not drops or ledger.state.pending:
        ledger.manifest.mark(now, database, [state for state in gone if state != ledger.state.tables[state.table]])
        return
    window = empty_window(ledger.state, database)
    ledger.manifest.plan(now, window)
    lake.record(window.window_id, drops)
    step("history-written")
    ledger.manifest.complete(now, gone, (), {})


def leave_out_database(ledger: Ledger, lake: Lake, database: str, error: CdcError) -> None:
    """Leave out a database that cannot be captured now.

    Without change data capture its tables end: changes made meanwhile were never recorded. A database that is offline
    or gone for a while keeps its positions. A restored database is left as it is: its topics belong to another history.
    One that is busy, or whose replica lags, keeps its snapshot, too.

    Raises:
        CdcError: the given one, if it is busy and what it has in flight cannot be given up without a loss.
    """
    log.error("Database %s is left out: %s", database, error)
    if isinstance(error, TURN_ERRORS):
        if not make_way(ledger, lake, database):
            raise error
        return
    give_up(ledger, lake, database, error)
    if isinstance(error, CdcDisabledError):
        end_tables(ledger, lake, database, error)


def make_way(ledger: Ledger, lake: Lake, database: str) -> bool:
    """Have a database that is busy hold up no other one by the number of its window or round, which is read again later.

    Returns:
        Whether it holds none any more. It keeps the number of a round whose files are recorded, for they may be committed, and of a
        window that would fail a table (`is_split`).
    """
    state = ledger.state
    window = state.in_flight(database)
    if window is None:
        return True
    if window.kind == "stream":
        if is_split(ledger, lake, database):
            return False
        abandon_window(ledger, lake, database)
        return True
    if state.written is not None:
        return False
    ledger.manifest.start_snapshot(ledger.clock.now(), state.snapshots[database])  # from where it is
    return True


def give_up(ledger: Ledger, lake: Lake, database: str, error: CdcError, *, repeated: bool = True) -> None:
    """Record that what is in flight of a database is not carried out, for it cannot be read.

    Args:
        repeated: whether another writer may hold files of it.
    """
    if isinstance(error, DatabaseRestoredError):
        _fail_tables(ledger, lake, database, str(error))
    else:
        abandon_in_flight(ledger, lake, database, repeated=repeated)


def end_tables(ledger: Ledger, lake: Lake, database: str, error: CdcDisabledError) -> None:
    """Record the end of the tables of a database without change data capture, and publish their DROPs, once."""
    stop = f"{error}; its changes stop here."
    reason = (
        f"{stop}{_missing_transactions(ledger.state.unpublished.get(database))} Then materialize its snapshot asset."
    )
    entries = [state for state in ledger.state.tables.values() if state.table.database == database]
    ended = [state for state in entries if state.goes_on or state.reason == reason]
    retire(ledger, lake, database, [state.stopped(reason) for state in ended])


def _fail_tables(ledger: Ledger, lake: Lake, database: str, reason: str) -> None:
    """Record that a database was restored, and give up whatever is in flight, in one row of the manifest."""
    state = ledger.state
    if state.log(database).restored:
        return
    run, window = state.snapshots.get(database), state.in_flight(database)
    leave_out_snapshot(ledger, lake, database)
    _leave_out_reads(ledger, lake, database)
    notifications = [ledger.notice("Initial Snapshot", "ABORTED", run.signal)] if run is not None else []
    left = state.unpublished.get(database)
    if window is not None and window.kind == "stream":
        committed = _left_out(lake, window)[0]
        _close_history(ledger, lake, window)
        if not _is_published(lake, window):
            left = unpublished(ledger, window, committed)
        elif left is not None:  # the window may be shorter than what was left to it
            known = max(left.known, window.until)
            left = dataclasses.replace(left, known=known) if known < left.until else None
    reason += _missing_transactions(left)
    # the new history begins after what was in flight, too, of which some tables may be committed
    reached = greatest_lsn_in_lake(state, database)
    restored = dataclasses.replace(state.log(database), read=reached, restored=reason)
    ledger.manifest.record_log(ledger.clock.now(), database, restored, notifications)


def abandon_in_flight(ledger: Ledger, lake: Lake, database: str, *, repeated: bool = True) -> None:
    """Give up the window or snapshot in flight of a database that cannot be read now, so that the others continue.
    A snapshot ends (`give_up_snapshot`).
    """
    abandon_window(ledger, lake, database, repeated=repeated)
    give_up_snapshot(ledger, lake, database)


def abandon_window(ledger: Ledger, lake: Lake, database: str, *, repeated: bool = True) -> None:
    """Give up the window in flight of a database that cannot be read now.

    Tables that the window has committed are complete to its end; its number is taken in the others, so that no writer that was
    believed dead commits them later. Transactions that it has not committed yet are left to
    the database's next window, which reads the committed tables again to count their events (`Unpublished`); so are those of
    other databases in flight, unless no other writer can hold files of this one (`repeated`), for all are one commit. The others
    keep their position and are read again. A
    table fails if the window committed one generation of its topic and not the next, for no position is right for both.
    """
    state, now = ledger.state, ledger.clock.now()
    window = state.in_flight(database)
    if window is not None and window.kind == "stream":
        committed, lacking = _left_out(lake, window)
        reason = split_commit_reason(f"Database {database} could not be read any more")
        failed = [state.tables[table].stopped(reason) for table in tables_of(committed) & lacking]
        published = _is_published(lake, window, repeated=repeated)
        left = None if published else unpublished(ledger, window, committed)
        _close_history(ledger, lake, window)
        ledger.manifest.complete(
            now,
            failed,
            lacking,
            {},
            database=database,
            unpublished={database: left} if left else {},
            published=published,
        )


def is_split(ledger: Ledger, lake: Lake, database: str) -> bool:
    """Whether a table fails if the window in flight of a database is abandoned: one generation of its topic has it, and
    the next one not."""
    window = ledger.state.in_flight(database)
    if window is None or window.kind != "stream":
        return False
    committed, lacking = _progress(lake, window, lambda directory: lake.tables.committed(directory, window.window_id))
    return bool(tables_of(committed) & lacking)


def leave_out_snapshot(ledger: Ledger, lake: Lake, database: str) -> None:
    """Make sure that a writer that was believed dead commits no recorded files of the round in flight, and records no structures
    under the number, of a snapshot that is given up, or begins again under another."""
    if run := ledger.state.snapshots.get(database):
        lake.history.close(run.snapshot_id)
    window, written = ledger.state.in_flight(database), ledger.state.written
    if window is not None and window.kind == "snapshot" and written is not None:
        for directory, _ in written.files:
            leave_out_if_readable(lake.tables, directory, window.window_id)


def _leave_out_reads(ledger: Ledger, lake: Lake, database: str) -> None:
    """The same of recorded files of an incremental snapshot's round."""
    signals = ledger.state.signals.get(database)
    if signals is not None and signals.reads is not None and signals.reads.files:
        leave_out_if_readable(lake.tables, signals.reads.directory, signals.reads.window_id)


def give_up_snapshot(ledger: Ledger, lake: Lake, database: str) -> None:
    """End the snapshot in flight of a database, if there is one. The snapshot mode plans another for tables that still need
    one; whoever requested it for others requests it again, and if that was by a signal, it is reported as ABORTED."""
    run = ledger.state.snapshots.get(database)
    if run is not None:
        leave_out_snapshot(ledger, lake, database)
        notifications = [ledger.notice("Initial Snapshot", "ABORTED", run.signal)] if run.signal else []
        ledger.manifest.finish_snapshot(ledger.clock.now(), database, [], notifications)


def _left_out(lake: Lake, window: Window) -> tuple[list[TableRead], set[TableId]]:
    """As `_progress`; what is not committed cannot be any more."""
    return _progress(lake, window, lambda directory: not lake.tables.leave_out(directory, window.window_id))


def _progress(lake: Lake, window: Window, is_committed: Callable[[str], bool]) -> tuple[list[TableRead], set[TableId]]:
    """Reads whose generation a window has committed, and tables of which it has not committed one."""
    committed: list[TableRead] = []
    lacking: set[TableId] = set()
    for read in window.reads:
        if read.counted:
            continue
        if read.directory and is_committed(read.directory):
            committed.append(read)
        else:
            lacking.add(read.table)
    return committed, lacking


def tables_of(reads: Iterable[TableRead]) -> set[TableId]:
    """Tables that are read."""
    return {read.table for read in reads}


def _close_history(ledger: Ledger, lake: Lake, window: Window) -> None:
    """Have no structures recorded under the number of an abandoned window, unless windows of other databases need it still."""
    if len(ledger.state.pending) == 1:
        lake.history.close(window.window_id)


def _is_published(lake: Lake, window: Window, *, repeated: bool = True) -> bool:
    """Whether an abandoned window has published its transactions; if it has not, it cannot any more."""
    if not (window.transactions and repeated):
        return False
    return not lake.tables.leave_out(window.transactions, window.window_id)


def unpublished(ledger: Ledger, window: Window, committed: Iterable[TableRead]) -> Unpublished | None:
    """Transactions that a window leaves to the next one of its database: their events are in the topics of tables that it, or
    an earlier window, has committed, and their BEGIN and END are nowhere.

    Args:
        committed: those of its own reads that it has committed. What it has only counted is among what was left to it.
    """
    if not window.transactions:
        return None
    left, known = ledger.state.unpublished.get(window.database), ledger.state.published_until(window)
    reads = tuple(dataclasses.replace(read, counted=True) for read in committed)
    if left is not None:
        return dataclasses.replace(left, reads=left.reads + reads)
    # a table that catches up is read behind what others have published
    return Unpublished(known, window.until, reads) if reads and known < window.until else None


def _missing_transactions(left: Unpublished | None) -> str:
    """What the transaction topic lacks for good, for the reason of the database's tables."""
    return f" BEGIN and END of its transactions in ({left.known}, {left.until}] were not published." if left else ""


def split_commit_reason(cause: str) -> str:
    """Reason of a table that fails because one part of a window is committed and the other can no longer be read."""
    return (
        f"{cause} between the two commits of a window that ends one generation of its topic and begins the next, "
        "and the run died in between. Next: materialize the table's snapshot asset."
    )


def empty_window(state: CaptureState, database: str) -> Window:
    """The next window, ending where every table already is, so that completing it moves no table."""
    positions = [
        entry.position for entry in state.tables.values() if entry.table.database == database and entry.position
    ]
    end = min(positions, default=ZERO_LSN)
    return Window(state.next_window, "stream", database, end, end)


def _drop(ledger: Ledger, lake: Lake, state: TableState) -> HistoryEntry | None:
    """The DROP of a table, valid after its position; None if its end is already recorded."""
    last = lake.history.latest(state.table)
    if last is None or state.position is None:
        return None
    return dataclasses.replace(
        last, kind="DROP", lsn=state.position.next(), at=ledger.clock.now(), snapshot=None, last=False
    )
