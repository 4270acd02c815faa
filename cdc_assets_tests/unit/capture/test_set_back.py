"""A clock that is set back by a day delays nothing: neither the end of a run nor what is due in it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest

from cdc_assets.capture import housekeeping
from cdc_assets.config.settings import HeartbeatSettings, SignalSettings
from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.steps import listening
from cdc_assets.errors import ServerBusyError
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer

SECOND_INSTANCE_AT, SIGNAL_AT, BUSY_AT, SET_BACK_AT, LONGEST = 12, 30, 50, (2, 51), 300
"""Seconds after the start of a run."""


@dataclass
class Run:
    """What happened in a run, and at which of its seconds."""

    happened: list[tuple[str, float]] = field(default_factory=list)
    heartbeats: int = 0
    ended: float = 0.0


def run(path: Path, back: timedelta, *, idle_s: float, longest_s: float = 0.0) -> Run:
    """A run with an idle table, a hand-over, a signal and a busy server, during which the clock is set back twice."""
    server, done, signals = SimulatedServer(), Run(), path / "signals.json"
    orders = server.create("orders", rows=1)
    server.idle_tick()
    config = replace(
        make_config(str(path / "lake"), idle_timeout_s=idle_s, max_duration_s=longest_s, retry_wait_s=3.0),
        heartbeat=HeartbeatSettings(interval_s=7),
        signals=SignalSettings(channels=("file",), file=str(signals), poll_interval_s=5.0),
    )
    make_capture(server, config).snapshot()

    def note(what: str) -> None:
        done.happened.append((what, done.ended))

    def set_back() -> None:
        server.behind += back

    def second_instance() -> None:
        server.enable(orders, "second")
        server.idle_tick()

    def signal() -> None:
        signals.write_text('{"id": "1", "type": "log", "data": {"message": "hello"}}\n')

    def busy() -> None:
        server.before_read = refuse_once
        server.commit((orders, "insert", 7, "a"))

    def refuse_once(statement: str) -> None:
        server.before_read = lambda _: None
        note("refused")
        raise ServerBusyError("The server is busy.")

    def job(database: str) -> CaptureJob:
        note("job")
        return CaptureJob(database, None, 0)

    object.__setattr__(server, "capture_job", job)
    todo: list[tuple[int, Callable[[], None]]] = [
        (SET_BACK_AT[0], set_back), (SECOND_INSTANCE_AT, second_instance), (SIGNAL_AT, signal), (BUSY_AT, busy),
        (SET_BACK_AT[1], set_back),
    ]  # fmt: skip

    def meanwhile(seconds: float) -> None:
        assert seconds < LONGEST, f"the run goes on: {done.happened}"
        done.ended = seconds
        while todo and todo[0][0] <= seconds:
            todo.pop(0)[1]()

    server.meanwhile = meanwhile
    with listening(note):
        make_capture(server, config).stream()
    done.heartbeats = len(rows_of_topic(config, "__debezium-heartbeat.shop"))
    return done


@pytest.mark.long
@pytest.mark.parametrize(("idle_s", "longest_s"), [(40.0, 0.0), (200.0, 90.0)], ids=["idle", "deadline"])
def test_a_clock_that_is_set_back_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idle_s: float, longest_s: float
) -> None:
    monkeypatch.setattr(housekeeping, "_COMPARE_S", 60.0)  # seconds of the machine, which may be busy
    steady, back = (
        run(tmp_path / str(days), timedelta(days=days), idle_s=idle_s, longest_s=longest_s) for days in (0, 1)
    )
    assert back == steady
    assert {"job", "signals-recorded", "refused", "table-committed"} <= {what for what, _ in steady.happened}
    assert steady.heartbeats > 10
