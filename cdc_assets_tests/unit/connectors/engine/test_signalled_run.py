"""A run that sends one signal to its connector, and waits until that acts on it."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.connectors.engine import signalled_run
from cdc_assets.connectors.engine.feed import Chunk, Lines
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
    handed = [Signal("s", "execute-snapshot", None)]
    run = RequestedSnapshot(Silent(clock, look_s), tmp_path / "signals", handed, "notes")
    for _ in range(looks):
        run.next(1.0)
    with pytest.raises(EngineError, match="has not acted on the signal s within 120 s"):
        run.next(1.0)


NOTES = "notes"


class Told(ListFeed):
    """A connector whose incremental snapshots end with these statuses, one after the other."""

    def __init__(self, path: Path, statuses: Sequence[str]) -> None:
        super().__init__([], [])
        self.started, self._path, self._statuses = True, path, list(statuses)
        self.taken: list[Mapping[str, Any]] = []

    def next(self, timeout_s: float) -> Chunk | None:
        if not self._path.exists():
            return None
        self.taken += map(json.loads, self._path.read_text().splitlines())
        self._path.unlink()
        about = {"aggregate_type": "Incremental Snapshot", "id": self.taken[-1]["id"]}
        scanned = {"status": self._statuses.pop(0), "scanned_collection": "public.items"}
        told = [
            about | {"type": "STARTED"},
            about | {"type": "TABLE_SCAN_COMPLETED", "additional_data": scanned},
            about | {"type": "COMPLETED"},
        ]
        data = b"\n".join(json.dumps({"value": one}).encode() for one in told)
        return Chunk(len(self.taken), [Lines(NOTES, 0, None, None, len(told), len(data), data)], len(told), [])


@pytest.mark.parametrize(
    ("statuses", "asked", "is_read"),
    [
        (["SUCCEEDED"], 1, True),
        (["SQL_EXCEPTION", "SUCCEEDED"], 2, True),
        (["SQL_EXCEPTION", "SQL_EXCEPTION"], 2, False),
        (["UNKNOWN_SCHEMA"], 1, False),
    ],
)
def test_a_table_that_was_refused_is_asked_for_once_more(
    tmp_path: Path, statuses: list[str], asked: int, is_read: bool
) -> None:
    path, data = tmp_path / "signals", '{"type": "incremental", "data-collections": ["public\\\\.(items|orders)"]}'
    feed = Told(path, statuses)
    handed = [Signal("s", "execute-snapshot", data)]
    run = RequestedSnapshot(feed, path, handed, NOTES)
    for _ in range(6):
        run.next(1.0)
    assert [signal["id"] for signal in feed.taken] == ["s", "s-again"][:asked]
    assert [signal.id for signal in handed] == ["s", "s-again"][:asked], "the run knows what is requested"
    assert all(signal["data"]["data-collections"] == ["public\\.items"] for signal in feed.taken[1:])
    assert (run.started, not run.troubles) == (True, is_read)
