"""What a snapshot tells, in order and with which data (spec debezium-sqlserver §10.1)."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.config.settings import CaptureConfig, NotificationSettings
from cdc_assets.core.notification import Notification
from cdc_assets.core.steps import listening
from cdc_assets.errors import QueryError
from cdc_assets_tests.crashes import PowerCutError, cut_after
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer


def told(config: CaptureConfig) -> list[tuple[str, dict[str, str]]]:
    rows: list[Any] = sorted(rows_of_topic(config, "notes"), key=lambda row: str(row["position"]))
    values = [row["value"] for row in rows]
    assert {value["aggregate_type"] for value in values} == {"Initial Snapshot"}
    found = []
    for value in values:
        data = dict(value["additional_data"])
        assert data.pop("connector_name") == "shop"
        found.append((value["type"], data))
    return found


def world(path: Path, **changes: object):  # type: ignore[no-untyped-def]
    server = SimulatedServer()
    server.create("empty")
    server.create("lines", rows=40)
    server.idle_tick()
    config = replace(make_config(str(path), **changes), notifications=NotificationSettings(("sink",), "notes"))
    return server, config


def test_tables_and_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_assets.snapshot.plan.MIN_SLICE", 20)
    server, config = world(tmp_path, partitions=2, threads=1)
    make_capture(server, config).snapshot()
    empty, lines = "SalesDb.dbo.empty", "SalesDb.dbo.lines"
    every = {"data_collections": f"{empty},{lines}"}

    def chunk(kind: str, index: str, **data: str) -> tuple[str, dict[str, str]]:
        return kind, {"chunk_index": index, "total_chunks": "2"} | data

    begun = {"current_collection_in_progress": lines, "total_rows_scanned": "0"}
    done = {"scanned_collection": lines, "status": "SUCCEEDED"} | every

    assert told(config) == [
        ("STARTED", {}),
        ("IN_PROGRESS", {"current_collection_in_progress": empty} | every),
        ("IN_PROGRESS", {"current_collection_in_progress": lines} | every),
        chunk("TABLE_CHUNK_IN_PROGRESS", "0", **begun),
        chunk("TABLE_CHUNK_IN_PROGRESS", "1", **begun),
        (
            "TABLE_SCAN_COMPLETED",
            {"scanned_collection": empty, "total_rows_scanned": "0", "status": "SUCCEEDED"} | every,
        ),
        chunk("TABLE_CHUNK_COMPLETED", "0", **done),
        chunk("TABLE_CHUNK_COMPLETED", "1", **done),
        (
            "TABLE_SCAN_COMPLETED",
            {"scanned_collection": lines, "total_rows_scanned": "40", "status": "SUCCEEDED"} | every,
        ),
        ("COMPLETED", {}),
    ]
    server.now += timedelta(seconds=1)
    make_capture(server, config).snapshot()
    assert told(config)[-1] == ("SKIPPED", {})


def test_failed_table_is_reported_and_the_snapshot_counts_as_aborted(tmp_path: Path) -> None:
    server, config = world(tmp_path)

    def refuse(statement: str) -> None:
        if "[lines]" in statement:
            raise QueryError("refused")

    server.before_read = refuse
    make_capture(server, config).snapshot()
    kinds = [(kind, data.get("status")) for kind, data in told(config)]
    assert kinds[-3:] == [
        ("TABLE_SCAN_COMPLETED", "SUCCEEDED"),
        ("TABLE_SCAN_COMPLETED", "SQL_EXCEPTION"),
        ("ABORTED", None),
    ]


def test_snapshot_that_is_given_up_is_reported(tmp_path: Path) -> None:
    server, config = world(tmp_path)

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_capture(server, config, on_progress=stop).snapshot()
    [lines] = [table for table in server.schemas if table.table == "lines"]
    server.schemas[lines] = replace(server.schemas[lines], object_id=9)
    server.now += timedelta(seconds=1)
    make_capture(server, config).snapshot()
    kinds = [kind for kind, _ in told(config)]
    assert kinds.index("ABORTED") < len(kinds) - 1
    assert (kinds[-1], kinds.count("STARTED")) == ("COMPLETED", 2)


def lasting(kinds: list[str]) -> list[str]:
    """What is told of work that is done."""
    return [kind for kind in kinds if not kind.endswith("IN_PROGRESS") and kind != "SKIPPED"]


@pytest.mark.parametrize("dies_at", ["step", "notification"])
def test_each_is_reported_wherever_a_run_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: str) -> None:
    """At least once to a listener, exactly once and in order in the topic."""
    monkeypatch.setattr("cdc_assets.snapshot.plan.MIN_SLICE", 20)
    whole: list[str] = []
    for number in range(100):
        server, config = world(tmp_path / str(number), partitions=2, threads=1)
        heard: list[str] = []
        steps = cut_after(number if dies_at == "step" else 0)
        notifications = cut_after(number if dies_at == "notification" else 0)

        def listen(
            notification: Notification,
            heard: list[str] = heard,
            notifications: Callable[[object], None] = notifications,
        ) -> None:
            notifications(notification)
            heard.append(notification.kind)

        died = False
        with listening(steps):
            try:
                make_capture(server, config, listener=listen).snapshot()
            except PowerCutError:
                died = True
        server.now -= timedelta(days=1)  # the next run is on a machine whose clock is behind
        make_capture(
            server, config, listener=lambda notification, heard=heard: heard.append(notification.kind)
        ).snapshot()
        found = lasting([kind for kind, _ in told(config)])
        whole = whole or found
        assert found == whole, f"died at {dies_at} {number}"
        assert set(whole) <= set(heard)
        assert all(heard.count(kind) >= whole.count(kind) for kind in set(whole))
        if number and not died:
            break
    assert number > 5
    assert (whole[0], whole.count("TABLE_SCAN_COMPLETED"), whole[-1]) == ("STARTED", 2, "COMPLETED")
    assert lasting(heard) == whole, "a run that ends well leaves nothing to tell again"
