"""What signals change: pure functions from state to state.

A table that is queued already is ignored, and so is an id that acted before.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.signals.model import (
    ChangeSchemas,
    ExecuteSnapshot,
    Log,
    PauseSnapshot,
    Problem,
    ResumeSnapshot,
    Signal,
    StopSnapshot,
    Watermark,
    expand,
    parse,
)
from cdc_assets.signals.notices import Told, completed, of_tables, scanned
from cdc_assets.signals.state import BlockingRequest, Collection, SignalState, StructureRequest


@dataclass
class Outcome:
    """What came of some signals.

    Args:
        state: after them.
        told: notifications.
        warnings: lines for the log about signals that were skipped.
        lines: what `log` signals say.
    """

    state: SignalState
    told: list[Told] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def apply(state: SignalState, signals: Sequence[Signal], captured: Sequence[TableId], position: Lsn | None) -> Outcome:
    """Carry out signals in order.

    Args:
        state: before them.
        signals: in the order of their arrival.
        captured: tables that are streamed now.
        position: for `log`.
    """
    outcome = Outcome(state)
    for signal in signals:
        _one(outcome, signal, captured, position)
    return outcome


def _one(outcome: Outcome, signal: Signal, captured: Sequence[TableId], position: Lsn | None) -> None:
    if isinstance(request := parse(signal), Watermark):
        return
    if signal.id in outcome.state.handled:
        outcome.warnings.append(f"Signal {signal.id!r} was carried out before; it is skipped.")
        return
    outcome.state = outcome.state.with_handled(signal.id)
    match request:
        case Problem(reason):
            outcome.warnings.append(reason)
        case Log(message):
            outcome.lines.append(message.replace("{}", f"commit_lsn={position}"))
        case ChangeSchemas():
            entry = StructureRequest(signal.id, request.changes)
            outcome.state = dataclasses.replace(outcome.state, structures=(*outcome.state.structures, entry))
        case ExecuteSnapshot():
            _execute(outcome, signal, request, captured)
        case StopSnapshot():
            _stop(outcome, signal, request)
        case PauseSnapshot() | ResumeSnapshot():
            _pause(outcome, signal, paused=isinstance(request, PauseSnapshot))


def _execute(outcome: Outcome, signal: Signal, request: ExecuteSnapshot, captured: Sequence[TableId]) -> None:
    tables, unknown = expand(request.collections, captured)
    for pattern in unknown:
        outcome.warnings.append(f"Signal {signal.id!r}: no captured table matches {pattern!r}.")
    if request.kind == "blocking":
        if tables:
            blocking = BlockingRequest(
                signal.id, tuple((table, request.condition_of(table)) for table in sorted(tables))
            )
            outcome.state = dataclasses.replace(outcome.state, blocking=(*outcome.state.blocking, blocking))
        return
    queued = {entry.table for entry in outcome.state.queue}
    added = [
        Collection(table, signal.id, request.condition_of(table), request.surrogate)
        for table in tables
        if table not in queued
    ]
    asked = [*(entry.table for entry in added), *unknown]
    outcome.state = dataclasses.replace(outcome.state, queue=(*outcome.state.queue, *added))
    outcome.told += [of_tables("STARTED", signal.id, asked)] if asked else []
    outcome.told += [scanned(pattern, signal.id, "UNKNOWN_SCHEMA", 0, asked) for pattern in unknown]
    outcome.told += [completed(signal.id)] if unknown and not outcome.state.queue else []


def _stop(outcome: Outcome, signal: Signal, request: StopSnapshot) -> None:
    state = outcome.state
    kept = tuple(entry for entry in state.queue if not request.includes(entry.table))
    if not state.queue:
        outcome.warnings.append(f"Signal {signal.id!r}: no active incremental snapshot, stop ignored.")
    elif len(kept) == len(state.queue):
        outcome.warnings.append(f"Signal {signal.id!r}: none of its tables is queued, stop ignored.")
    else:
        gone = [entry.table for entry in state.queue if entry not in kept]
        outcome.state = dataclasses.replace(state, queue=kept, paused=state.paused and bool(kept))
        outcome.told.append(of_tables("ABORTED", state.queue[0].signal, gone))


def _pause(outcome: Outcome, signal: Signal, *, paused: bool) -> None:
    state, word = outcome.state, "pause" if paused else "resume"
    if not state.queue or state.paused == paused:
        outcome.warnings.append(f"Signal {signal.id!r}: no incremental snapshot that could be {word}d; ignored.")
        return
    outcome.state = dataclasses.replace(state, paused=paused)
    tables = [entry.table for entry in state.queue]
    outcome.told.append(of_tables("PAUSED" if paused else "RESUMED", state.queue[0].signal, tables))
