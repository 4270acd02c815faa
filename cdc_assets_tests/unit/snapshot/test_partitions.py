"""A key-range partition is always the same rows, and re-reading it changes no position."""

from pathlib import Path

from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer


def test_one_partition_reads_exactly_its_range_again(tmp_path: Path) -> None:
    server = SimulatedServer()
    orders = server.create("orders", rows=40)
    server.idle_tick()
    config = make_config(str(tmp_path), partitions=4)
    make_capture(server, config).snapshot()
    position = state_of(config).tables[orders].position
    server.commit((orders, "insert", 15_000, "later"), (orders, "delete", 12, ""))

    make_capture(server, config).snapshot([orders], [1])
    reads = [event for event in events_of(config, orders) if event.op == "r"]
    first_window = min(event.window_id for event in reads)
    again = [event for event in reads if event.window_id > first_window]
    assert [event.key for event in again] == [11, 13, 14, 15, 16, 17, 18, 19, 20]
    assert again[0].lsn == server.captured
    assert [again[0].marker, again[-1].marker] == ["first", "last"]
    assert state_of(config).tables[orders].position == position

    make_capture(server, config).stream()
    assert [event.op for event in events_of(config, orders) if event.op != "r"] == ["c", "d", None]
    make_capture(server, config).snapshot([orders], [3])
    assert [event.key for event in events_of(config, orders) if event.op == "r"][-1] == 15_000


def test_small_table_has_one_range_and_empty_higher_partitions(tmp_path: Path) -> None:
    server = SimulatedServer()
    orders = server.create("orders", rows=1)
    server.idle_tick()
    config = make_config(str(tmp_path), partitions=4)
    make_capture(server, config).snapshot()
    make_capture(server, config).snapshot([orders], [2])
    assert len(events_of(config, orders)) == 1
    make_capture(server, config).snapshot([orders], [0])
    assert len(events_of(config, orders)) == 2


def test_table_without_capture_is_read_and_never_streamed(tmp_path: Path) -> None:
    server = SimulatedServer()
    plain = server.create("plain", captured=False, rows=3)
    config = make_config(str(tmp_path), mode="initial_only")
    make_capture(server, config).snapshot()
    assert len(events_of(config, plain)) == 3
    assert make_capture(server, config).stream().ended == "nothing"
    assert make_capture(server, config).snapshot().tables == ()
