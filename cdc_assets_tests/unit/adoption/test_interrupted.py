"""An adoption that was interrupted, and that a run has captured other tables beside."""

from datetime import datetime
from pathlib import Path

import pytest

from cdc_assets.adoption.offsets import ConnectorOffset
from cdc_assets.assembly.adoption import Adoption
from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import InvalidValueError
from cdc_assets.shared.endings import empty_window
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE, SimulatedServer


class Times:
    """A server that no longer knows times."""

    def time_of(self, database: str, lsn: Lsn) -> datetime | None:
        return None

    def lsn_of_time(self, database: str, time: datetime) -> Lsn | None:
        return None


@pytest.mark.parametrize("mode", ["initial", "when_needed", "no_data"])
def test_it_is_finished_after_a_run_has_begun_with_another_table(tmp_path: Path, mode: str) -> None:
    server, config = SimulatedServer(), make_config(str(tmp_path), mode=mode)
    lines = server.create("lines", rows=2)
    server.idle_tick()
    offset = ConnectorOffset(server.commit((lines, "insert", 10, "delivered")))
    server.commit((lines, "insert", 11, "a"))

    def adopt() -> None:
        adoption = Adoption(make_capture(server, config))
        adoption.record(adoption.plan({DATABASE: offset}, Times()))

    with cut_at("adoption-planned", 1), pytest.raises(PowerCutError):
        adopt()
    orders = server.create("orders", rows=2)
    server.idle_tick()
    for _ in range(2):
        make_capture(server, config).snapshot()
        make_capture(server, config).stream()
    assert events_of(config, lines) == []
    kept = state_of(config).tables[orders]
    assert kept.status == "healthy"

    capture = make_capture(server, config)
    capture.claim()
    state, manifest = state_of(config), capture.parts.ledger.manifest
    manifest.plan(server.now, empty_window(state, DATABASE))
    with pytest.raises(InvalidValueError, match="in flight"):
        adopt()
    manifest.complete(server.now, (), (), {})
    adopt()
    assert state_of(config).tables[orders] == kept
    assert state_of(config).tables[lines].position == offset.commit
    server.commit((lines, "insert", 12, "a"), (orders, "insert", 12, "a"))
    make_capture(server, config).snapshot()
    make_capture(server, config).stream()
    assert [(event.op, event.key) for event in events_of(config, lines)] == [("c", 11), ("c", 12)]
    read = [("r", 1), ("r", 2)] if mode != "no_data" else []
    assert [(event.op, event.key) for event in events_of(config, orders)] == [*read, ("c", 12)]
    assert all(entry.gaps == () for entry in state_of(config).tables.values())
    with pytest.raises(InvalidValueError, match="without a capture"):
        adopt()
