"""Signals by the signal table, while the capture of that table itself changes."""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.config.settings import FilterSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import ConnectionLostError, ObjectDeniedError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.shared.progress import StreamSummary
from cdc_assets.signals import model, table
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.incremental.stories import ids, orders, scans
from cdc_assets_tests.unit.signals.world import SIGNAL_COLUMNS, SIGNALS, World
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from mssql_standin.control import StandIn


def enable_again(world: World) -> None:
    world.sql(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'cdc_signal', "
        "@role_name = NULL, @capture_instance = N'signals_again'"
    )


def test_signals_before_and_behind_a_hand_over_in_one_window(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = World(server, str(tmp_path))
    orders = world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    streaming = replace(world.config.streaming, max_iteration_transactions=0)
    world.config = replace(world.config, streaming=streaming)

    world.signal("before", "execute-snapshot", type="blocking", data_collections=[str(orders)])
    enable_again(world)
    world.signal("behind", "log", message="hand-over")
    world.run()

    assert [text for text in caplog.messages if text == "hand-over" or "'before'" in text] == [
        "hand-over", "Streaming of SalesDb pauses for the snapshot requested by signal 'before'.",
    ]  # fmt: skip
    state = world.state()
    assert {entry.instance for entry in state.tables.values()} == {"dbo_orders", "signals_again"}


def test_signals_of_a_table_whose_capture_has_ended_stop_nothing(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    orders = world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    world.sql(
        "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'cdc_signal', "
        "@capture_instance = N'all'"
    )
    world.sql("INSERT INTO dbo.orders VALUES (1, 1)")
    server.agent.drain()
    world.run()
    assert [event["value"]["op"] for event in world.events(orders)] == ["c"]


def test_signals_that_may_not_be_read_stop_no_other_table_and_are_carried_out_later(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(server, str(tmp_path))
    table = orders(world, 1)
    world.signal("s1", "log", message="first")
    read = MssqlBulkSource.read

    def refuse(bulk: MssqlBulkSource, statement: str, parameters: Sequence[object] = ()) -> Iterator[pa.RecordBatch]:
        if statement.startswith("/* cdc-assets: signals */"):
            raise ObjectDeniedError("The SELECT permission was denied on the object 'dbo_cdc_signal_CT'")
        return read(bulk, statement, parameters)

    with monkeypatch.context() as patch:
        patch.setattr(MssqlBulkSource, "read", refuse)
        for number in (2, 3):
            world.sql(f"INSERT INTO dbo.orders VALUES ({number}, 1)")
            server.agent.drain()
            summary = world.run()
            assert isinstance(summary, StreamSummary)
            assert summary.ended == "idle"
    assert [event["value"]["op"] for event in world.events(table)] == ["r", "c", "c"]
    assert "cannot be read" in caplog.text
    caplog.set_level(logging.INFO)
    world.run()
    assert caplog.messages.count("first") == 1


def test_signal_in_a_window_behind_which_the_server_was_lost_is_carried_out(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    world = World(server, str(tmp_path))
    world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    streaming = replace(world.config.streaming, idle_timeout_s=2.0, retry_wait_s=0.1)
    world.config = replace(world.config, streaming=streaming)
    world.signal("1", "log", message="first")

    def lose(*_: object) -> None:
        if "first" in caplog.messages and not losses:
            world.signal("2", "log", message="second")
            losses.append(world.state().next_window)
        elif losses and len(losses) < 2 and world.state().next_window > losses[0]:
            losses.append(0)
            raise ConnectionLostError("gone")

    losses: list[int] = []
    monkeypatch.setattr("cdc_assets.capture.new_tables.NewTables.join", lose)
    world.run()
    assert len(losses) == 2
    assert [text for text in caplog.messages if text in ("first", "second")] == ["first", "second"]


CLEAN_UP = (
    "DECLARE @l binary(10) = sys.fn_cdc_get_max_lsn(); "
    "EXEC sys.sp_cdc_cleanup_change_table @capture_instance = N'dbo_cdc_signal', @low_water_mark = @l"
)


def lost(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "is lost" in text]


@pytest.mark.long
def test_signals_that_were_cleaned_up_before_they_were_read_are_told_once(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(server, str(tmp_path))
    world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    world.sql("INSERT INTO dbo.cdc_signal VALUES ('marker', 'snapshot-window-open', NULL)")
    world.signal("gone", "log", message="nobody reads it")
    for key in range(2):  # each run dies before it reads signals
        with cut_at("window-complete"), pytest.raises(PowerCutError):
            world.run()
        world.sql(f"INSERT INTO dbo.orders VALUES ({key}, 1)")
        server.agent.drain()
    with cut_at("window-complete"), pytest.raises(PowerCutError):
        world.run()
    world.sql(CLEAN_UP)
    world.signal("behind", "log", message="{}")
    caplog.set_level(logging.INFO)
    world.run()
    [told] = lost(caplog)
    assert "'gone'" in told
    assert "insert it again" in told
    assert [text for text in caplog.messages if text.startswith("commit_lsn=")]
    caplog.clear()
    world.run()
    assert lost(caplog) == []


def test_of_an_endless_text_no_more_is_read_than_shows_that_it_is_too_long(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (model, table):  # the driver keeps a server of its own process from sending more than sockets hold
        monkeypatch.setattr(module, "LONGEST_DATA", 1000)
    world = World(
        server, str(tmp_path), columns="id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(max)"
    )
    world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    world.sql(f"INSERT INTO dbo.cdc_signal VALUES ('long', 'log', '{'x' * 1_200}')")
    server.agent.drain()
    world.run()
    assert "it has 1001 characters, more than 1000" in caplog.text


@pytest.mark.long
def test_a_clean_up_of_what_was_read_is_not_told(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(server, str(tmp_path))
    world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    world.signal("read", "log", message="read")
    world.run()
    for key in range(3):  # long after the last signal
        world.sql(f"INSERT INTO dbo.orders VALUES ({key}, 1)")
        world.run()
        server.agent.drain()
        world.sql(CLEAN_UP)
    world.run()
    assert [text for text in caplog.messages if "lost" in text] == []


def test_signals_that_were_ignored_are_not_carried_out_when_their_channel_is_added(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(server, str(tmp_path), channels=())
    world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    world.signal("old", "log", message="months ago")
    caplog.set_level(logging.INFO)
    world.run()
    assert [text for text in caplog.messages if "'old' is ignored" in text]
    world.config = replace(world.config, signals=replace(world.config.signals, channels=("source",)))
    world.signal("new", "log", message="today")
    world.run()
    assert "today" in caplog.messages
    assert "months ago" not in caplog.messages


def test_signals_that_wait_while_their_table_is_snapshotted_again_are_carried_out(
    server: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = World(server, str(tmp_path))
    world.make("orders", "id int PRIMARY KEY, version int")
    world.run("snapshot")
    world.signal("1", "log", message="waited")
    world.config = replace(world.config, snapshot=replace(world.config.snapshot, mode="always"))
    world.run("snapshot")
    world.run()
    assert caplog.messages.count("waited") == 1
    world.run()
    assert caplog.messages.count("waited") == 1


@pytest.mark.long
def test_letter_case_of_its_name_in_the_settings_does_not_count(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    named = TableId(DATABASE.upper(), "DBO", "CDC_Signal")
    world.config = replace(world.config, signals=replace(world.config.signals, collections=(named,)))
    table = orders(world)
    world.signal("s1", "execute-snapshot", data_collections=[str(table)])
    world.run()
    assert ids(world, table) == list(range(1, 101))
    rows = world.events(TableId(DATABASE, "dbo", "cdc_signal"))
    assert {row["value"]["op"] for row in rows} == {"c"}, "its rows are requests"


def ask_in(world: World, name: str, own_id: str, kind: str = "execute-snapshot", **data: object) -> None:
    """Insert a signal into one of two signal tables; by default one that requests all orders."""
    text = json.dumps(data or {"data-collections": [f"{DATABASE}.dbo.orders"]})
    world.sql(f"INSERT INTO dbo.{name} VALUES ('{own_id}', '{kind}', '{text}')")
    world.server.agent.drain()


def name_signal_table(world: World, name: str) -> None:
    """Settings that name another signal table; the filters exclude both."""
    table = TableId(DATABASE, "dbo", name)
    world.config = replace(
        world.config,
        signals=replace(world.config.signals, collections=(table,)),
        filters=FilterSettings(also=frozenset({str(table).lower()}), table_exclude=("dbo.cdc_signal", "dbo.tool")),
    )


@pytest.fixture
def two(server: StandIn, tmp_path: Path) -> World:
    """A capture that has handled a signal in the first of two signal tables, and knows nothing of the second, which has one."""
    world = World(server, str(tmp_path), chunk_rows=100)
    orders(world)
    name_signal_table(world, "cdc_signal")
    world.make("tool", SIGNAL_COLUMNS)
    world.signal("s1", "log", message="first table")
    world.run()
    ask_in(world, "tool", "old")
    world.run()
    return world


def run_wholly(world: World) -> None:
    world.run("snapshot")
    world.run()


@pytest.mark.long
def test_rows_of_a_signal_table_from_before_the_settings_named_it_are_not_carried_out(
    two: World, caplog: pytest.LogCaptureFixture
) -> None:
    name_signal_table(two, "tool")
    run_wholly(two)
    assert scans(two) == []
    [told] = [text for text in caplog.messages if text.startswith("Signals are read from")]
    assert f"from {DATABASE}.dbo.tool now, and not from {SIGNALS}" in told
    assert "Next: insert into it again" in told
    caplog.clear()
    run_wholly(two)
    assert (scans(two), [text for text in caplog.messages if "Signals are read from" in text]) == ([], [])
    ask_in(two, "cdc_signal", "former")
    ask_in(two, "tool", "new")
    two.run()
    assert scans(two) == ["SUCCEEDED"]
    two.run()
    assert scans(two) == ["SUCCEEDED"]


@pytest.mark.parametrize("step", ["snapshot-complete", "signals-recorded", "window-complete"])
def test_a_crash_when_another_signal_table_is_named_changes_nothing(two: World, step: str) -> None:
    name_signal_table(two, "tool")
    with cut_at(step), suppress(PowerCutError):
        run_wholly(two)
    ask_in(two, "tool", "new")
    with cut_at(step), suppress(PowerCutError):
        run_wholly(two)
    run_wholly(two)
    assert scans(two) == ["SUCCEEDED"]
    notes = [row["value"] for row in rows_of_topic(two.config, "notes")]
    assert {note["id"] for note in notes if note["aggregate_type"] == "Incremental Snapshot"} == {"new"}
    assert ids(two, TableId(DATABASE, "dbo", "orders")) == list(range(1, 101))


@pytest.mark.long
def test_a_switch_back_carries_out_nothing_from_the_meantime(two: World) -> None:
    name_signal_table(two, "tool")
    run_wholly(two)
    ask_in(two, "cdc_signal", "meantime")
    two.sql("INSERT INTO dbo.orders VALUES (101, 101)")
    two.server.agent.drain()
    two.run()
    name_signal_table(two, "cdc_signal")
    run_wholly(two)
    assert scans(two) == []
    signals = two.events(TableId(DATABASE, "dbo", "cdc_signal"))
    assert "meantime" in [event["value"]["after"]["id"] for event in signals], "as an event it is read late"
    ask_in(two, "cdc_signal", "new")
    two.run()
    assert scans(two) == ["SUCCEEDED"]


@pytest.mark.long
def test_rows_of_a_table_that_was_captured_like_any_other_before_it_was_named_are_not_carried_out(
    two: World,
) -> None:
    two.config = replace(two.config, filters=replace(two.config.filters, table_exclude=("dbo.cdc_signal",)))
    run_wholly(two)
    ask_in(two, "tool", "captured")
    two.run()
    name_signal_table(two, "tool")
    run_wholly(two)
    assert scans(two) == []


@pytest.mark.long
def test_a_signal_table_that_is_enabled_after_it_was_named_loses_no_row(two: World) -> None:
    name_signal_table(two, "late")
    two.run()
    two.make("late", SIGNAL_COLUMNS)
    ask_in(two, "late", "new")
    two.run()
    assert scans(two) == ["SUCCEEDED"]


@pytest.mark.long
@pytest.mark.parametrize("first", ["snapshot", "stream"])
def test_a_snapshot_in_the_first_run_with_another_signal_table_loses_no_row_of_it(two: World, first: str) -> None:
    name_signal_table(two, "tool")
    two.make("added", "id int PRIMARY KEY, version int")
    ask_in(two, "tool", "new")
    two.run(first)
    run_wholly(two)
    assert scans(two) == ["SUCCEEDED"]


@pytest.mark.long
def test_records_that_do_not_say_of_which_signal_table_they_are_continue(two: World) -> None:
    manifest = Manifest(TopicTables(Location.of(two.config.lake), "shop"), "shop")
    now = datetime.now(UTC)
    known = manifest.claim(now).signals[DATABASE]
    manifest.record_signals(now, {DATABASE: replace(known, signal_table=None)})
    ask_in(two, "cdc_signal", "next")
    two.run()
    assert scans(two) == ["SUCCEEDED"]
    state = two.state().signals[DATABASE]
    assert state.signal_table == TableId(DATABASE, "dbo", "cdc_signal")
