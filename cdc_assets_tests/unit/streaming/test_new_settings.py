"""A snapshot in flight, and settings that have changed since it was planned."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column
from cdc_assets.snapshot import rounds
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer


@pytest.mark.parametrize("step", ["round-planned", "round-complete"])
def test_snapshot_in_flight_goes_on_without_a_table_that_new_settings_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """After its only round, the last row of the table is still held back."""
    monkeypatch.setattr(rounds, "_ROUND_SLICES", 1)
    monkeypatch.setattr(rounds, "MIN_SLICE", 1)
    server, config = SimulatedServer(), make_config(str(tmp_path), threads=1)
    fitting = make_config(str(tmp_path), threads=1, column_exclude=(r"dbo\.apples\.NOTE",))
    apples, lines = server.create("apples", rows=3, extra=("NOTE",)), server.create("lines", rows=3)
    server.idle_tick()
    with cut_at(step), pytest.raises(PowerCutError):
        make_capture(server, fitting).snapshot()
    lsn = server.commit((lines, "insert", 50, "a"))
    assert make_capture(server, config).stream().troubled == ()
    assert state_of(config).tables[lines].position == lsn
    assert "exclude note or NOTE by column.exclude.list" in state_of(config).unread[apples]
    assert make_capture(server, fitting).snapshot().tables == (apples,)
    assert {event.key for event in events_of(config, apples)} == {1, 2, 3}


def test_a_table_whose_recorded_rows_are_lost_has_failed_though_new_settings_do_not_fit_it(tmp_path: Path) -> None:
    server, config = SimulatedServer(), make_config(str(tmp_path), threads=1)
    fitting = make_config(str(tmp_path), threads=1, column_exclude=(r"dbo\.apples\.NOTE",))
    apples = server.create("apples", rows=3, extra=("NOTE",))
    server.create("lines", rows=3)
    server.idle_tick()
    with cut_at("round-written"), pytest.raises(PowerCutError):
        make_capture(server, fitting).snapshot()
    for file in (tmp_path / f"shop.{apples}").glob("*.parquet"):
        file.unlink()
    make_capture(server, config).stream()
    assert "exclude note or NOTE by column.exclude.list" in state_of(config).unread[apples]
    assert make_capture(server, fitting).snapshot().tables == (apples,)
    assert {event.key for event in events_of(config, apples)} == {1, 2, 3}


def test_a_table_whose_recorded_rows_are_lost_has_failed_though_its_rows_belong_elsewhere_by_new_settings(
    tmp_path: Path,
) -> None:
    server, config = SimulatedServer(), make_config(str(tmp_path), threads=1)
    apples, lines = server.create("apples", rows=3, extra=("at",)), server.create("lines", rows=3)
    make_times(server, apples)
    server.idle_tick()
    with cut_at("round-written"), pytest.raises(PowerCutError):
        make_capture(server, config).snapshot()
    for file in (tmp_path / f"shop.{apples}").glob("*.parquet"):
        file.unlink()
    changed = make_config(str(tmp_path), threads=1, time_mode="connect")
    done = make_capture(server, changed).snapshot()
    assert set(done.tables) == {apples, lines}
    assert {event.key for event in events_of(changed, apples)} == {1, 2, 3}


@pytest.mark.parametrize("mode", ["connect", "adaptive_time_microseconds"])
def test_row_that_is_held_back_is_not_written_by_settings_under_which_it_means_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(rounds, "_ROUND_SLICES", 1)
    monkeypatch.setattr(rounds, "MIN_SLICE", 1)
    server, config = SimulatedServer(), make_config(str(tmp_path), threads=1)
    apples, lines = server.create("apples", rows=2, extra=("at",)), server.create("lines", rows=3)
    make_times(server, apples)
    server.idle_tick()
    with cut_at("round-complete"), pytest.raises(PowerCutError):
        make_capture(server, config).snapshot()
    changed = make_config(str(tmp_path), threads=1, time_mode=mode)
    done = make_capture(server, changed).snapshot()
    assert set(done.tables) == {apples, lines}
    latest = {event.key: event.after for event in events_of(changed, apples)}
    hour = 3_600_000 if mode == "connect" else 3_600_000_000
    assert {row["at"] for row in latest.values() if row} == {hour}


def make_times(server: SimulatedServer, table: TableId) -> None:
    """Have the third column of a table hold one o'clock, whose form in events the settings decide."""
    columns = (*server.schemas[table].columns[:2], Column("at", "time", 3, scale=7))
    server.schemas[table] = replace(server.schemas[table], columns=columns)
    server.kinds["at"] = pa.time64("ns")
    for row in server.rows[table].values():
        row["at"] = 3_600_000_000_000
