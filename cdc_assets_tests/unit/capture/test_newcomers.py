"""Tables that come while a capture is at work: the first of all, and those that cannot be captured."""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.capture.selection import unfit
from cdc_assets.config.settings import FilterSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import ConfigurationError, ConnectionLostError
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import started


def once(server: SimulatedServer, do: Callable[[], object]) -> Callable[[], bool]:
    """Does something after a while of a loop that asks whether to yield."""
    when = [server.now.timestamp() + 3]

    def play() -> bool:
        if when and server.now.timestamp() > when[0]:
            when.clear()
            do()
        return False

    return play


@pytest.mark.parametrize("mode", ["initial", "no_data"])
@pytest.mark.parametrize("include", [(), ("dbo.orders",)])
def test_first_table_that_is_enabled_is_taken_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: str, include: tuple[str, ...]
) -> None:
    server = SimulatedServer()
    if include:
        server.create("other", captured=False, rows=1)
    server.idle_tick()
    config = make_config(str(tmp_path), mode=mode, idle_timeout_s=20.0)
    config = replace(config, filters=FilterSettings(table_include=include))
    capture = make_capture(server, config)
    with caplog.at_level(logging.WARNING):
        assert capture.snapshot().tables == ()
    assert "No table is enabled for change data capture yet" in caplog.text

    def come() -> None:
        orders = server.create("orders", rows=2)
        server.commit((orders, "insert", 10, "a"))

    summary = capture.stream(should_yield=once(server, come))
    assert (summary.ended, summary.troubled) == ("idle", ())
    [orders] = state_of(config).tables
    assert {event.key for event in events_of(config, orders)} == ({10} if mode == "no_data" else {1, 2, 10})


def test_loop_without_a_table_ends_as_one_without_changes(tmp_path: Path) -> None:
    server = SimulatedServer()
    config = make_config(str(tmp_path), idle_timeout_s=20.0)
    begun = server.now
    assert make_capture(server, config).stream().ended == "nothing"
    assert 20 <= (server.now - begun).total_seconds() < 25


def test_window_is_reported_though_the_server_is_lost_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, _, orders = started(tmp_path, idle_timeout_s=20.0)
    told: list[str] = []

    def come() -> None:
        server.create("late", rows=1)
        server.commit((orders, "insert", 11, "a"))

    def lose(_: object) -> dict[TableId, int]:
        monkeypatch.undo()
        raise ConnectionLostError("gone")

    monkeypatch.setattr(server, "row_counts", lose)
    capture = make_capture(server, config, on_progress=lambda progress: told.append(progress.kind))
    summary = capture.stream(should_yield=once(server, come))
    assert (summary.windows, summary.rows[orders]) == (1, {"c": 1})
    assert told == ["stream", "snapshot"]


def test_filters_that_match_none_of_what_is_captured_are_an_error(tmp_path: Path) -> None:
    server, config, *_ = started(tmp_path)
    wrong = replace(config, filters=FilterSettings(table_include=("dbo.nope",)))
    with pytest.raises(ConfigurationError, match=r"dbo\.nope"):
        make_capture(server, wrong).stream()


LONG = "n" * 240
BAD = {
    "or_ders": r"topic name .* exclude SalesDb\.dbo\.or",
    LONG: "topic name",
}
"""Names of tables that cannot be captured, and why."""


@pytest.mark.parametrize("name", BAD)
def test_table_that_cannot_be_captured_fails_alone_and_again_after_a_restart(tmp_path: Path, name: str) -> None:
    server = SimulatedServer()
    lines, orders, own = server.create("lines"), server.create("orders"), server.create("or ders")
    server.idle_tick()
    config = make_config(str(tmp_path), idle_timeout_s=20.0)
    make_capture(server, config).snapshot()
    came: list[TableId] = []

    def come() -> None:
        came.extend([server.create(name, rows=1), server.create("fine", rows=1)])
        server.commit((lines, "insert", 10, "a"), (came[0], "insert", 10, "a"))

    running = make_capture(server, config)
    summary = running.stream(should_yield=once(server, come))
    bad, fine = came
    [trouble] = summary.troubled
    assert (trouble.table, summary.ended) == (bad, "idle")
    assert re.search(BAD[name], trouble.reason)
    assert events_of(config, lines)[-1].key == 10
    assert set(state_of(config).tables) == {lines, orders, own, fine}

    server.commit((orders, "insert", 11, "b"), (bad, "insert", 11, "b"), (fine, "insert", 11, "b"))
    again = make_capture(server, config)
    assert [trouble.table for trouble in again.snapshot().failed] == [bad]
    summary = again.stream()
    assert bad in {*(trouble.table for trouble in summary.troubled), *summary.waiting}
    assert events_of(config, orders)[-1].key == 11
    assert events_of(config, fine)[-1].key == 11
    told = {found.table: found.status for found in CaptureOverview(config, server).tables}
    assert told.pop(bad) in ("failed", "waiting")
    assert set(told.values()) == {"healthy"}


def test_tables_that_share_a_topic_from_the_beginning_are_a_mistake_in_the_settings(tmp_path: Path) -> None:
    server = SimulatedServer()
    server.create("or ders")
    server.create("or_ders")
    with pytest.raises(ConfigurationError, match="one table per topic"):
        make_capture(server, make_config(str(tmp_path))).snapshot()


def test_captured_table_that_has_lost_a_column_of_its_key_stops_no_other(tmp_path: Path) -> None:
    server = SimulatedServer()
    lines, orders = server.create("lines", rows=1), server.create("orders", rows=1)
    server.idle_tick()
    config = make_config(str(tmp_path), message_key_columns=("dbo.orders:note",))
    make_capture(server, config).snapshot()
    schema = server.schemas[orders]
    server.schemas[orders] = replace(schema, columns=schema.columns[:1])
    server.commit((lines, "insert", 10, "a"), (orders, "delete", 1, ""))
    assert make_capture(server, config).stream().troubled == ()
    assert events_of(config, lines)[-1].key == 10


def test_table_that_is_not_there_fails_alone(tmp_path: Path) -> None:
    server, config, lines, _ = started(tmp_path)
    gone = TableId(lines.database, "dbo", "gone")
    done = make_capture(server, config).snapshot([lines, gone])
    assert done.tables == (lines,)
    assert [trouble.table for trouble in done.failed] == [gone]


def test_new_tables_do_not_wait_for_one_that_was_left_out_because_of_its_topic(tmp_path: Path) -> None:
    """Its events are from before, when notifications went elsewhere."""
    out, new, sink = (TableId("SalesDb", "dbo", name) for name in ("notices", "new", "sink"))
    plain = make_config(str(tmp_path))
    notices = replace(plain.notifications, channels=("sink",), sink_topic=f"shop.{out}")
    config = replace(plain, notifications=notices)
    assert unfit([new], [out], config) == {}
    assert list(unfit([out, new], [sink], config)) == [out], "of which nothing was captured"


@pytest.mark.long
def test_many_new_tables_are_compared_with_many_others_in_a_moment(tmp_path: Path) -> None:
    tables = [TableId("SalesDb", "dbo", f"t{number}") for number in range(4_000)]
    began = time.process_time()
    assert unfit(tables[2_000:], tables[:2_000], make_config(str(tmp_path))) == {}
    assert time.process_time() - began < 3.0
