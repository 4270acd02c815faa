"""What a topic loses is noticed also if another program commits to it at the same time."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_assets.core.steps import listening
from cdc_assets.errors import LakeAwayError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
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
    monkeypatch.setattr("cdc_assets.capture.foreign.CHECK_EVERY_S", 0.0)
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
    monkeypatch.setattr("cdc_assets.capture.foreign.CHECK_EVERY_S", 1e9)
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


def newest_commit(table: Path) -> Path:
    return table / "_delta_log" / f"{DeltaTable(str(table)).version():020d}.json"


def lose_by_rewriting(table: Path) -> None:
    """Another program joins all files, and forgets what it has joined."""
    DeltaTable(str(table)).optimize.compact()
    actions = [json.loads(line) for line in newest_commit(table).read_text().splitlines()]
    newest_commit(table).write_text("".join(json.dumps(action) + "\n" for action in actions if "add" not in action))


OTHERS: dict[str, Callable[[Path], object]] = {
    "append": lambda table: append(table, 3),
    "deletion": lambda table: DeltaTable(str(table)).delete("value['after']['id'] = 2"),
    "lossy rewrite": lose_by_rewriting,
}


@pytest.mark.long
@pytest.mark.parametrize(("owner", "name"), [(TopicTables, "recounted"), (Manifest, "record_audit")])
@pytest.mark.parametrize("act", OTHERS.values(), ids=OTHERS)
def test_what_others_did_is_told_also_if_the_store_was_away_just_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object], owner: type, name: str
) -> None:
    monkeypatch.setattr("cdc_assets.capture.foreign.CHECK_EVERY_S", 0.0)
    server = SimulatedServer()
    lines = server.create("lines", rows=3)
    server.idle_tick()
    config = make_config(str(tmp_path), slices=1)
    make_capture(server, config).snapshot()
    topic, left, away = f"shop.{lines}", [1, 2, 3, 4], list[bool]()
    answer = getattr(owner, name)

    def sometimes(*args: object, **more: object) -> object:
        if away:
            away.clear()
            raise LakeAwayError("The store does not answer. Next: wait.")
        return answer(*args, **more)

    def work(step: str) -> None:
        if step != "window-complete" or not left:
            return
        if left.pop() == 3:
            act(tmp_path / topic)
            away.append(True)
        server.commit((lines, "insert", 60 + len(left), "a"))

    monkeypatch.setattr(owner, name, sometimes)
    server.commit((lines, "insert", 50, "a"), (lines, "insert", 51, "a"))
    with listening(work):
        make_capture(server, config).stream()
    assert not away
    assert len(state_of(config).marks[topic].foreign) == 1
    assert bool(state_of(config).tables[lines].gaps) == (act is lose_by_rewriting)


@pytest.mark.long
@pytest.mark.delta_rs
@pytest.mark.parametrize("rows", [0, 2])
def test_a_topic_that_others_made_unreadable_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr("cdc_assets.capture.foreign.CHECK_EVERY_S", 0.0)
    monkeypatch.setattr("cdc_assets.capture.housekeeping._COMPARE_EVERY", timedelta())
    server = SimulatedServer()
    lines, orders = server.create("lines", rows=3), server.create("orders", rows=1)
    server.idle_tick()
    config = make_config(str(tmp_path), slices=1)
    make_capture(server, config).snapshot()
    table, left = tmp_path / f"shop.{lines}", [1, 2, 3]
    unknown = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["somethingNew"],
        "writerFeatures": ["somethingNew"],
    }

    def work(step: str) -> None:
        if step != "window-complete" or not left:
            return
        if left.pop() == 2:
            if rows:
                append(table, rows)
            behind = newest_commit(table).with_name(f"{DeltaTable(str(table)).version() + 1:020d}.json")
            behind.write_text(json.dumps({"protocol": unknown}) + "\n")
        server.commit((orders, "insert", 60 + len(left), "a"))

    server.commit((orders, "insert", 50, "a"))
    with listening(work):
        troubled = make_capture(server, config).stream().troubled
    assert [(one.table, one.status) for one in troubled] == [(lines, "failed")]
    assert [event.key for event in events_of(config, orders)] == [1, 50, 62, 61, 60]


@pytest.mark.long
@pytest.mark.delta_rs
def test_rows_that_are_lost_behind_more_commits_than_the_log_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a long snapshot, in which nothing looks for commits of others; these then append as many as were lost."""
    monkeypatch.setattr("cdc_assets.capture.foreign.CHECK_EVERY_S", 1e9)
    monkeypatch.setattr("cdc_assets.lake.delta_log._GRACE_S", 0.0)
    monkeypatch.setattr("cdc_assets.lake.delta_log.MIN_COMMITS", 25)
    server = SimulatedServer()
    lines = server.create("lines", rows=3)
    server.idle_tick()
    config = make_config(str(tmp_path), slices=1, compact_after_files=0, log_commits=25)
    make_capture(server, config).snapshot()
    table, left = tmp_path / f"shop.{lines}", list(range(76))

    def work(step: str) -> None:
        if step != "window-complete" or not left:
            return
        if left.pop():
            server.commit((lines, "insert", 100 + len(left), "a"))
            return
        lost = table / "_delta_log" / f"{DeltaTable(str(table)).version() - 2:020d}.json"
        lost.write_text("".join(f"{action}\n" for action in lost.read_text().splitlines() if '"add"' not in action))
        append(table, 3)

    server.commit((lines, "insert", 50, "a"), (lines, "insert", 51, "a"))
    with listening(work):
        make_capture(server, config).stream()
    assert not newest_commit(table).with_name(f"{1:020d}.json").exists()
    assert state_of(config).tables[lines].gaps
