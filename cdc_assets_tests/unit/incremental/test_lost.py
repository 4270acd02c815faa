"""Rounds of an incremental snapshot whose markers, or whose table's events, are lost while they wait: nobody waits for ever, and
no row is put behind a newer one."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_assets.core.steps import listening
from cdc_assets.errors import LakeAwayError
from cdc_assets.incremental.changed import StaleError, changed_rows
from cdc_assets.incremental.chunked_table import ChunkedTable
from cdc_assets.incremental.staging import Staged
from cdc_assets.ledger.signal_state import SignalState
from cdc_assets.shared.progress import StreamSummary
from cdc_assets.shared.server import Server
from cdc_assets.signals.notices import SnapshotNotice
from cdc_assets.signals.watch import SignalWatch
from cdc_assets_tests.unit.incremental.stories import Once, ask, ids, orders, scans
from cdc_assets_tests.unit.signals.world import SIGNALS, World, values
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

CLEAN_UP = "EXEC sys.sp_cdc_cleanup_change_table @capture_instance = N'dbo_cdc_signal', @low_water_mark = {}"
NEWEST = "DECLARE @l binary(10) = sys.fn_cdc_get_max_lsn(); "


@pytest.mark.long
@pytest.mark.parametrize("policy", ["ignore", "resnapshot", "fail"])
def test_markers_that_were_cleaned_up_are_written_again(server: StandIn, tmp_path: Path, policy: str) -> None:
    """Before their window was planned, so that the signal table has a gap; or, with `fail`, behind it, before they were looked for."""
    world = World(server, str(tmp_path), chunk_rows=100)
    streaming = replace(world.config.streaming, gap_policy=policy, max_duration_s=20.0)  # type: ignore[arg-type]
    world.config = replace(world.config, streaming=streaming)
    table, other = orders(world), world.make("others", "id int PRIMARY KEY")
    world.run("snapshot")
    ask(world, table)
    seen: list[str] = []
    cleaned: list[str] = []

    def clean(before: str, mark: str) -> None:
        world.sql(before + CLEAN_UP.format(mark))
        cleaned.append(mark)

    def play(name: str) -> None:
        seen.append(name)
        if name == "marker-written" and seen.count(name) == 2:  # the closing one
            server.agent.drain()
            world.sql("INSERT INTO dbo.others VALUES (1)")
            server.agent.drain()
            if policy != "fail":
                clean(NEWEST, "@l")
        if name == "window-complete" and seen.count("marker-written") == 2 and policy == "fail" and not cleaned:
            position = next(state.position for name, state in world.state().tables.items() if str(name) == SIGNALS)
            assert position is not None
            clean("", "0x" + position.raw.hex())

    with listening(play):
        summary = world.run()
    assert isinstance(summary, StreamSummary)
    assert (summary.ended, len(cleaned)) == ("idle", 1)
    assert scans(world) == ["SUCCEEDED"]
    assert ids(world, table) == list(range(1, 101))
    assert len(world.events(other)) == 1


@pytest.mark.long
def test_rows_of_a_round_do_not_come_behind_those_of_a_snapshot_that_repairs_a_gap(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program loses events of the table while a round waits; the change of its row is of a kind that is not captured."""
    monkeypatch.setattr("cdc_assets.capture.foreign.CHECK_EVERY_S", 0.0)
    world = World(server, str(tmp_path), poll_interval_s=0.0)
    world.config = replace(
        world.config,
        events=replace(world.config.events, skipped_operations=frozenset({"t", "u"})),
        streaming=replace(world.config.streaming, gap_policy="resnapshot"),
    )
    table = orders(world, 1)
    world.sql("INSERT INTO dbo.orders VALUES (2, 2)")
    server.agent.drain()
    world.run()
    seen: list[str] = []

    def play(name: str) -> None:
        seen.append(name)
        if name == "chunk-read" and seen.count(name) == 1:
            server.agent.pause()
            world.sql("UPDATE dbo.orders SET version = 9 WHERE id = 1")
            lose_a_file(f"{world.config.lake.path}/shop.{table}")
        elif name == "snapshot-complete":
            server.agent.resume()
            server.agent.drain()

    ask(world, table)
    with listening(play):
        world.run()
    assert "snapshot-complete" in seen
    found = [event["value"]["after"] for event in world.events(table)]
    versions = [row["version"] for row in found if row["id"] == 1]
    assert versions[-1] == 9
    assert versions == sorted(versions)
    assert scans(world) == ["SUCCEEDED"]
    assert ids(world, table) == [1, 2]


@pytest.mark.long
def test_markers_are_found_beside_a_signal_whose_record_was_written_and_the_answer_lost(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(server, str(tmp_path))
    streaming = replace(world.config.streaming, max_duration_s=120.0, retry_wait_s=0.1)
    world.config = replace(world.config, streaming=streaming)
    table, other = orders(world, 10), world.make("others", "id int PRIMARY KEY")
    world.sql("INSERT INTO dbo.others VALUES (1)")
    world.run("snapshot")
    ask(world, table)
    record, lost = SignalWatch.record, list[str]()

    def lose(watch: SignalWatch, database: str, state: SignalState, notices: Iterable[SnapshotNotice] = ()) -> None:
        record(watch, database, state, notices)
        if not lost and any(entry.signal == "s2" for entry in state.queue):
            lost.append(database)
            raise LakeAwayError("it does not answer")

    monkeypatch.setattr(SignalWatch, "record", lose)
    with listening(Once("chunk-read", lambda: ask(world, other, own_id="s2"))):
        summary = world.run()
    assert isinstance(summary, StreamSummary)
    assert (summary.ended, len(lost)) == ("idle", 1)
    assert scans(world) == ["SUCCEEDED", "SUCCEEDED"]


@pytest.mark.long
def test_rows_are_read_again_if_somebody_else_deletes_the_marker_while_they_are_read(
    server: StandIn, tmp_path: Path
) -> None:
    """So no READ of a row comes before its insertion, which without a key would be two rows."""
    world = World(server, str(tmp_path), watermarking="insert_delete", chunk_rows=1000)
    world.config = replace(world.config, streaming=replace(world.config.streaming, max_duration_s=120.0))
    table = world.make("logs", "what varchar(20) NOT NULL")
    world.sql(f"INSERT INTO dbo.logs VALUES {values(*map(str, range(10)))}")
    world.run("snapshot")
    ask(world, table, surrogate_key="what")
    is_deleted, is_streamed = Event(), Event()

    def delete() -> None:
        if is_deleted.is_set():
            return
        world.sql("DELETE FROM dbo.cdc_signal")
        server.agent.drain()
        is_deleted.set()
        assert is_streamed.wait(60.0)
        server.agent.pause()
        world.sql("INSERT INTO dbo.logs VALUES ('55')")

    def play(name: str) -> None:
        if name == "window-complete" and is_deleted.is_set():
            is_streamed.set()
        if name in ("reads-committed", "chunk-read"):
            server.agent.resume()

    world.meanwhile = delete
    with listening(play):
        world.run()
    server.agent.drain()
    world.run()
    assert scans(world) == ["SUCCEEDED"]
    found = [event["value"] for event in world.events(table)]
    assert [value["op"] for value in found if value["after"]["what"] == "55"] == ["c", "r"]


@pytest.mark.long
@pytest.mark.parametrize("cause", ["a replica differs", "the structure changes"])
def test_a_round_that_is_of_no_use_each_time_is_given_up_and_other_tables_are_read(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cause: str
) -> None:
    monkeypatch.setattr("cdc_assets.incremental.snapshot._MAX_REPEATS", 2)
    world = World(server, str(tmp_path))
    world.config = replace(world.config, streaming=replace(world.config.streaming, max_duration_s=120.0))
    table, other = world.make("names", "id int PRIMARY KEY, name varchar(10)"), orders(world, 1)
    world.sql("INSERT INTO dbo.names VALUES (1, 'x')")
    world.run("snapshot")
    changed, lengths = changed_rows, iter(range(11, 90))

    def differ(server: Server, chunked: ChunkedTable, *rest: Any) -> tuple[Staged, ...]:
        if chunked.plan.table == table and cause == "a replica differs":
            raise StaleError("0 of 1 change rows arrived: a replica differs from another one")
        return changed(server, chunked, *rest)

    def alter(name: str) -> None:
        if name == "chunk-read" and world.state().signals[DATABASE].queue[0].table == table:
            length = next(lengths)
            world.sql(f"ALTER TABLE dbo.names ALTER COLUMN name varchar({length})")
            world.sql(f"UPDATE dbo.names SET name = '{length}'")
            server.agent.drain()

    monkeypatch.setattr("cdc_assets.incremental.snapshot.changed_rows", differ)
    ask(world, table, other)
    with listening(alter if cause == "the structure changes" else lambda _: None):
        summary = world.run()
    assert isinstance(summary, StreamSummary)
    assert summary.ended == "idle"
    assert scans(world) == ["SKIPPED", "SUCCEEDED"]
    assert ids(world, other) == [1]
    assert f"The incremental snapshot of {table} is given up (SKIPPED). " in caplog.text


def test_rounds_of_a_table_that_was_stopped_do_not_count_for_the_next(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_assets.incremental.snapshot._MAX_REPEATS", 1)
    world = World(server, str(tmp_path))
    table, other = world.make("names", "id int PRIMARY KEY"), orders(world, 1)
    world.sql("INSERT INTO dbo.names VALUES (1)")
    world.run("snapshot")
    changed, tried, agent = changed_rows, list[str](), server.agent

    def differ(server: Server, chunked: ChunkedTable, *rest: Any) -> tuple[Staged, ...]:
        tried.append(chunked.plan.table.table)
        if tried == ["names"]:
            world.signal("s2", "stop-snapshot", type="incremental", data_collections=[str(table)])
            agent.drain()
        if len(tried) < 3:
            raise StaleError("0 of 1 change rows arrived: a replica differs from another one")
        return changed(server, chunked, *rest)

    monkeypatch.setattr("cdc_assets.incremental.snapshot.changed_rows", differ)
    ask(world, table, other)
    world.run()
    assert tried == ["names", "orders", "orders"]
    assert ids(world, other) == [1]


def lose_a_file(topic: str) -> None:
    """A rewrite that says it changes no row, and brings none back."""
    handle = DeltaTable(topic)
    path = min(handle.get_add_actions()["path"].to_pylist())
    log = Path(topic) / "_delta_log" / f"{handle.version() + 1:020d}.json"
    removed = {"remove": {"path": path, "deletionTimestamp": 0, "dataChange": False}}
    log.write_text("\n".join(map(json.dumps, ({"commitInfo": {"operation": "OPTIMIZE"}}, removed))))
