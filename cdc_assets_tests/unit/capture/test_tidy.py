"""A loop leaves few files behind, and none that waits for its commit is removed."""

import dataclasses
from pathlib import Path

import pytest

from cdc_assets.capture.housekeeping import tidy
from cdc_assets.config.settings import HeartbeatSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.one_by_one import OneByOne
from cdc_assets.core.steps import listening
from cdc_assets.ledger import manifest_rows
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer

WINDOWS = 6


def files(lake: Path, topic: str) -> int:
    return len(list((lake / topic).glob("*.parquet")))


def committed(server: SimulatedServer, table: TableId, count: int) -> None:
    for number in range(count):
        server.commit((table, "insert", 100 + number, "new"))


@pytest.mark.delta_rs
def test_every_topic_is_tidied_and_the_manifest_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_rows, "_CHECKPOINT_EVERY", 5)
    monkeypatch.setattr(manifest_rows, "_KEEP_ROWS", 10)
    server = SimulatedServer()
    orders = server.create("orders", rows=2)
    server.idle_tick()
    config = make_config(
        str(tmp_path),
        max_iteration_transactions=1,
        slices=1,
        compact_after_files=3,
        retention_hours=0,
        transaction_metadata=True,
    )
    config = dataclasses.replace(config, heartbeat=HeartbeatSettings(interval_s=0.001))
    make_capture(server, config).snapshot()
    committed(server, orders, WINDOWS)
    summary = make_capture(server, config).stream()
    assert summary.windows == WINDOWS
    assert files(tmp_path, f"shop.{orders}") == 1
    assert files(tmp_path, "shop.transaction") == 1
    assert files(tmp_path, "__debezium-heartbeat.shop") == 1
    assert files(tmp_path, "shop.__windows") <= 10
    again = make_capture(server, config)
    assert again.stream().windows == 0
    assert [event.op for event in events_of(config, orders)].count("c") == WINDOWS


def test_recorded_files_outlive_a_vacuum(tmp_path: Path) -> None:
    """A snapshot round that waits for its commit may be older than any retention."""
    server = SimulatedServer()
    orders = server.create("orders", rows=3)
    server.idle_tick()
    config = make_config(str(tmp_path), compact_after_files=1, retention_hours=0)
    make_capture(server, config).snapshot()

    def stop(step: str) -> None:
        if step == "round-written":
            raise KeyboardInterrupt

    with listening(stop), pytest.raises(KeyboardInterrupt):
        make_capture(server, config).snapshot([orders])
    capture = make_capture(server, config)
    capture.claim()
    tidy(capture.parts.lake.tables, capture.parts.ledger.manifest, config, OneByOne(), [orders])
    capture.stream()
    assert [event.op for event in events_of(config, orders)] == ["r"] * 6


@pytest.mark.delta_rs
def test_a_loop_that_continues_is_tidied_on_the_way(tmp_path: Path) -> None:
    server = SimulatedServer()
    orders = server.create("orders", rows=2)
    server.idle_tick()
    config = make_config(
        str(tmp_path), max_iteration_transactions=1, slices=1, compact_after_files=3, retention_hours=0
    )
    make_capture(server, config).snapshot()
    committed(server, orders, WINDOWS)
    seen: list[int] = []
    summary = make_capture(
        server, config, on_progress=lambda _: seen.append(files(tmp_path, f"shop.{orders}"))
    ).stream()
    assert summary.windows == WINDOWS
    assert max(seen) <= 4, "the snapshot's file, and those of three windows"
    assert [event.op for event in events_of(config, orders)] == ["r"] * 2 + ["c"] * WINDOWS
