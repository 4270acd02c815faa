"""How a snapshot is cut: order of tables, slices, delays, statements of their own."""

from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer


def three(path: Path, **changes: object):  # type: ignore[no-untyped-def]
    server = SimulatedServer()
    tables = [server.create(name, rows=rows) for name, rows in (("a", 5), ("b", 60), ("c", 2))]
    server.idle_tick()
    return server, make_config(str(path), **changes), tables


@pytest.mark.parametrize(("order", "expected"), [("disabled", "abc"), ("ascending", "cab"), ("descending", "bac")])
def test_order_of_tables(tmp_path: Path, order: str, expected: str) -> None:
    server, config, tables = three(tmp_path, order_by_row_count=order)
    read = make_capture(server, config).snapshot().tables
    assert "".join(table.table for table in read) == expected
    first = next(table for table in tables if table.table == expected[0])
    assert events_of(config, first)[0].marker == "first"


def test_delays(tmp_path: Path) -> None:
    server, config, _ = three(tmp_path, delay_s=0.0)
    config = replace(
        config, snapshot=replace(config.snapshot, delay_s=30.0), streaming=replace(config.streaming, delay_s=70.0)
    )
    capture, began = make_capture(server, config), server.now
    capture.snapshot()
    assert 30 <= (server.now - began).total_seconds() < 31
    capture.stream()
    assert 100 <= (server.now - began).total_seconds() < 105
    began = server.now
    again = make_capture(server, config)
    again.snapshot()
    again.stream()
    assert (server.now - began).total_seconds() < 5, "no snapshot, no delay"


def slices(server: SimulatedServer, config: CaptureConfig, table: TableId) -> int:
    found: list[int] = []
    make_capture(server, config, on_progress=lambda progress: found.append(progress.slices)).snapshot([table])
    return found[-1]


def test_multiplier_of_a_table_gives_it_more_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_assets.snapshot.plan.MIN_SLICE", 1)
    server, config, (_, big, _) = three(tmp_path, partitions=30, threads=1)
    few = slices(server, config, big)
    settings = replace(config.snapshot, multipliers=(("dbo.b", 4),))
    assert slices(server, replace(config, snapshot=settings), big) >= 3 * few


def test_statement_of_its_own_is_read_once_even_if_the_table_has_ranges(tmp_path: Path) -> None:
    server, config, (_, big, _) = three(tmp_path, partitions=4)
    make_capture(server, config).snapshot()
    ranges = state_of(config).tables[big].ranges
    assert len(ranges) == 4
    statement = f"SELECT * FROM [{big.database}].[dbo].[b]"
    later = replace(config, snapshot=replace(config.snapshot, overrides=(("dbo.b", statement),)))
    make_capture(server, later).snapshot([big])
    assert len(events_of(config, big)) == 120
    assert state_of(config).tables[big].ranges == ranges, "partitions keep their meaning"
