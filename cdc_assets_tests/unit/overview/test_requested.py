"""What signals have requested and no run has finished is never told as healthy: the process may have died with it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.ledger.signal_state import BlockingRequest, QueuedTable, RoundReads, SignalState, StructureRequest
from cdc_assets.overview import CaptureOverview, CaptureReport, report_of
from cdc_assets.overview.idle import STUCK_S
from cdc_assets_tests.unit.overview.broken import LINES, ORDERS, streaming
from cdc_assets_tests.unit.streaming.simulation import DATABASE

_QUEUED = QueuedTable(ORDERS, "s")
_LATER = timedelta(seconds=STUCK_S + 1)
Looked = Callable[..., CaptureReport]


@pytest.fixture
def looked(tmp_path: Path) -> Looked:
    """Looks at a lake that is complete, with requests in its record, soon or later after its newest row."""
    server, config = streaming(tmp_path)

    def look(
        signals: SignalState, later: timedelta = timedelta(0), database: str = DATABASE, mode: str = "initial"
    ) -> CaptureReport:
        given: CaptureConfig = config  # type: ignore[assignment]
        seen = CaptureOverview(replace(given, snapshot=replace(given.snapshot, mode=mode)), server)
        seen.state = replace(seen.state, signals={database: signals})
        return report_of(seen, seen.rows()[-1]["at"] + later)

    return look


@pytest.mark.parametrize(
    "signals",
    [SignalState(queue=(_QUEUED,)), SignalState(blocking=(BlockingRequest("s", ((ORDERS, ""), (LINES, ""))),))],
    ids=["incremental", "blocking"],
)
def test_requested_snapshot_is_unfinished_and_not_known_once_nobody_works_on_it(
    looked: Looked, signals: SignalState
) -> None:
    soon, late = looked(signals), looked(signals, _LATER)
    assert soon.headline.startswith(f"working: {ORDERS} is to be read, as a signal requested")
    assert (soon.queue[0].table, soon.unknown, late.health) == (ORDERS, (), "not known")
    assert "what signals requested of it waits, and nothing has been written" in late.headline
    assert late.next_steps == ["see whether a run works, and its log; else start one"]


@pytest.mark.parametrize(
    "signals",
    [
        SignalState(structures=(StructureRequest("s", "[]"),)),
        SignalState(paused=True, reads=RoundReads(9, "d", (), ("1",), finished=True, entry=_QUEUED)),
    ],
    ids=["structures", "recorded files"],
)
def test_other_work_of_signals_is_not_known_once_nobody_works_on_it(looked: Looked, signals: SignalState) -> None:
    assert looked(signals).health == "healthy"
    assert looked(signals, _LATER).health == "not known"


def test_what_is_paused_or_of_a_database_that_is_left_out_waits_for_nobody(looked: Looked) -> None:
    assert looked(SignalState(queue=(_QUEUED,), paused=True), _LATER).health == "healthy"
    assert looked(SignalState(queue=(_QUEUED,)), _LATER, "gone").health == "healthy"


@pytest.mark.parametrize(
    "signals", [SignalState(queue=(_QUEUED,)), SignalState(blocking=(BlockingRequest("s", ((ORDERS, ""),)),))]
)
def test_what_waits_until_the_capture_streams_again_waits_for_no_run(looked: Looked, signals: SignalState) -> None:
    """No run of a mode that streams nothing works on it, and no sensor starts one for it."""
    report = looked(signals, _LATER, mode="initial_only")
    assert (report.health, [(entry.table, entry.paused) for entry in report.queue]) == ("healthy", [(ORDERS, True)])
