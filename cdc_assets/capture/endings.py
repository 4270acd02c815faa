"""Takes tables out of the stream whose position no longer belongs to what the server has under their name.

A table is known by its object id. When capture was turned off, or the table was
dropped, created anew, renamed or moved to another schema, its changes end at
its position: its state says why, the schema history gets a DROP, and the public
topic tells it. The other tables go on. The same holds for a whole database;
of one that was restored no end is told, for its changes did not end (`forks`).

*Exactly once.* The DROPs are committed under the number of a window that reads
nothing:

| crash after | next run |
|---|---|
| the plan of that window | completes it; the next look finds the same tables again |
| the history's commit | publishes the event when it loads the history; a table with a DROP gets no second one |
| completion | nothing is left to do |
"""

import dataclasses
import logging
from collections.abc import Sequence

from cdc_assets.capture.lake import Lake
from cdc_assets.capture.ledger import Ledger
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.core.steps import step
from cdc_assets.errors import CdcDisabledError, CdcError, DatabaseRestoredError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.ledger.state import CaptureState, TableState, Window

log = logging.getLogger(__name__)


def retire(ledger: Ledger, lake: Lake, database: str, gone: Sequence[TableState]) -> None:
    """Record the end of tables, and tell it.

    Args:
        ledger: of the capture. While a window of another database is in flight, states are recorded alone: call again.
        gone: their new states.

    Raises:
        FencedError: another writer has taken over.
        LakeError: the lake cannot be written.
    """
    drops = [drop for state in gone if (drop := _drop(ledger, lake, state))]
    now = ledger.clock.now()
    if not drops or ledger.state.pending is not None:
        ledger.manifest.mark(now, database, [state for state in gone if state != ledger.state.tables[state.table]])
        return
    window = empty_window(ledger.state, database)
    ledger.manifest.plan(now, window)
    lake.record(window.window_id, drops)
    step("history-written")
    ledger.manifest.complete(now, gone, (), {})


def leave_out_database(ledger: Ledger, lake: Lake, database: str, error: CdcError) -> None:
    """Leave a database out that cannot be captured now.

    Without change data capture its tables end: what they missed was never recorded. A database that is offline or
    gone for a while keeps its positions. One that was restored is left as it is: its topics are of another history.
    """
    log.error("Database %s is left out: %s", database, error)
    if isinstance(error, DatabaseRestoredError):
        _fail_tables(ledger, database, str(error))
        return
    abandon_in_flight(ledger, lake, database)
    if isinstance(error, CdcDisabledError):
        end_tables(ledger, lake, database, error)


def end_tables(ledger: Ledger, lake: Lake, database: str, error: CdcDisabledError) -> None:
    """Record the end of the tables of a database without change data capture, and tell it if it was not told yet."""
    reason = f"{error}; its changes stop here. Then materialize its snapshot asset."
    own = [state for state in ledger.state.tables.values() if state.table.database == database]
    ended = [state for state in own if state.streams or state.reason == reason]
    retire(ledger, lake, database, [dataclasses.replace(state, status="failed", reason=reason) for state in ended])


def _fail_tables(ledger: Ledger, database: str, reason: str) -> None:
    """Record that a database was restored; whatever is in flight goes with it, in the same row of the manifest."""
    state = ledger.state
    if state.log(database).restored:
        return
    run = state.snapshots.get(database)
    notifications = [ledger.notice("Initial Snapshot", "ABORTED", run.signal)] if run is not None else []
    restored = dataclasses.replace(state.log(database), restored=reason)
    ledger.manifest.record_log(ledger.clock.now(), database, restored, notifications)


def abandon_in_flight(ledger: Ledger, lake: Lake, database: str) -> None:
    """Give up the window or snapshot in flight of a database that cannot be read now, so that the others go on.

    Tables that the window has committed are complete to its end, the others stay where they are and are read again; one
    of which it has committed a generation and not the next has failed, for no position is right for both. A snapshot is
    planned again, unless a signal asked for it: that is told as ABORTED.
    """
    state, now = ledger.state, ledger.clock.now()
    window = state.pending
    if window is not None and window.kind == "stream" and window.database == database:
        begun, lacking = _progress(lake, window)
        torn = torn_by(f"Database {database} could not be read any more")
        failed = [dataclasses.replace(state.tables[table], status="failed", reason=torn) for table in begun & lacking]
        ledger.manifest.complete(now, failed, lacking, {})
    give_up_snapshot(ledger, database)


def give_up_snapshot(ledger: Ledger, database: str) -> None:
    """End the snapshot in flight of a database, if there is one; it is planned again, unless a signal asked for it."""
    run = ledger.state.snapshots.get(database)
    if run is not None:
        notifications = [ledger.notice("Initial Snapshot", "ABORTED", run.signal)] if run.signal else []
        ledger.manifest.finish_snapshot(ledger.clock.now(), database, [], notifications)


def _progress(lake: Lake, window: Window) -> tuple[set[TableId], set[TableId]]:
    """Tables of which a window has committed a generation of their topic, and tables that lack one of it."""
    begun: set[TableId] = set()
    lacking: set[TableId] = set()
    for read in window.reads:
        entry = lake.history.of_instance(read.table, read.instance, read.after.next())
        there = entry is not None and lake.tables.reached(lake.destination(entry)[1]) >= window.window_id
        (begun if there else lacking).add(read.table)
    return begun, lacking


def torn_by(cause: str) -> str:
    """Why a table has failed of which one part of a window is committed and the other cannot be had any more."""
    return (
        f"{cause} between the two commits of a window that ends one generation of its topic and begins the next, "
        "and the run died there. Next: materialize the table's snapshot asset."
    )


def empty_window(state: CaptureState, database: str) -> Window:
    """The next window, which ends where every table is already, so that whoever completes it moves none."""
    own = [entry.position for entry in state.tables.values() if entry.table.database == database and entry.position]
    end = min(own, default=ZERO_LSN)
    return Window(state.next_window, "stream", database, end, end)


def _drop(ledger: Ledger, lake: Lake, state: TableState) -> HistoryEntry | None:
    """The DROP of a table, valid behind its position; None if its end is recorded already."""
    last = lake.history.latest(state.table)
    if last is None or state.position is None:
        return None
    return dataclasses.replace(
        last, kind="DROP", lsn=state.position.next(), at=ledger.clock.now(), snapshot=None, last=False
    )
