"""A run that sends one signal to its connector, and waits until that acts on it."""

import time
from pathlib import Path

import pytest

from cdc_assets.connectors.engine import signalled_run
from cdc_assets.connectors.engine.signalled_run import RequestedSnapshot
from cdc_assets.core.signal import Signal
from cdc_assets.errors import EngineError
from cdc_assets_tests.unit.connectors.engine.feeds import ListFeed


class Clock:
    """A clock that others set."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now


class Silent(ListFeed):
    """A connector that does not act on its signal, each look at which takes so many seconds."""

    def __init__(self, clock: Clock, look_s: float) -> None:
        super().__init__([], [])
        self._clock, self._look_s = clock, look_s

    def next(self, timeout_s: float) -> None:
        self._clock.now += self._look_s


@pytest.mark.parametrize(("look_s", "looks"), [(1.0, 120), (3600.0, 60)], ids=["awake", "stopped again and again"])
def test_a_connector_has_two_minutes_to_act_on_a_signal_in_which_nobody_sleeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look_s: float, looks: int
) -> None:
    clock = Clock()
    monkeypatch.setattr(signalled_run, "time", clock)
    run = RequestedSnapshot(Silent(clock, look_s), tmp_path / "signals", Signal("s", "execute-snapshot", None), "notes")
    for _ in range(looks):
        run.next(1.0)
    with pytest.raises(EngineError, match="has not acted on the signal s within 120 s"):
        run.next(1.0)
