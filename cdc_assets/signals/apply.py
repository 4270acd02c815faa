"""The effect of signals: pure functions from state to state.

A table that is already queued is ignored, and so is a repeated request.
Ids of other signals may occur again: the positions of the channels ensure that
each signal acts once.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from cdc_assets.config.patterns import PatternError
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.signal import Signal, one_line
from cdc_assets.ledger.signal_state import BlockingRequest, QueuedTable, SignalState, StructureRequest
from cdc_assets.signals.model import (
    ChangeSchemas,
    ExecuteSnapshot,
    Log,
    ParsedSignal,
    PauseSnapshot,
    Problem,
    Request,
    ResumeSnapshot,
    StopSnapshot,
    Watermark,
)
from cdc_assets.signals.notices import SnapshotNotice, aborted_without_tables, ends, of_tables, scanned
from cdc_assets.signals.tables import EXPECTED, TableMatcher

_SHOWN, _MAX_UNKNOWN = 200, 20
"""Characters of an expression or list shown in messages, and number of unmatched expressions reported per signal."""
_MAX_CONDITIONS = 4_000_000
"""Maximum total length of one signal's conditions for all of its tables, which are recorded in one row."""


@dataclass
class Outcome:
    """The effect of some signals.

    Args:
        state: state after the signals.
        notices: notifications to send.
        warnings: log messages about signals that were skipped.
        lines: messages of `log` signals.
        acted: whether there was any signal except the capture's own markers, so that the state must be recorded.
    """

    state: SignalState
    notices: list[SnapshotNotice] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    acted: bool = False


def apply(
    state: SignalState, signals: Sequence[ParsedSignal], captured: Sequence[TableId], position: Lsn | None
) -> Outcome:
    """Apply signals in order.

    Args:
        state: state before the signals.
        signals: signals in the order of their arrival.
        captured: tables that are streamed now.
        position: position shown by `log`.
    """
    outcome = Outcome(state)
    for arrived in signals:
        _one(outcome, arrived, captured, position)
    return outcome


def _one(outcome: Outcome, arrived: ParsedSignal, captured: Sequence[TableId], position: Lsn | None) -> None:
    signal, request = arrived.signal, arrived.request
    if isinstance(request, Watermark):
        return
    outcome.acted = True
    if signal.once:
        if signal.id in outcome.state.handled:
            outcome.warnings.append(f"Signal {signal.id!r} was already carried out; it is skipped.")
            return
        outcome.state = outcome.state.with_handled(signal.id)
    try:
        _carry_out(outcome, signal, request, captured, position)
    except PatternError as error:
        outcome.warnings.append(f"Signal {signal.id!r} is skipped: {error}.")


def _carry_out(
    outcome: Outcome, signal: Signal, request: Request | Problem, captured: Sequence[TableId], position: Lsn | None
) -> None:
    match request:
        case Problem(reason):
            outcome.warnings.append(reason)
        case Log(message):
            outcome.lines.append(one_line(message.replace("{}", f"commit_lsn={position}")))
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
    matcher = TableMatcher(captured)
    tables, unknown = matcher.of_all(request.collections)
    conditions = matcher.texts(request.conditions)
    if sum(len(conditions.get(table, "")) for table in tables) > _MAX_CONDITIONS:
        outcome.warnings.append(
            f"Signal {signal.id!r} is skipped: the conditions of its {len(tables)} tables have more than "
            f"{_MAX_CONDITIONS} characters."
        )
        return
    unknown = [pattern[:_SHOWN] for pattern in unknown[:_MAX_UNKNOWN]]
    outcome.warnings += _unknown(signal, unknown, captured)
    if request.kind == "blocking":
        if tables:
            chosen = tuple((table, conditions.get(table, "")) for table in sorted(tables))
            blocking = (*outcome.state.blocking, BlockingRequest(signal.id, chosen))
            outcome.state = dataclasses.replace(outcome.state, blocking=blocking)
        else:
            outcome.notices += aborted_without_tables(signal.id)
        return
    queued = {entry.table for entry in outcome.state.queue}
    added = [
        QueuedTable(table, signal.id, conditions.get(table, ""), request.surrogate)
        for table in tables
        if table not in queued
    ]
    asked = [*(entry.table for entry in added), *unknown]
    failed = tuple((signal.id, pattern) for pattern in unknown)
    outcome.state = dataclasses.replace(
        outcome.state, queue=(*outcome.state.queue, *added), failed=(*outcome.state.failed, *failed)
    )
    outcome.notices += [of_tables("STARTED", signal.id, asked)] if asked else []
    outcome.notices += [scanned(pattern, signal.id, "UNKNOWN_SCHEMA", 0, asked) for pattern in unknown]
    if unknown:
        notices, outcome.state = ends(signal.id, outcome.state)
        outcome.notices += notices


def _unknown(signal: Signal, patterns: Sequence[str], captured: Sequence[TableId]) -> list[str]:
    """Warnings about expressions that match no table."""
    if not patterns:
        return []
    names = ", ".join(map(str, captured)) or "none"
    known = names if len(names) <= _SHOWN else names[:_SHOWN] + " …"
    return [
        f"Signal {signal.id!r}: no captured table matches {pattern!r}: expected {EXPECTED}. Captured are {known}."
        for pattern in patterns
    ]


def _stop(outcome: Outcome, signal: Signal, request: StopSnapshot) -> None:
    state = outcome.state
    if not state.queue:
        outcome.warnings.append(f"Signal {signal.id!r}: no active incremental snapshot, stop ignored.")
        return
    queued = [entry.table for entry in state.queue]
    gone, unknown = TableMatcher(queued).of_all(request.collections) if request.collections else (queued, [])
    outcome.warnings += [
        f"Signal {signal.id!r}: {pattern[:_SHOWN]!r} matches no table of the incremental snapshot: expected {EXPECTED}."
        for pattern in unknown[:_MAX_UNKNOWN]
    ]
    if not gone:
        outcome.warnings.append(f"Signal {signal.id!r}: none of its tables is queued, stop ignored.")
        return
    kept = tuple(entry for entry in state.queue if entry.table not in gone)
    going = {entry.signal for entry in kept}
    failed = tuple(entry for entry in state.failed if entry[0] in going)
    outcome.state = dataclasses.replace(state, queue=kept, failed=failed, paused=state.paused and bool(kept))
    in_order = [table for table in queued if table in gone]
    outcome.notices.append(of_tables("ABORTED", state.queue[0].signal, in_order))


def _pause(outcome: Outcome, signal: Signal, *, paused: bool) -> None:
    state, word = outcome.state, "pause" if paused else "resume"
    if not state.queue or state.paused == paused:
        outcome.warnings.append(f"Signal {signal.id!r}: no incremental snapshot that could be {word}d; ignored.")
        return
    outcome.state = dataclasses.replace(state, paused=paused)
    tables = [entry.table for entry in state.queue]
    outcome.notices.append(of_tables("PAUSED" if paused else "RESUMED", state.queue[0].signal, tables))
