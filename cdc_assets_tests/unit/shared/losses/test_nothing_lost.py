"""Nothing is lost: no alarm, no needless work, and names that are refused or give no numbers."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from cdc_assets.capture import housekeeping
from cdc_assets.errors import ConfigurationError
from cdc_assets.ledger import manifest_rows
from cdc_assets.shared import losses
from cdc_assets_tests.unit.shared.losses.losing import lose_newest_file
from cdc_assets_tests.unit.shared.losses.world import World, make_world
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.loop_runner import LoopRunner
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import two_tables

pytestmark = pytest.mark.delta_rs


@pytest.mark.long
def test_upkeep_raises_no_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_rows, "_CHECKPOINT_EVERY", 3)
    world = make_world(tmp_path / "lake", compact_after_files=2, retention_hours=0, transaction_metadata=True)
    for key in range(60, 66):
        world.insert(key)
        assert world.stream().troubled == ()
    DeltaTable(str(world.topic(world.orders))).optimize.compact()
    DeltaTable(str(world.topic(world.lines))).delete("position < '0000002a:00000004'")
    assert world.stream().troubled == (), "somebody else joined files, or deleted events on purpose"
    world.insert(70)
    assert world.stream().troubled == ()


@pytest.mark.long
def test_a_start_without_time_sees_the_newest_commits_and_a_window_sees_the_rest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "_SECONDS", 0.0)
    orders = world.topic(world.orders)
    (orders / min(DeltaTable(str(orders)).get_add_actions()["path"].to_pylist())).unlink()
    assert world.stream().troubled == ()
    world.insert(60)
    [trouble] = world.stream().troubled
    assert (trouble.table, trouble.status) == (world.orders, "gap")
    world.check_promise()
    lose_newest_file(world.topic(world.lines))
    assert [trouble.table for trouble in world.stream().troubled] == [world.lines]


def test_a_table_that_lost_nothing_costs_no_commit_of_the_manifest(world: World) -> None:
    """Of two tables one changes, so a run compares it alone before it commits to it."""
    world.server.commit((world.orders, "insert", 60, "a"))
    world.stream()
    manifest = world.lake / "shop.__windows"
    rows = DeltaTable(str(manifest)).to_pyarrow_table().sort_by("sequence").to_pylist()
    assert [row["event"] for row in rows[-3:]] == ["claim", "planned", "complete"]


@pytest.mark.long
def test_a_quiet_topic_with_many_commits_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a snapshot of many rounds, in which nothing looks for commits of others."""
    monkeypatch.setattr(housekeeping, "_COMPARE_EVERY", timedelta())
    for module in ("rounds._ROUND_SLICES", "rounds.MIN_SLICE", "plan.MIN_SLICE"):
        monkeypatch.setattr(f"cdc_assets.snapshot.{module}", 1)
    server = SimulatedServer()
    lines, orders = server.create("lines", rows=60), server.create("orders", rows=1)
    server.idle_tick()
    config = make_config(str(tmp_path), threads=1, slices_per_thread=60)

    def audits() -> int:
        rows = DeltaTable(str(tmp_path / "shop.__windows")).to_pyarrow_table()
        return int(rows["event"].to_pylist().count("audit"))

    def stream(key: int) -> None:
        server.commit((orders, "insert", key, "a"))
        make_capture(server, config, LoopRunner(1)).stream()

    make_capture(server, config, LoopRunner(1)).snapshot()
    before = audits()
    for key in (60, 61):
        stream(key)
    mark, recorded = state_of(config).marks[f"shop.{lines}"], audits()
    assert mark.version > 8
    assert min(mark.counted, mark.checked) >= mark.version - 1
    assert recorded <= before + 2
    for key in (62, 63):
        stream(key)
    assert audits() == recorded, "it is recorded once"


@pytest.mark.long
def test_renamed_topic_of_heartbeats_gives_no_numbers_to_windows(tmp_path: Path) -> None:
    """Its commits have times for numbers."""
    server, config, lines, _ = two_tables(tmp_path)
    beating = replace(config, heartbeat=replace(config.heartbeat, interval_s=1.0))
    make_capture(server, beating).snapshot([lines])
    server.commit((lines, "insert", 6, "a"))
    make_capture(server, beating).stream()
    number = state_of(config).next_window
    assert state_of(config).marks["__debezium-heartbeat.shop"].timed
    renamed = replace(beating, heartbeat=replace(beating.heartbeat, topic_name="beats"))
    server.commit((lines, "insert", 7, "a"))
    make_capture(server, renamed).stream()
    assert state_of(config).next_window == number + 1


@pytest.mark.parametrize("streamed", [False, True])
def test_another_name_of_a_topic_is_refused(tmp_path: Path, streamed: bool) -> None:
    """It would split the topic."""
    server, config, lines, orders = two_tables(tmp_path)
    server.commit((lines, "insert", 5, "five"), (orders, "insert", 5, "five"))
    if streamed:
        make_capture(server, config).stream()
    other = replace(config, events=replace(config.events, topic_delimiter="_"))
    running = make_capture(server, config)
    running.claim()
    for run in (make_capture(server, other).stream, make_capture(server, other).snapshot):
        with pytest.raises(
            ConfigurationError, match=r"'shop_SalesDb_dbo_\w+' is not valid: expected shop\.SalesDb\.dbo\."
        ):
            run()
    assert not list(tmp_path.glob("shop_*"))
    assert running.stream().troubled == (), "it was not overtaken"
    assert [event.key for event in events_of(config, lines) if event.op == "c"] == [5]
