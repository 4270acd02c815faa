"""Heartbeats and notifications reach the lake, and never stop a capture."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.config.settings import HeartbeatSettings, NotificationSettings
from cdc_assets.core.steps import listening
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer


def test_heartbeats_come_in_their_interval(tmp_path: Path) -> None:
    server = SimulatedServer()
    orders = server.create("orders", rows=1)
    server.idle_tick()
    config = replace(make_config(str(tmp_path), idle_timeout_s=10.0), heartbeat=HeartbeatSettings(interval_s=4))
    make_capture(server, config).snapshot()
    server.commit((orders, "insert", 5, "a"))
    make_capture(server, config).stream()
    rows = rows_of_topic(config, "__debezium-heartbeat.shop")
    times = sorted(row["value"]["ts_ms"] for row in rows)  # type: ignore[index]
    assert len(times) == 4  # after the snapshot, at the start of the loop, and after 4 and 8 s
    assert {row["key"]["serverName"] for row in rows} == {"shop"}  # type: ignore[index]


def test_no_heartbeat_unless_asked(tmp_path: Path) -> None:
    server = SimulatedServer()
    server.create("orders", rows=1)
    server.idle_tick()
    config = make_config(str(tmp_path))
    make_capture(server, config).snapshot()
    assert not (tmp_path / "__debezium-heartbeat.shop").exists()


def test_snapshot_and_hand_over_are_notified(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = SimulatedServer()
    orders = server.create("orders", rows=1)
    server.idle_tick()
    channels = NotificationSettings(channels=("log", "sink"), sink_topic="notices")
    config = replace(make_config(str(tmp_path)), notifications=channels)
    make_capture(server, config).snapshot()
    server.add_column(orders, "state")
    server.enable(orders)
    server.commit((orders, "insert", 5, "a"))
    make_capture(server, config).stream()
    values = [row["value"] for row in sorted(rows_of_topic(config, "notices"), key=lambda row: str(row["position"]))]
    assert [(value["aggregate_type"], value["type"]) for value in values] == [  # type: ignore[index]
        ("Initial Snapshot", "STARTED"),
        ("Initial Snapshot", "IN_PROGRESS"),
        ("Initial Snapshot", "TABLE_SCAN_COMPLETED"),
        ("Initial Snapshot", "COMPLETED"),
        ("Capture Instance", "COMPLETED"),
    ]
    old = next(dict(value["additional_data"]) for value in values if value["aggregate_type"] == "Capture Instance")  # type: ignore[index]
    assert old["capture_instance"] == "dbo_orders"
    assert old["connector_name"] == "shop"
    assert sum("[Notification Service]" in record.message for record in caplog.records) == 5


def test_hand_over_is_reported_though_the_run_dies_before(tmp_path: Path) -> None:
    server = SimulatedServer()
    orders = server.create("orders", rows=1)
    server.idle_tick()
    config = replace(make_config(str(tmp_path)), notifications=NotificationSettings(("sink",), "notices"))
    make_capture(server, config).snapshot()
    server.add_column(orders, "state")
    server.enable(orders)
    server.commit((orders, "insert", 5, "a"))

    def die(step: str) -> None:
        if step == "window-complete":
            raise KeyboardInterrupt

    def told() -> list[str]:
        values = [row["value"] for row in rows_of_topic(config, "notices")]
        return [str(value["type"]) for value in values if value["aggregate_type"] == "Capture Instance"]  # type: ignore[index]

    with listening(die), pytest.raises(KeyboardInterrupt):
        make_capture(server, config).stream()
    assert told() == []
    for _ in range(2):
        make_capture(server, config).stream()
        assert told() == ["COMPLETED"]
