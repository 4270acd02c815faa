"""An engine's events arrive once, whatever happens to the run."""

import os
import random
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_assets.assembly.engine import new_engine_lake
from cdc_assets.connectors.engine import ledger
from cdc_assets.connectors.engine import run as engine_run
from cdc_assets.connectors.engine.feed import Chunk
from cdc_assets.connectors.engine.ledger import BatchLedger
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.connectors.engine.run import EngineRun
from cdc_assets.errors import EngineError, LakeError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.appends import CountingSink, appends_in_logs
from cdc_assets_tests.crashes import PowerCutError, cut_after, cut_at
from cdc_assets_tests.e2e.chains import CHECKPOINT
from cdc_assets_tests.unit.connectors.engine.batches import EVENTS, TOPICS, assert_each_once, config_for, held, run
from cdc_assets_tests.unit.connectors.engine.feeds import READY, ListFeed, event
from cdc_assets_tests.unit.lake.writing import join_all

SEEDS = int(os.environ.get("CDC_LAW_EXAMPLES", "2"))


def test_events_are_committed_in_their_order_and_acknowledged(tmp_path: Path) -> None:
    feed = ListFeed(EVENTS, range(4, 61, 4))
    summary = run(tmp_path, feed)
    assert_each_once(tmp_path)
    assert summary.batches == 5
    assert sum(summary.rows.values()) == 60
    assert feed.acknowledged == [3, 6, 9, 12, 15]
    assert feed.closed


def test_commits_take_little_of_a_backlogs_time(tmp_path: Path) -> None:
    class Slow(TopicTables):
        def commit(self, *given: Any) -> Any:
            time.sleep(0.2)
            return super().commit(*given)

    config = replace(config_for(tmp_path, 1000), batch_s=0.001)
    summary = EngineRun(
        config, Slow(Location.of(config.lake), "shop"), ListFeed(EVENTS, range(1, 61)), habits=READY
    ).run()
    assert_each_once(tmp_path)
    assert summary.batches <= 3


def test_a_run_that_was_stopped_for_an_hour_and_goes_on_is_not_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is there at the first poll after that; time alone proves no quiet."""
    passed_s = [0.0]
    monkeypatch.setattr(engine_run, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s[0]))

    class Stopped(ListFeed):
        polls = 0

        def next(self, timeout_s: float) -> Chunk | None:
            self.polls += 1
            found = None if self.polls == 3 else super().next(timeout_s)
            if found is None:
                passed_s[0] += 3600 if self.polls == 3 else 1
            return found

    config = replace(config_for(tmp_path, 1000), idle_timeout_s=10.0, max_duration_s=0.0)
    tables = TopicTables(Location.of(config.lake), "shop")
    EngineRun(config, tables, Stopped(EVENTS, range(10, 61, 10)), habits=READY).run()
    assert_each_once(tmp_path)


@pytest.mark.long
def test_a_run_goes_on_behind_the_last_batch_with_the_history_that_it_needs(tmp_path: Path) -> None:
    run(tmp_path, ListFeed(EVENTS[:30], range(3, 31, 3)))
    feed = ListFeed(EVENTS, range(3, 61, 3))
    run(tmp_path, feed)
    assert_each_once(tmp_path)
    [(offsets, history)] = feed.starts
    assert list(offsets) == [({"server": "shop"}, {"at": 30})]
    assert [record.split("create table ")[1][:-2] for record in history] == [f"t{end}" for end in range(3, 31, 3)]


@pytest.mark.combinations
@pytest.mark.parametrize("step", ["files-written", "batch-planned", "table-committed", "batch-complete"])
@pytest.mark.parametrize("times", [1, 4])
def test_a_run_may_die_at_any_step(tmp_path: Path, step: str, times: int) -> None:
    with suppress(PowerCutError), cut_at(step, times):
        run(tmp_path, ListFeed(EVENTS, range(4, 61, 4)))
    run(tmp_path, ListFeed(EVENTS, range(5, 61, 5)))
    assert_each_once(tmp_path)


def test_each_append_of_a_batch_is_one_call_of_the_sink_and_a_call_that_fails_is_repeated(tmp_path: Path) -> None:
    cut = cut_after(9)
    sink = CountingSink(before=cut)
    with pytest.raises(PowerCutError):
        run(tmp_path, ListFeed(EVENTS, range(4, 61, 4)), sink=sink)
    assert sink.landed == appends_in_logs(tmp_path)
    run(tmp_path, ListFeed(EVENTS, range(5, 61, 5)), sink=sink)
    assert_each_once(tmp_path)
    assert sink.landed == appends_in_logs(tmp_path)
    assert sink.landed.keys() == {*TOPICS, "shop.__engine_history"}


@pytest.mark.combinations
@pytest.mark.parametrize("step", CHECKPOINT)
@pytest.mark.parametrize("times", [1, 2])
def test_a_run_may_die_when_its_record_is_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, times: int
) -> None:
    monkeypatch.setattr(ledger, "_CHECKPOINT_EVERY", 3)
    with pytest.raises(PowerCutError), cut_at(step, times):
        run(tmp_path, ListFeed(EVENTS, range(4, 61, 4)))
    run(tmp_path, ListFeed(EVENTS, range(5, 61, 5)))
    assert_each_once(tmp_path)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_run_may_die_again_and_again_and_the_connector_repeat_itself(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - moments of kills
    for _ in range(5):
        ends = sorted({60, *chance.choices(range(1, 60), k=20)})
        feed = ListFeed(EVENTS, ends, again=chance.randrange(12), snapshot=chance.choice([0, 0, 15]))
        step = chance.choice(["files-written", "batch-planned", "table-committed", "batch-complete"])
        with suppress(PowerCutError), cut_at(step, chance.randrange(1, 5)):
            run(tmp_path, feed, rows=chance.randrange(1, 20))
    run(tmp_path, ListFeed(EVENTS, range(1, 61), again=5))
    assert_each_once(tmp_path)


@pytest.mark.parametrize(
    "connector",
    ["postgresql", *(pytest.param(name, marks=pytest.mark.long) for name in ("mysql", "mariadb", "oracle"))],
)
@pytest.mark.parametrize("step", ["batch-planned", "batch-complete"])
def test_a_run_may_die_after_each_batch_though_some_hold_nothing_but_repetitions(
    tmp_path: Path, connector: str, step: str
) -> None:
    """Their batches have no events, and the position that repetitions are told by is still that of the last event."""
    events = [event(number, topic=TOPICS[number % 3], connector=connector) for number in range(1, 41)]
    config = replace(config_for(tmp_path, rows=1), batch_s=0.0)
    for count in range(1, 16):
        with suppress(PowerCutError), cut_at(step, 1 + count % 5):
            EngineRun(
                config, TopicTables(Location.of(config.lake), "shop"), ListFeed(events, range(1, 41), again=4)
            ).run()
        ids = [row["key"]["id"] for row in held(tmp_path)]
        assert ids == list(range(1, len(ids) + 1))
    run(tmp_path, ListFeed(events, range(1, 41), again=4), rows=1)
    assert_each_once(tmp_path, events)


def test_a_snapshot_is_one_batch_and_begins_again_if_it_is_not_finished(tmp_path: Path) -> None:
    class Broken(ListFeed):
        def next(self, timeout_s: float) -> Chunk | None:
            if len(self._pending) == 2:
                raise EngineError("gone")
            return super().next(timeout_s)

    with pytest.raises(EngineError):
        run(tmp_path, Broken(EVENTS, range(5, 61, 5), snapshot=55))
    assert held(tmp_path) == []
    assert not list(tmp_path.rglob("w0*.parquet"))
    summary = run(tmp_path, ListFeed(EVENTS, range(5, 61, 5), snapshot=55))
    assert summary.batches == 2
    assert_each_once(tmp_path)


def test_events_without_a_key_stand_with_those_that_have_one(tmp_path: Path) -> None:
    """As the TRUNCATE of a table with a key does."""

    class WithTruncate(ListFeed):
        def _chunk(self, number: int, start: int, end: int) -> Chunk:
            chunk = super()._chunk(number, start, end)
            [lines] = chunk.lines
            return replace(chunk, lines=[replace(lines, structure=9, key=None)]) if start == 1 else chunk

    events = [event(number, topic="shop.t0") for number in (1, 2, 3)]
    events[1]["key"] = None
    run(tmp_path, WithTruncate(events, [1, 2, 3]))
    assert [row["key"] for row in held(tmp_path)] == [{"id": 1}, None, {"id": 3}]
    assert not (tmp_path / "shop.t0@2").exists()


@pytest.mark.long
def test_many_batches_are_folded(tmp_path: Path) -> None:
    run(tmp_path, ListFeed(EVENTS, range(1, 61)), rows=1)
    run(tmp_path, ListFeed(EVENTS, [60]))
    assert_each_once(tmp_path)
    events = DeltaTable(str(tmp_path / "shop.__batches")).to_pyarrow_table().column("event").to_pylist()
    assert events.count("state") == 1


def test_a_topic_table_that_is_gone_is_no_fresh_table(tmp_path: Path) -> None:
    run(tmp_path, ListFeed(EVENTS[:30], [30]))
    (tmp_path / "shop.t1").rename(tmp_path / "elsewhere")
    with pytest.raises(LakeError, match=r"shop\.t1 must hold batch 0, and holds none"):
        run(tmp_path, ListFeed(EVENTS, [60]))
    (tmp_path / "elsewhere").rename(tmp_path / "shop.t1")
    run(tmp_path, ListFeed(EVENTS, [60]))
    assert_each_once(tmp_path)


class Anew(ListFeed):
    """Each start takes a snapshot first, as `when_needed` does if the source has forgotten the rest; offsets are a binlog's."""

    def _chunk(self, number: int, start: int, end: int) -> Chunk:
        place = {"file": "bin.000001", "pos": end, "at": end}
        return replace(super()._chunk(number, start, end), offsets=[({"server": "shop"}, place)], anew=number == 1)


@pytest.mark.parametrize("step", [None, "files-written", "batch-planned", "table-committed"])
def test_a_connector_that_begins_anew_leaves_a_gap_that_is_recorded(tmp_path: Path, step: str | None) -> None:
    def gaps() -> list[tuple[str, str, int]]:
        found = BatchLedger(TopicTables(Location.of(config_for(tmp_path).lake), "shop"), "shop").read().gaps
        return [(gap.begin, gap.end, gap.batch_id) for gap in found]

    run(tmp_path, Anew(EVENTS[:20], range(10, 21, 10)))
    assert gaps() == []
    if step:
        with suppress(PowerCutError), cut_at(step):
            run(tmp_path, Anew(EVENTS, range(20, 61, 20)), rows=20)
    run(tmp_path, Anew(EVENTS, range(20, 61, 20)), rows=20)
    assert gaps()[0] == ("bin.000001:20", "bin.000001:40", 2)
    run(tmp_path, Anew(EVENTS, range(20, 61, 20)), rows=20)
    assert gaps()[0] == ("bin.000001:20", "bin.000001:40", 2)


class WithHeartbeats(ListFeed):
    """Sends a heartbeat whenever nothing is new."""

    sent = 0

    def next(self, timeout_s: float) -> Chunk | None:
        self.sent += 1
        time.sleep(0.001)
        lines = replace(self._chunk(1, 0, 1).lines[0], topic="__debezium-heartbeat.shop", structure=99)
        return Chunk(self.sent, [lines], 1, [({"server": "shop"}, {"at": 1})])


def test_heartbeats_do_not_keep_a_run_alive(tmp_path: Path) -> None:
    summary = run(tmp_path, WithHeartbeats(EVENTS, []))
    assert summary.ended == "idle"
    assert set(summary.rows) == {"__debezium-heartbeat.shop"}


@pytest.mark.long
def test_small_files_are_joined_between_batches(tmp_path: Path) -> None:
    given = config_for(tmp_path, rows=1)
    config = replace(given, lake=replace(given.lake, compact_after_files=5))
    tables = TopicTables(Location.of(config.lake), "shop")
    EngineRun(config, tables, ListFeed(EVENTS, range(1, 61)), habits=READY).run()
    assert_each_once(tmp_path)
    for topic in TOPICS:
        assert len(DeltaTable(str(tmp_path / topic)).file_uris()) < 6
    run(tmp_path, ListFeed(EVENTS, [60], again=5))
    assert_each_once(tmp_path)


@pytest.mark.long
def test_events_that_another_program_puts_in_twice_are_undone(tmp_path: Path) -> None:
    given = config_for(tmp_path, rows=1)
    run(tmp_path, ListFeed(EVENTS, range(1, 61)), rows=1)
    tables = TopicTables(Location.of(given.lake), "shop")
    for topic in TOPICS:
        late = DeltaTable(str(tmp_path / topic))
        assert join_all(tables, topic)
        late.optimize.compact()
    assert EngineOverview(given).losses.keys() == set(TOPICS)
    run(tmp_path, ListFeed(EVENTS, [60], again=5))
    assert_each_once(tmp_path)
    assert not EngineOverview(given).losses


class Slow(ListFeed):
    """Takes its time for each chunk, as a long snapshot does."""

    def next(self, timeout_s: float) -> Chunk | None:
        time.sleep(0.02)
        return super().next(timeout_s)


def test_no_deadline_ends_a_snapshot(tmp_path: Path) -> None:
    """It would begin again with each run, and never end."""
    config = replace(config_for(tmp_path), max_duration_s=0.1, idle_timeout_s=60.0)
    tables = TopicTables(Location.of(config.lake), "shop")
    summary = EngineRun(config, tables, Slow(EVENTS, range(2, 61, 2), snapshot=55)).run()
    assert summary.ended == "deadline"
    assert [row["key"]["id"] for row in held(tmp_path)][:56] == list(range(1, 57))


class Preparing(ListFeed):
    """A connector that prepares its snapshot for longer than a run may be quiet."""

    looks = 0

    def next(self, timeout_s: float) -> Chunk | None:
        self.looks += 1
        self.snapshot = self.looks < 30
        time.sleep(0.002)
        return super().next(timeout_s) if not self.snapshot else None


def test_no_quiet_ends_a_snapshot(tmp_path: Path) -> None:
    run(tmp_path, Preparing(EVENTS, range(5, 61, 5)))
    assert_each_once(tmp_path)


def test_an_empty_offset_is_no_place_to_begin_at(tmp_path: Path) -> None:
    """As that of a notification before the first snapshot: a connector that is given one does not start."""

    class Notified(ListFeed):
        def _chunk(self, number: int, start: int, end: int) -> Chunk:
            chunk = super()._chunk(number, start, end)
            return replace(chunk, offsets=[({"server": "shop"}, {})]) if start == 0 else chunk

    run(tmp_path, Notified(EVENTS[:1], [1]))
    feed = ListFeed(EVENTS[1:], [1])
    run(tmp_path, feed)
    assert feed.starts[0][0] == []


@pytest.mark.long
def test_nothing_is_read_into_a_folder_in_which_the_lake_is_missing(tmp_path: Path) -> None:
    """It is not mounted: the connector would begin anew."""
    lake = tmp_path / "lake"
    run(lake, ListFeed(EVENTS[:30], range(4, 31, 4)))
    lake.rename(tmp_path / "unmounted")
    with pytest.raises(LakeError, match="not mounted"):
        _ = EngineOverview(config_for(lake)).state
    with pytest.raises(LakeError, match="not mounted"):
        run(lake, ListFeed(EVENTS, range(4, 61, 4)))
    assert held(lake) == []
    new_engine_lake(config_for(lake)).begin()
    run(lake, ListFeed(EVENTS, range(4, 61, 4)))
    assert_each_once(lake)
