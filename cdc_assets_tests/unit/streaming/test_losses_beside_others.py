"""What a topic loses is noticed also if another program commits to it at the same time."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_assets.core.steps import listening
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer


def append(table: Path, rows: int) -> None:
    """What another program writes."""
    write_deltalake(str(table), pa.table({"position": pa.nulls(rows, pa.string())}), mode="append", schema_mode="merge")


@pytest.mark.parametrize("rows", [1, 2, 5], ids=["fewer", "as many", "more"])
def test_a_commit_that_is_lost_while_another_program_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Two rows of a window are gone, and others stand in their place."""
    monkeypatch.setattr("cdc_assets.run.foreign.CHECK_EVERY_S", 0.0)
    server = SimulatedServer()
    lines, orders = server.create("lines", rows=3), server.create("orders", rows=3)
    server.idle_tick()
    config = make_config(str(tmp_path), slices=1)
    make_capture(server, config).snapshot()
    table, left = tmp_path / f"shop.{lines}", [1, 2, 3]

    def work(step: str) -> None:
        if step != "window-complete" or not left:
            return
        if left.pop() == 3:
            (table / "_delta_log" / f"{DeltaTable(str(table)).version():020d}.json").unlink()
            append(table, rows)
            append(table, rows)
        server.commit((orders, "insert", 60 + len(left), "a"))

    server.commit((lines, "insert", 50, "a"), (lines, "insert", 51, "a"))
    with listening(work):
        troubled = make_capture(server, config).stream().troubled
    assert [(one.table, one.status) for one in troubled] == [(lines, "gap")]
    assert state_of(config).tables[lines].gaps, "what was lost is remembered"
    make_capture(server, config).snapshot([lines])
    assert make_capture(server, config).stream().troubled == (), "rows of others raise no alarm"


@pytest.mark.parametrize("rows", [1, 2, 5], ids=["fewer", "as many", "more"])
def test_a_commit_in_whose_place_another_program_has_put_one_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """The run goes on behind it, and takes the version for that of its own commit."""
    monkeypatch.setattr("cdc_assets.run.foreign.CHECK_EVERY_S", 1e9)
    server = SimulatedServer()
    lines = server.create("lines", rows=3)
    server.idle_tick()
    config = make_config(str(tmp_path), slices=1)
    make_capture(server, config).snapshot()
    table, left = tmp_path / f"shop.{lines}", [1, 2, 3]

    def work(step: str) -> None:
        if step != "window-complete" or not left:
            return
        if left.pop() == 2:
            (table / "_delta_log" / f"{DeltaTable(str(table)).version():020d}.json").unlink()
            append(table, rows)
        server.commit((lines, "insert", 60 + len(left), "a"))

    server.commit((lines, "insert", 50, "a"), (lines, "insert", 51, "a"))
    with listening(work):
        make_capture(server, config).stream()
    assert state_of(config).tables[lines].gaps
    make_capture(server, config).snapshot([lines])
    assert make_capture(server, config).stream().troubled == (), "rows of others raise no alarm"
