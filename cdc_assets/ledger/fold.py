"""The state of a capture after some rows of its manifest: one function, so that every reader agrees."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Set
from datetime import datetime
from typing import Any

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ran_on import RanOn
from cdc_assets.lake.marks import Mark
from cdc_assets.lake.retained import Retained
from cdc_assets.ledger.codec import decode, encode
from cdc_assets.ledger.fenced_log import Row
from cdc_assets.ledger.folded_log import Folding
from cdc_assets.ledger.gaps import EarlyReads, Interval
from cdc_assets.ledger.notices import decode_notices
from cdc_assets.ledger.readings import Reading, closed, opened, without
from cdc_assets.ledger.signal_state import SignalState
from cdc_assets.ledger.snapshot_state import RoundFiles, SnapshotRun
from cdc_assets.ledger.state import CaptureState, LogHistory, Unpublished, Window
from cdc_assets.ledger.table_state import TableState


def after(state: CaptureState, row: Row) -> CaptureState:
    """The state after one row; the only place where it changes."""
    detail, database = json.loads(row["detail"]), row["database"]
    if row["event"] == "state":
        return decode_state(detail["state"])
    # what any event may carry; tables and marks come as wholes, so the newest wins
    state = state.with_tables(decode(TableState, entry) for entry in detail.get("tables", ()))
    state = state.with_marks(decode(dict[str, Mark | None], detail.get("marks", {})))
    state = dataclasses.replace(
        state,
        notifications=decode_notices(detail),
        next_window=max(state.next_window, detail.get("next_window", 0)),
        ran_on={**state.ran_on, **decode(dict[str, RanOn], detail.get("ran_on", {}))},
    )
    match row["event"]:
        # a number is taken here, before anything is read under it
        case "planned":
            windows = decode(tuple[Window, ...], detail["windows"])
            numbers = state.next_window, windows[0].window_id + 1
            return _opened(dataclasses.replace(state, pending=windows, next_window=max(numbers)), windows[0])
        # with `advance`, over a log without changes, what moves the watermark of a database
        case "complete" if row["kind"] == "stream":
            behind = {decode(TableId, names) for names in detail["behind"]}
            for name in detail["databases"]:
                state = _window_completed(state, name, behind, published=detail.get("published", True))
            for name, left in _waiting(decode(dict[str, Unpublished], detail.get("unpublished", {}))).items():
                state = state.with_unpublished(name, left)
            return state
        case "written":
            return _round_written(state, database, decode(RoundFiles, detail["written"]))
        case "complete":
            return _round_completed(state, database)
        case "snapshot-planned":
            run = decode(SnapshotRun, detail["snapshot"])
            next_window = max(state.next_window, run.snapshot_id + 1)
            state = _without_round(state, database)  # the snapshot restarts
            signals = decode(dict[str, SignalState], detail["signals"])
            return dataclasses.replace(
                state,
                snapshots={**state.snapshots, database: run},
                signals={**state.signals, **signals},
                next_window=next_window,
            )
        case "snapshot-complete":
            return _snapshot_completed(state, database, is_done=bool(detail["tables"]))
        case "readings":
            until = Lsn.parse(row["until"])
            return dataclasses.replace(state, readings=closed(state.readings, database, detail["until_window"], until))
        case "unread":
            return state.with_unread(dict(decode(tuple[tuple[TableId, str], ...], detail["unread"])))
        case "signals":
            return _signalled(state, decode(dict[str, SignalState], detail["states"]))
        case "advance":
            until = Lsn.parse(row["until"])
            return state.advanced(database, until).with_log_read(database, until).published(database, until)
        case "claim":
            return dataclasses.replace(state, writer=detail["writer"])
        case "retained":
            found = decode(dict[str, Retained], detail["retained"])
            looked = datetime.fromisoformat(detail["looked"])
            kept = {topic: why for topic, why in {**state.kept, **detail.get("kept", {})}.items() if why}
            return dataclasses.replace(state, retained={**state.retained, **found}, looked=looked, kept=kept)
        case "audit":
            return state.with_early(_decode_early(detail.get("early", ())))
        case "adopted":
            known = state.transactions  # where a run has published some meanwhile, none is published a second time
            reached = {name: max(lsn, known.get(name, lsn)) for name, lsn in _streamed_until(state).items()}
            return dataclasses.replace(state, transactions={**known, **reached})
        case "forgotten":
            return _forgotten(state, set(decode(list[TableId], detail["forgotten"])))
        case "log":
            lost = decode(tuple[Lsn, Lsn], detail["lost"]) if "lost" in detail else None
            return _of_history(state, database, decode(LogHistory, detail["log"]), lost)
    return state


def _signalled(state: CaptureState, changed: Mapping[str, SignalState]) -> CaptureState:
    used = [signals.reads.window_id + 1 for signals in changed.values() if signals.reads]
    return dataclasses.replace(state, signals={**state.signals, **changed}, next_window=max([state.next_window, *used]))


def _of_history(state: CaptureState, database: str, log: LogHistory, lost: Interval | None) -> CaptureState:
    """The state after a database's log moved to another fork; after a restore all work in flight is abandoned."""
    state = dataclasses.replace(state, logs={**state.logs, database: log})
    if not log.restored and lost is None:
        return state
    own = {table: reads for table, reads in state.early.items() if table.database == database}
    early = {**state.early, **{table: reads.of_former_history(lost) for table, reads in own.items()}}
    if not log.restored:
        # rows of the former history were read at its end at the latest; moments of the new one say nothing of them
        ended = closed(state.readings, database, state.next_window, lost[1].next()) if lost else state.readings
        return dataclasses.replace(state, early=early, readings=ended)
    state = state.without_pending(database).with_unpublished(database, None)
    signals = state.signals.get(database)
    idle = signals and dataclasses.replace(signals, queue=(), paused=False, reads=None, blocking=(), structures=())
    return dataclasses.replace(
        state,
        tables={
            table: entry.stopped(log.restored) if table.database == database else entry
            for table, entry in state.tables.items()
        },
        snapshots={name: run for name, run in state.snapshots.items() if name != database},
        signals={**state.signals, database: idle} if idle else state.signals,
        early=early,
    )


def _window_completed(state: CaptureState, database: str, behind: Set[TableId], *, published: bool) -> CaptureState:
    window = state.in_flight(database)
    assert window is not None  # noqa: S101 - `complete` checks it before it records
    if window.reads:  # one that reads nothing ends at no LSN of its own
        state = state.with_log_read(database, window.until)
        state = state.published(database, window.until) if published else state
    return state.advanced(database, window.until, behind, window).without_pending(database)


def _waiting(found: Mapping[str, Unpublished]) -> dict[str, Unpublished]:
    """Those that are still to be published; earlier versions recorded some that others had published already."""
    return {database: left for database, left in found.items() if left.known < left.until}


def _streamed_until(state: CaptureState) -> dict[str, Lsn]:
    """The greatest position of each database; one that was only snapshotted does not count."""
    found: dict[str, Lsn] = {}
    for entry in state.tables.values():
        if entry.position is not None and entry.position != entry.snapshot_lsn:
            database = entry.table.database
            found[database] = max(entry.position, found.get(database, entry.position))
    return found


def _opened(state: CaptureState, window: Window) -> CaptureState:
    """The state with what a round is going to read of tables whose changes are streamed, too."""
    run = state.snapshots.get(window.database)
    if window.kind != "snapshot" or run is None:
        return state
    read = {run.slices[number].table for number in window.slices}
    lows = {entry.table: entry.low for entry in run.tables if entry.table in read and entry.instance is not None}
    return dataclasses.replace(state, readings=opened(state.readings, lows, window.window_id))


def _round_written(state: CaptureState, database: str, written: RoundFiles) -> CaptureState:
    """The state with files of a round, which may be committed from now on even if the snapshot is given up."""
    run, window = state.snapshots[database], state.in_flight(database)
    assert window is not None  # noqa: S101 - `record_files` checks it before it records
    failed = dict(written.failed)
    read = {run.slices[number].table for number in window.slices} - failed.keys()
    found = {
        entry.table: EarlyReads(entry.low, entry.object_id)
        for entry in run.behind(written).tables
        if entry.table in read
    }
    readings, log = without(state.readings, {table for table, _ in written.lows}, window.window_id), state.log(database)
    lows = [*(reads.low for reads in found.values()), *([log.reads] if log.reads is not None else [])]
    logs = {**state.logs, database: dataclasses.replace(log, reads=max(lows, default=None))}
    state = dataclasses.replace(state.with_early(found), written=written, readings=readings, logs=logs)
    return _log_passed(state, run)


def _log_passed(state: CaptureState, run: SnapshotRun) -> CaptureState:
    """The state with a log read as far as a snapshot found it, for no window reads what lies before."""
    return state if run.captured is None else state.with_log_read(run.database, run.captured)


def _forgotten(state: CaptureState, gone: Set[TableId]) -> CaptureState:
    """The state without some tables; what the lake has of them stays, and lacks their next changes."""
    found = {table: entry for table, entry in state.tables.items() if table in gone}
    kept = {table: entry for table, entry in state.tables.items() if table not in gone}
    ends = {table: entry.reached for table, entry in found.items()}
    early = {
        table: EarlyReads(end, None, found[table].gaps, found[table].unrepaired_gaps, found[table].skipped)
        for table, end in ends.items()
        if end is not None
    }
    unpublished = {
        name: dataclasses.replace(left, reads=tuple(read for read in left.reads if read.table not in gone))
        for name, left in state.unpublished.items()
    }
    return dataclasses.replace(state, tables=kept, unpublished=unpublished).with_early(early)


def _round_completed(state: CaptureState, database: str) -> CaptureState:
    written = state.written
    assert written is not None  # noqa: S101 - `complete_round` checks it before it records
    run = state.snapshots[database].behind(written)
    return dataclasses.replace(state.without_pending(database), snapshots={**state.snapshots, database: run})


def _snapshot_completed(state: CaptureState, database: str, *, is_done: bool) -> CaptureState:
    remaining = {name: run for name, run in state.snapshots.items() if name != database}
    run = state.snapshots.get(database)
    failed = run.failed if run else ()
    state = _log_passed(state, run) if run and is_done else state
    state = _without_round(state, database)  # the snapshot was abandoned
    return dataclasses.replace(state.without_early().with_unread(dict(failed)), snapshots=remaining)


def _without_round(state: CaptureState, database: str) -> CaptureState:
    window = state.in_flight(database)
    return state.without_pending(database) if window is not None and window.kind == "snapshot" else state


def encode_state(state: CaptureState) -> dict[str, Any]:
    """A whole state as JSON data; mappings keyed by table or database become lists."""
    return {
        "tables": encode(list(state.tables.values())),
        "next_window": state.next_window,
        "pending": encode(state.pending),
        "written": encode(state.written),
        "snapshots": encode(list(state.snapshots.values())),
        "signals": encode(dict(state.signals)),
        "logs": encode(dict(state.logs)),
        "transactions": encode(dict(state.transactions)),
        "unpublished": encode(dict(state.unpublished)),
        "early": encode_early(state.early),
        "readings": [[*encode(table), encode(found)] for table, found in state.readings.items()],
        "unread": encode(list(state.unread.items())),
        "writer": state.writer,
        "marks": encode(dict(state.marks)),
        "retained": encode(dict(state.retained)),
        "looked": encode(state.looked),
        "kept": dict(state.kept),
        "ran_on": encode(dict(state.ran_on)),
    }


def encode_early(early: Mapping[TableId, EarlyReads]) -> list[Any]:
    """What tables have before they have a state, as JSON data."""
    return [[*encode(table), encode(reads)] for table, reads in early.items()]


def _decode_early(data: Iterable[Any]) -> dict[TableId, EarlyReads]:
    return {TableId(*names): decode(EarlyReads, reads) for *names, reads in data}


def decode_state(data: Mapping[str, Any]) -> CaptureState:
    """Inverse of `encode_state`."""
    tables = decode(list[TableState], data["tables"])
    runs = decode(list[SnapshotRun], data["snapshots"])
    return CaptureState(
        tables={table.table: table for table in tables},
        next_window=data["next_window"],
        pending=decode(tuple[Window, ...], data["pending"]),
        written=decode(RoundFiles, data["written"]) if data["written"] else None,
        snapshots={run.database: run for run in runs},
        signals=decode(dict[str, SignalState], data["signals"]),
        logs=decode(dict[str, LogHistory], data["logs"]),
        marks=decode(dict[str, Mark], data["marks"]),
        retained=decode(dict[str, Retained], data["retained"]),
        looked=decode(datetime, data["looked"]) if data["looked"] else None,
        kept=dict(data.get("kept", {})),
        transactions=decode(dict[str, Lsn], data["transactions"]),
        unpublished=_waiting(decode(dict[str, Unpublished], data["unpublished"])),
        early=_decode_early(data["early"]),
        readings={TableId(*names): decode(tuple[Reading, ...], found) for *names, found in data["readings"]},
        unread=dict(decode(tuple[tuple[TableId, str], ...], data["unread"])),
        writer=data["writer"],
        ran_on=decode(dict[str, RanOn], data["ran_on"]),
    )


FOLDING = Folding(CaptureState(), after, lambda state: {"state": encode_state(state)})
"""How rows of the manifest (`folded_log.ROW`) become the state of a capture."""
