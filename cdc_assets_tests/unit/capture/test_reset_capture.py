"""A reset of a whole capture that dies between two of its folders, or finds some that cannot be read; and runs that wake after it."""

import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_assets.capture.new_lake import NewLake
from cdc_assets.capture.reset import Reset
from cdc_assets.errors import LakeError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.e2e.chains import RESET
from cdc_assets_tests.unit.capture.refusing import two
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedClock, SimulatedServer
from cdc_assets_tests.unit.streaming.sleepers import asleep_at
from cdc_assets_tests.unit.streaming.tables import two_tables


@pytest.mark.parametrize("step", RESET)
@pytest.mark.parametrize("times", range(1, 6))
def test_one_that_died_is_repeated_and_the_capture_begins_anew(tmp_path: Path, step: str, times: int) -> None:
    server, config, lines, other = two(tmp_path)
    make_capture(server, config).stream()

    def reset() -> None:
        found = Reset(config, SimulatedClock(server))
        found.move_away(found.removal())

    with cut_at(step, times), pytest.raises(PowerCutError):
        reset()
    server.now += timedelta(seconds=1)  # each reset has a folder of its own, named after the second
    reset()
    capture = make_capture(server, config)
    capture.snapshot()
    capture.stream()
    for table in (lines, other):
        assert [(event.op, event.key) for event in events_of(config, table)] == [("r", 1), ("r", 2), ("r", 50)]


def damage(topic: Path) -> None:
    """Nothing can read it, nor tell whose commits it has."""
    for commit in (topic / "_delta_log").glob("*.json"):
        commit.write_text("{broken")


@pytest.mark.long
@pytest.mark.delta_rs
def test_a_topic_that_cannot_be_read_moves_too(tmp_path: Path) -> None:
    server, config, lines, other = two(tmp_path)
    make_capture(server, config).stream()
    damage(tmp_path / f"shop.{lines}")
    server.now += timedelta(seconds=1)
    found = Reset(config, SimulatedClock(server))
    removal = found.removal()
    assert removal.unread == (f"shop.{lines}",)
    found.move_away(removal)
    assert {path.name for path in tmp_path.iterdir()} == {"__reset", "shop.__windows"}
    make_capture(server, config).snapshot()
    make_capture(server, config).stream()
    for table in (lines, other):
        assert [(event.op, event.key) for event in events_of(config, table)] == [("r", 1), ("r", 2), ("r", 50)]


@pytest.mark.delta_rs
def test_another_table_that_cannot_be_read_is_not_moved_and_nothing_is(tmp_path: Path) -> None:
    server, config, lines, _ = two(tmp_path)
    (tmp_path / "lost+found").mkdir()
    shutil.copytree(tmp_path / "shop.__windows", tmp_path / "shop.eu.__windows")  # of another capture, as is its topic
    for name in ("shop_orders", "shop.eu.orders", "orders"):
        shutil.copytree(tmp_path / f"shop.{lines}", tmp_path / name)
        damage(tmp_path / name)
    found = Reset(config, SimulatedClock(server))
    with pytest.raises(LakeError, match=r"^shop_orders in .* cannot be read"):
        found.removal()
    shutil.rmtree(tmp_path / "shop_orders")
    removal = found.removal()
    assert not removal.unread
    assert not {"shop.eu.orders", "orders"}.intersection(removal.directories)


@pytest.mark.delta_rs
def test_a_table_of_another_program_that_cannot_be_read_hinders_no_capture(tmp_path: Path) -> None:
    server = SimulatedServer()
    table = server.create("orders", rows=2)
    server.idle_tick()
    write_deltalake(tmp_path / "metrics", pa.table({"a": [1]}))
    damage(tmp_path / "metrics")  # as one with features that delta-rs does not know is to it
    config = make_config(str(tmp_path))
    NewLake.of(config).check()
    make_capture(server, config).snapshot()
    assert [(event.op, event.key) for event in events_of(config, table)] == [("r", 1), ("r", 2)]


@pytest.mark.delta_rs
def test_without_a_manifest_a_table_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    server, config, lines, _ = two(tmp_path)
    for folder in tmp_path.iterdir():
        if folder.name != f"shop.{lines}":
            shutil.rmtree(folder)
    damage(tmp_path / f"shop.{lines}")
    for begin in (NewLake.of(config).check, make_capture(server, config).snapshot):
        with pytest.raises(LakeError, match=rf"shop.{lines} in .* cannot be read"):
            begin()


@pytest.mark.parametrize("step", ["window-planned", "files-written"])
@pytest.mark.parametrize("change", ["insert", "delete"])
def test_a_run_that_wakes_commits_nothing_to_the_new_topics(tmp_path: Path, change: str, step: str) -> None:
    """They have fewer windows than its number, and as many versions as the ones that it knows."""
    server, config, lines, orders = two_tables(tmp_path)
    server.commit((orders, "insert", 10, "a") if change == "insert" else (orders, "delete", 1, ""))

    def begin_anew() -> None:
        make_capture(server, config).stream()
        server.now += timedelta(seconds=1)
        reset = Reset(config, SimulatedClock(server))
        reset.check()
        reset.move_away(reset.removal())
        make_capture(server, config).snapshot()
        server.commit((lines, "insert", 40, "b"))
        make_capture(server, config).stream()

    asleep_at(step, begin_anew, lambda: make_capture(server, config).stream())
    read = [("r", key) for key in sorted(server.rows[orders])]
    server.commit((orders, "insert", 50, "c"))
    make_capture(server, config).stream()
    assert [(event.op, event.key) for event in events_of(config, orders)] == [*read, ("c", 50)]
    assert state_of(config).tables[orders].status == "healthy"


def test_a_run_that_wakes_writes_no_row_of_the_new_manifest(tmp_path: Path) -> None:
    """It has as many versions as the one that the run has claimed."""
    server, config, _, orders = two_tables(tmp_path)
    server.commit((orders, "insert", 10, "a"))
    log = tmp_path / "shop.__windows" / "_delta_log"

    def begin_anew() -> None:
        known = len(list(log.glob("*.json")))
        server.now += timedelta(seconds=1)
        reset = Reset(config, SimulatedClock(server))
        reset.move_away(reset.removal(), fence=True)
        make_capture(server, config).snapshot()
        while len(list(log.glob("*.json"))) < known:
            Manifest(TopicTables.of(config), "shop").claim(server.now)

    asleep_at("table-committed", begin_anew, lambda: make_capture(server, config).stream())
    server.commit((orders, "insert", 50, "c"))
    assert make_capture(server, config).stream().troubled == ()
    found = [event.key for event in events_of(config, orders)]
    assert sorted(found) == sorted(server.rows[orders])
