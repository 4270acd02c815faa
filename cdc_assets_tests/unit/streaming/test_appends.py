"""Each append of a capture is one call of its sink, and a sink that fails at any of them loses and doubles nothing."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import count, repeat
from pathlib import Path

import pytest

from cdc_assets.adoption.offsets import ConnectorOffset
from cdc_assets.assembly.adoption import Adoption
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.errors import InvalidValueError, LakeError, SinkError
from cdc_assets.lake.sink import Append, Sink
from cdc_assets_tests.appends import CountingSink, appends_in_logs
from cdc_assets_tests.crashes import PowerCutError
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from cdc_assets_tests.unit.streaming.simulation import DATABASE, SimulatedServer


def play(folder: Path, sinks: Iterator[Sink]) -> list[TableId]:
    """A snapshot, windows, a structure that changes and another generation; a run that fails is followed by another one."""
    server = SimulatedServer()
    tables = [server.create("orders", rows=4), server.create("lines", rows=2)]
    orders, lines = tables
    server.idle_tick()
    config = make_config(str(folder), transaction_metadata=True, retry_wait_s=0.0)

    def run() -> None:
        for sink in sinks:
            with suppress(PowerCutError, SinkError, LakeError):
                capture = make_capture(server, config, sink=sink)
                capture.snapshot()
                capture.stream()
                return

    run()
    server.commit((orders, "insert", 100, "new"), (lines, "insert", 100, "new"))
    run()
    server.add_column(orders, "extra")
    server.enable(orders)
    server.commit((orders, "update", 100, "changed"), (lines, "delete", 1, ""))
    run()
    for table in tables:
        found = [(event.op, event.key) for event in events_of(config, table)]
        assert len(found) == len(set(found)), "once"
    assert {(event.op, event.key) for event in events_of(config, orders) if event.op != "r"} == {("c", 100), ("u", 100)}
    assert sum(event.op == "r" for table in tables for event in events_of(config, table)) == 6
    assert len(rows_of_topic(config, "shop.transaction")) == 4
    return tables


@pytest.mark.long
def test_calls_are_the_commits_of_the_logs(tmp_path: Path) -> None:
    sink = CountingSink()
    play(tmp_path, repeat(sink, 3))
    logged = appends_in_logs(tmp_path)
    assert sink.calls == sink.landed == logged
    assert {"shop", "shop.__schema_history", "shop.transaction", "shop.SalesDb.dbo.orders"} <= logged.keys()


class NoTimes:
    """A server that knows no commit times any more."""

    def time_of(self, database: str, lsn: Lsn) -> datetime | None:
        return None

    def lsn_of_time(self, database: str, time: datetime) -> Lsn | None:
        return None


def test_structures_that_are_adopted_are_appends(tmp_path: Path) -> None:
    server = SimulatedServer()
    orders = server.create("orders", rows=1)
    server.create("lines", rows=1)
    delivered = server.commit((orders, "insert", 100, "by the other reader"))
    server.commit((orders, "insert", 101, "new"))
    sink = CountingSink()
    capture = make_capture(server, config := make_config(str(tmp_path)), sink=sink)
    adoption = Adoption(capture)
    adoption.record(adoption.plan({DATABASE: ConnectorOffset(delivered)}, NoTimes()))
    assert sink.landed == appends_in_logs(tmp_path) == {"shop.__schema_history": 1, "shop": 1}
    make_capture(server, config, sink=sink).stream()
    assert sink.calls == sink.landed == appends_in_logs(tmp_path)
    assert [event.key for event in events_of(config, orders)] == [101]


class Fuse:
    """Fails at the n-th call."""

    def __init__(self, number: int, error: BaseException) -> None:
        self.left, self._error = number, error

    def __call__(self, append: Append) -> None:
        self.left -= 1
        if self.left == 0:
            raise self._error


@pytest.mark.parametrize("place", [pytest.param("before", marks=pytest.mark.long), "behind"])
@pytest.mark.parametrize(
    ("error", "step"),
    [
        (PowerCutError("cut"), 1),
        (ConnectionError("away"), 3),
        (InvalidValueError("contract", "x", "another", "sign it"), 4),
    ],
    ids=["dies", "raises", "refuses"],
)
def test_a_sink_that_fails_at_any_call_loses_and_doubles_nothing(
    tmp_path: Path, place: str, error: BaseException, step: int
) -> None:
    for number in count(1, step):
        fuse = Fuse(number, error)
        sink = CountingSink(before=fuse) if place == "before" else CountingSink(behind=fuse)
        play(tmp_path / str(number), repeat(sink))
        assert sink.landed == appends_in_logs(tmp_path / str(number))
        if fuse.left > 0:
            assert number > 10
            break


def test_a_sink_that_goes_on_raising_ends_the_run_after_the_retries(tmp_path: Path) -> None:
    server = SimulatedServer()
    orders = server.create("orders", rows=1)
    server.idle_tick()
    config = make_config(str(tmp_path), max_retries=2, retry_wait_s=0.0)
    make_capture(server, config).snapshot()
    server.commit((orders, "insert", 100, "new"))

    def fail(append: Append) -> None:
        raise OSError("away")

    sink = CountingSink(before=fail)
    with pytest.raises(SinkError, match="away"):
        make_capture(server, config, sink=sink).stream()
    assert sink.calls["shop.SalesDb.dbo.orders"] == 3
    assert len(list((tmp_path / "shop.SalesDb.dbo.orders").glob("*.parquet"))) == 1, "that of the snapshot"
    make_capture(server, config).stream()
    assert [event.op for event in events_of(config, orders)] == ["r", "c"]
