"""A connector that starts over, after which no event is compared with the log before."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.connectors.engine.feed import Chunk, Lines, Offsets
from cdc_assets.connectors.engine.ledger import FOLDING, Batch, BatchState, Gap
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.connectors.engine.run import EngineRun, EngineSummary
from cdc_assets.connectors.engine.source import LogPoint, binlog_point
from cdc_assets.core.signal import Signal
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.codec import encode
from cdc_assets.ledger.fenced_log import Row
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.connectors.engine.batches import config_for, held, run
from cdc_assets_tests.unit.connectors.engine.feeds import READY, ListFeed, event

STEPS = [None, "files-written", "batch-planned", "table-committed", "batch-complete"]


class Log(ListFeed):
    """A connector of one log, which starts over with the events of a snapshot if it is given offsets of another log."""

    def __init__(self, name: str, events: Sequence[dict[str, Any]], ends: Sequence[int]) -> None:
        super().__init__(events, ends)
        self._name = name

    def __call__(self, offsets: Offsets, history: Sequence[str]) -> ListFeed:
        return super().__call__([pair for pair in offsets if pair[1]["log"] == self._name], history)

    def _chunk(self, number: int, start: int, end: int) -> Chunk:
        source = self._events[end - 1]["value"]["source"]
        place: dict[str, Any] = {"log": self._name, "at": end}
        if source["connector"] == "postgresql":
            before, own = json.loads(source["sequence"])
            place |= {"lsn": int(own)} | ({"lsn_commit": int(before)} if before else {})
        else:
            place |= {"file": source["file"], "pos": source["pos"]}
        return replace(super()._chunk(number, start, end), offsets=[({"server": "shop"}, place)], anew=start == 0)


def binlog(number: int, file: int, pos: int, snapshot: str | None = None) -> dict[str, Any]:
    made = event(number, topic="shop.t0")
    made["value"]["source"] |= {"file": f"bin.{file:06}", "pos": pos, "row": 0, "snapshot": snapshot}
    return made


def wal(number: int, before: int | None, own: int, snapshot: str | None = None) -> dict[str, Any]:
    made = event(number, topic="shop.t0", connector="postgresql")
    sequence = json.dumps([before and str(before), str(own)])
    made["value"]["source"] |= {"sequence": sequence, "txId": str(own), "snapshot": snapshot}
    return made


RESET = [binlog(1, 5, 800), binlog(2, 5, 900)]
AFTER_RESET = [
    *(binlog(1, 1, 200, "first"), binlog(2, 1, 200, "last")),
    *(binlog(3, 1, 300), binlog(4, 1, 400), binlog(5, 1, 500), binlog(6, 2, 300)),
]
DROPPED = [wal(1, None, 900), wal(2, 1000, 1100)]
AFTER_DROP = [
    *(wal(1, None, 5000, "first"), wal(2, None, 5000, "last")),
    *(wal(3, None, 6000), wal(4, None, 6010), wal(5, None, 6020), wal(6, 6030, 6040)),
]
AFTER_DUMP = [
    *(wal(1, None, 50, "first"), wal(2, None, 50, "last")),
    *(wal(3, None, 60), wal(4, None, 61), wal(5, 65, 70), wal(6, 75, 80)),
]


@pytest.mark.combinations
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("before", "after"),
    [(RESET, AFTER_RESET), (DROPPED, AFTER_DROP), (DROPPED, AFTER_DUMP)],
    ids=["binlog-reset", "slot-dropped", "other-server"],
)
def test_changes_of_the_run_behind_a_new_snapshot_are_new(
    tmp_path: Path, before: list[dict[str, Any]], after: list[dict[str, Any]], step: str | None
) -> None:
    """The snapshot's run has ended before any of them: its rows have no position, and the recorded one is of the former log."""
    run(tmp_path, Log("old", before, [2]))
    for known, ends in ((2, [2]), (5, [2, 5]), (6, [2, 5, 6])):
        if step:
            with suppress(PowerCutError), cut_at(step):
                run(tmp_path, Log("new", after[:known], ends))
        run(tmp_path, Log("new", after[:known], ends))
    assert [row["key"]["id"] for row in held(tmp_path)] == [1, 2, 1, 2, 3, 4, 5, 6]
    assert len(EngineOverview(config_for(tmp_path)).state.gaps) == 1


class Waiting(Log):
    """A connector that takes some time before it reads."""

    polls = 0

    def next(self, timeout_s: float) -> Chunk | None:
        self.polls += 1
        self.started = self.polls > 5
        return super().next(timeout_s) if self.started else None


def test_a_goal_is_not_reached_by_what_is_recorded_of_a_former_longer_log(tmp_path: Path) -> None:
    run(tmp_path, Log("old", RESET, [2]))
    config = replace(config_for(tmp_path), idle_timeout_s=60.0, batch_s=0.01)
    tables = TopicTables(Location.of(config.lake), "shop")

    def pursued(known: int, goal: LogPoint) -> EngineSummary:
        feed = Waiting("new", AFTER_RESET[:known], sorted({2, known}))
        return EngineRun(config, tables, feed, goal=goal, habits=READY).run()

    for known, goal, batches in ((2, 200, 1), (2, 200, 0), (4, 350, 1)):
        summary = pursued(known, binlog_point("bin.000001", goal))
        assert (summary.ended, summary.batches) == ("goal", batches)
    assert [row["key"]["id"] for row in held(tmp_path)] == [1, 2, 1, 2, 3, 4]


def row(name: str, detail: dict[str, Any]) -> Row:
    return {"event": name, "detail": json.dumps(detail), "at": datetime(2026, 1, 1, tzinfo=UTC)}


def planned(batch: Batch) -> Row:
    return row("planned", {"batch": encode(batch)})


def test_the_boundary_of_a_former_log_is_forgotten() -> None:
    first = Batch(0, {}, [], 1, (5, 900, 0), ("file=bin.000005,pos=900", "END"))
    state = FOLDING.state([planned(first)])
    assert (state.place, state.boundary) == ((5, 900, 0), ("file=bin.000005,pos=900", "END"))
    assert FOLDING.onward([planned(Batch(1, {}, [], 1))], state).boundary == state.boundary
    anew = FOLDING.onward([planned(Batch(1, {}, [], 1, anew=True))], state)
    assert (anew.place, anew.boundary) == (None, None)


def test_a_place_that_an_older_version_has_folded_behind_a_gap_is_forgotten() -> None:
    """It kept the place of the former log, and its fold does not say of which batch the place is."""
    gap = Gap("bin.000005:900", "bin.000001:200", 1)
    old = encode(BatchState(next_batch=3, place=(5, 900, 0), boundary=("a", "END"), gaps=(gap,)))
    del old["placed"]
    state = FOLDING.state([row("state", old)])
    assert (state.place, state.boundary) == (None, ("a", "END"))
    del old["gaps"]
    assert FOLDING.state([row("state", old)]).place == (5, 900, 0)
    later = FOLDING.onward([planned(Batch(3, {}, [], 1, (1, 300, 0)))], state)
    assert FOLDING.state([row("state", dict(FOLDING.encode(later)))]) == later
    assert later.place == (1, 300, 0)


def test_tables_that_an_older_version_has_folded_as_read_are_still_read() -> None:
    """It kept their names only, and no lists but the first ones."""
    old = encode(BatchState(next_batch=3, lists={"table.include.list": "a"}))
    del old["read_at"], old["later_lists"]
    state = FOLDING.state([row("state", old | {"read": ["shop.db.b"]})])
    assert (state.later_lists, state.read_at) == ((), {"shop.db.b": 0})
    wide = {"table.include.list": "a,b"}
    later = FOLDING.onward([planned(Batch(3, {}, [], 1, lists=wide, read=["shop.db.c"]))], state)
    assert (later.lists, later.later_lists) == (state.lists, (wide,))
    assert later.read_at == {"shop.db.b": 0, "shop.db.c": 1}
    assert FOLDING.state([row("state", dict(FOLDING.encode(later)))]) == later


def test_tables_that_were_read_in_the_batch_of_the_first_snapshot_are_read() -> None:
    read = Batch(0, {}, [], 1, anew=True, lists={"table.include.list": "a"}, read=["db.b"])
    assert FOLDING.state([planned(read)]).read_at == {"db.b": 0}
    assert FOLDING.state([planned(replace(read, lists=None))]).read_at == {}


class Scanned(ListFeed):
    """A connector that reports the end of a requested scan with its first snapshot."""

    def _chunk(self, number: int, start: int, end: int) -> Chunk:
        texts = [{"type": "string", "optional": True, "field": name} for name in ("type", "scanned_collection")]
        more = {"type": "struct", "optional": True, "field": "additional_data", "fields": texts[1:]}
        schema = {"type": "struct", "optional": False, "name": "n.Value", "fields": [texts[0], more]}
        value = {"type": "TABLE_SCAN_COMPLETED", "additional_data": {"scanned_collection": "db.t1"}}
        line = json.dumps({"n": end, "key": None, "value": value, "headers": []}).encode() + b"\n"
        chunk = super()._chunk(number, start, end)
        return replace(chunk, lines=[*chunk.lines, Lines("shop.notes", 9, None, schema, 1, 1000, line)], anew=True)


def test_a_scan_that_ends_in_the_batch_of_the_first_snapshot_is_recorded(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    sink = {"notification.enabled.channels": "sink", "notification.sink.topic.name": "shop.notes"}
    config = replace(config, properties={**config.properties, **sink})
    tables = TopicTables(Location.of(config.lake), "shop")
    request = Signal("s", "execute-snapshot", '{"type": "blocking", "data-collections": ["db.t1"]}')
    EngineRun(config, tables, Scanned([event(1, topic="shop.t0", op="r")], [1]), habits=READY).run([request])
    assert EngineOverview(config).state.read_at == {"db.t1": 0}


@pytest.mark.parametrize("place", [None, (1, 300, 0)])
def test_a_fold_behind_a_gap_is_the_fold_of_its_rows(place: tuple[int, ...] | None) -> None:
    gap = ("bin.000005:900", "bin.000001:200")
    rows = [planned(Batch(0, {}, [], 1, (5, 900, 0))), planned(Batch(1, {}, [], 1, place, gap=gap, anew=True))]
    state = FOLDING.state(rows)
    assert state.place == place
    assert FOLDING.state([row("state", dict(FOLDING.encode(state)))]) == state
