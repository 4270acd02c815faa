"""Snapshot and stream of a simulated server into a real lake."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer


def test_snapshot_then_changes_arrive_once_and_in_order(tmp_path: Path) -> None:
    server = SimulatedServer()
    orders = server.create("orders", rows=25)
    server.idle_tick()
    config = make_config(str(tmp_path))
    assert make_capture(server, config).snapshot().tables == (orders,)

    server.commit((orders, "insert", 100, "new"), (orders, "update", 1, "changed"))
    server.commit((orders, "delete", 2, ""))
    summary = make_capture(server, config).stream()

    assert summary.ended == "idle"
    events = events_of(config, orders)
    assert [event.op for event in events if event.op != "r"] == ["c", "u", "d", None]
    reads = [event for event in events if event.op == "r"]
    assert sorted(event.key for event in reads) == list(range(1, 26))
    assert [reads[0].marker, reads[-1].marker] == ["first", "last"]
    assert {event.marker for event in reads[1:-1]} == {"true"}
    assert summary.rows[orders] == {"c": 1, "u": 1, "d": 1, "tombstone": 1}


def test_second_run_reads_only_what_is_new(tmp_path: Path) -> None:
    server = SimulatedServer()
    orders = server.create("orders", rows=2)
    server.idle_tick()
    config = make_config(str(tmp_path))
    capture = make_capture(server, config)
    capture.snapshot()
    server.commit((orders, "insert", 3, "a"))
    capture.stream()
    before = len(events_of(config, orders))

    assert make_capture(server, config).snapshot().tables == ()
    assert make_capture(server, config).stream().windows == 0
    assert len(events_of(config, orders)) == before
    server.commit((orders, "insert", 4, "b"))
    summary = make_capture(server, config).stream()
    assert summary.rows[orders] == {"c": 1}
    assert len(events_of(config, orders)) == before + 1


def test_what_events_lack_is_said_once_for_each_structure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = SimulatedServer()
    orders = server.create("orders", rows=1)
    schema = server.schemas[orders]
    noted = replace(schema.columns[1], default="(newid())")
    server.schemas[orders] = replace(schema, columns=(schema.columns[0], noted))
    server.idle_tick()
    config = make_config(str(tmp_path))

    def said() -> int:
        make_capture(server, config).snapshot()
        make_capture(server, config).stream()
        times = caplog.text.count("Default (newid()) of SalesDb.dbo.orders.note")
        caplog.clear()
        return times

    assert said() == 1
    server.commit((orders, "insert", 2, "a"))
    assert said() == 0
    server.add_column(orders, "extra")
    server.enable(orders)
    server.commit((orders, "insert", 3, "a"))
    assert said() == 1
    server.commit((orders, "insert", 4, "a"))
    assert said() == 0


@pytest.mark.parametrize(("limit", "waits"), [(1, False), (0, True)])
def test_only_a_trickle_is_paced_and_no_backlog_in_small_windows(tmp_path: Path, limit: int, waits: bool) -> None:
    server = SimulatedServer()
    table = server.create("orders", rows=1)
    server.idle_tick()
    config = make_config(str(tmp_path), max_iteration_transactions=limit, poll_interval_s=30.0)
    make_capture(server, config).snapshot()
    for number in range(5):
        server.commit((table, "insert", 100 + number, "a"))
    before, ends = server.now, list[float]()
    make_capture(server, config, on_progress=lambda _: ends.append((server.now - before).total_seconds())).stream()
    assert len(ends) == (1 if waits else 5)
    assert max(ends) < 30
