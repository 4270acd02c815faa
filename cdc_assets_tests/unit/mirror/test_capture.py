"""Mirrors of captured tables: kills, two writers, what is refused, what is read again, tables of several leaves."""

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.build import build_config
from cdc_assets.config.load import load_config
from cdc_assets.config.settings import ColumnRule
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.steps import VARIABLE, listening
from cdc_assets.errors import ConfigurationError, FencedError, InvalidValueError, LakeError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.mirror import leaves, steps
from cdc_assets.mirror.capture import CaptureMirrors, has_mirror
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.mirror.work import StepReport
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.descriptions import call
from cdc_assets_tests.e2e.chains import CHECKPOINT, MIRROR
from cdc_assets_tests.unit.config.minimum import MINIMUM
from cdc_assets_tests.unit.mirror.child import mirrors_of
from cdc_assets_tests.unit.mirror.world import TOPIC, World, content, ordered
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.warm import run_module
from mssql_standin.control import StandIn


@pytest.mark.parametrize("name", ["SalesDb.dbo.signals", "salesdb.dbo.signals"])
def test_signal_table_has_no_mirror(name: str) -> None:
    """Its rows are requests; letter case of the database's name in the settings is ignored."""
    own = {"mirror.enabled": "true", "signal.data.collection": name, "database.names": name.partition(".")[0]}
    config = build_config(MINIMUM | own)
    assert not has_mirror(config, TableId("SalesDb", "dbo", "signals"))
    assert has_mirror(config, TableId("SalesDb", "dbo", "orders"))


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


@pytest.fixture
def world(server: StandIn, tmp_path: Path) -> World:
    made = World(server, tmp_path / "lake", "id int NOT NULL PRIMARY KEY, note nvarchar(50), big nvarchar(max)")
    made.execute("INSERT INTO dbo.t VALUES (1, N'a', N'A'), (2, N'b', N'B'), (3, N'c', NULL)")
    made.capture("snapshot")
    made.mirror()
    made.execute("UPDATE dbo.t SET note = N'changed' WHERE id < 3")
    made.execute("DELETE FROM dbo.t WHERE id = 3")
    made.execute("UPDATE dbo.t SET id = 7 WHERE id = 2")
    made.execute("INSERT INTO dbo.t VALUES (4, N'd', N'D')")
    made.capture()
    return made


FOLDS = [f"{step}:{times}" for step in CHECKPOINT for times in (1, 2)]
"""A row of a step's plan is folded; one of its end is."""


@pytest.mark.parametrize(("step", "fold_every"), [*((step, 50) for step in MIRROR), *((step, 1) for step in FOLDS)])
def test_a_killed_step_is_repeated_with_the_same_result(
    world: World, tmp_path: Path, step: str, fold_every: int
) -> None:
    undisturbed = tmp_path / "undisturbed"
    shutil.copytree(world.lake, undisturbed)
    mirrors_of(str(undisturbed)).catch_up()
    arguments = [str(world.lake), str(fold_every)]
    done = run_module("cdc_assets_tests.unit.mirror.child", *arguments, environment={VARIABLE: step})
    assert done.returncode == -signal.SIGKILL, done.said
    world.mirror()
    assert content(world.lake) == content(undisturbed)
    assert ordered(world.rows()) == ordered(world.on_server("id, note, big"))
    states = mirrors_of(str(world.lake)).states()
    assert (states[TOPIC].step, states[TOPIC].pending) == (2, None)


def test_a_writer_that_was_overtaken_stops_and_changes_nothing(world: World) -> None:
    """It was believed dead: another one has carried its step out meanwhile."""
    late = CaptureMirrors(world.config, LocalRunner(1), SystemClock())
    reached = []

    def overtake(name: str) -> None:
        if name == "mirror-folded" and not reached:
            reached.append(name)
            world.mirror()

    with listening(overtake), pytest.raises(FencedError):
        late.catch_up()
    assert ordered(world.rows()) == ordered(world.on_server("id, note, big"))
    versions = MirrorReader(late.tables, TOPIC).versions().to_pylist()
    assert len(versions) == len({(row["id"], row["_valid_from_lsn"]) for row in versions})


def test_rows_as_of_an_lsn_stay_when_a_step_is_committed_after_the_state_was_read(world: World) -> None:
    """What has ended since must not be missing from `history` as if `current` still had it."""
    mirrors = mirrors_of(str(world.lake))
    state = mirrors.states()[TOPIC]
    reader, lsn = MirrorReader.of(mirrors.tables, TOPIC, state), Lsn.parse(state.lsn)
    before = {row["id"] for row in reader.as_of(lsn).to_pylist()}
    assert before == {1, 2, 3}
    mirrors.catch_up()
    assert {row["id"] for row in reader.as_of(lsn).to_pylist()} == before


def test_versions_are_not_read_between_the_two_commits_of_a_rebuild(world: World) -> None:
    """It has replaced `history`: what it has ended must not be missing as if it had never been."""
    world.mirror()
    reader = MirrorReader(mirrors_of(str(world.lake)).tables, TOPIC)
    before = ordered(reader.versions().to_pylist())
    with cut_at("mirror-history-committed"), pytest.raises(PowerCutError):
        world.mirror(anew=True)
    with pytest.raises(LakeError, match="is being rebuilt"):
        reader.versions()
    world.mirror()
    assert ordered(reader.versions().to_pylist()) == before


@pytest.mark.long
@pytest.mark.parametrize("commits", [0, 25])
def test_a_mirror_that_was_rebuilt_is_not_read_by_what_was_known_of_the_one_before(world: World, commits: int) -> None:
    """It may be right from a later LSN on, when old events were dropped; other programs may have made commits since."""
    mirrors = mirrors_of(str(world.lake))
    state = mirrors.states()[TOPIC]
    reader = MirrorReader.of(mirrors.tables, TOPIC, state)
    world.mirror(anew=True)
    for number in range(commits):
        about = CommitProperties(custom_metadata={"step": "of another program"})
        own = {"delta.logRetentionDuration": f"interval {30 + number} days"}
        DeltaTable(str(world.lake / f"{TOPIC}.__history")).alter.set_table_properties(own, commit_properties=about)
    with pytest.raises(LakeError, match="was rebuilt since"):
        reader.as_of(Lsn.parse(state.lsn))
    reader = MirrorReader.of(mirrors.tables, TOPIC, mirrors.states()[TOPIC])
    assert {row["id"] for row in reader.as_of(Lsn.parse(state.lsn)).to_pylist()} == {1, 2, 3}


def test_versions_are_those_of_one_moment_though_the_mirror_is_rebuilt_meanwhile(world: World) -> None:
    world.mirror()
    left = [True]

    class Late(MirrorReader):
        def _listed_at_step(self) -> Any:
            found = super()._listed_at_step()
            if left:
                left.pop()
                world.mirror(anew=True)
            return found

    reader = Late(mirrors_of(str(world.lake)).tables, TOPIC)
    found = ordered(reader.versions().to_pylist())
    assert (found, left) == (ordered(reader.versions().to_pylist()), [])


def test_versions_tell_what_ended_them_and_as_of_an_lsn(world: World) -> None:
    mirrors = mirrors_of(str(world.lake))
    before = Lsn.parse(mirrors.states()[TOPIC].lsn)
    mirrors.catch_up()
    state = mirrors.states()[TOPIC]
    reader = MirrorReader(mirrors.tables, TOPIC, state.lsn)
    assert {row["id"]: (row["note"], row["big"]) for row in reader.as_of(before).to_pylist()} == {
        1: ("a", "A"), 2: ("b", "B"), 3: ("c", None)
    }  # fmt: skip
    ended = [(row["id"], row["_operation"]) for row in reader.versions().to_pylist() if row["_valid_to_lsn"]]
    assert sorted(ended) == [(1, "u"), (2, "d"), (2, "u"), (3, "d")]
    with pytest.raises(InvalidValueError, match="up to"):
        reader.as_of(Lsn.parse(state.lsn).next())


def test_a_mirror_that_is_made_anew_is_the_same(world: World) -> None:
    world.mirror()
    rows = content(world.lake)
    world.mirror(anew=True)
    assert content(world.lake) == rows


@pytest.mark.long
def test_a_mirror_that_is_made_anew_while_a_snapshot_is_ahead_of_the_stream_misses_nothing(world: World) -> None:
    """It cannot be made anew yet; nor does it pass over what it has not taken."""
    world.execute("DELETE FROM dbo.t WHERE id = 1")
    config, world.config = world.config, replace(world.config, snapshot=replace(world.config.snapshot, mode="always"))
    world.capture("snapshot")
    assert "cannot be rebuilt now" in str(world.follow(anew=True))
    world.config = config
    world.capture()
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("id, note, big"))


@pytest.mark.parametrize("step", ["mirror-planned", "mirror-committed"])
def test_a_step_in_flight_is_not_taken_for_the_one_that_makes_a_mirror_anew(world: World, step: str) -> None:
    with cut_at(step), pytest.raises(PowerCutError):
        mirrors_of(str(world.lake)).catch_up()
    world.execute("INSERT INTO dbo.t VALUES (8, N'h', N'H')")
    world.capture()
    world.mirror(anew=True)
    assert ordered(world.rows()) == ordered(world.on_server("id, note, big"))


@pytest.mark.long
def test_a_mirror_whose_tables_are_gone_is_made_anew(world: World) -> None:
    world.mirror()
    shutil.rmtree(world.lake / f"{TOPIC}.__current")
    world.execute("INSERT INTO dbo.t VALUES (5, N'e', N'E')")
    world.capture()
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("id, note, big"))


def test_a_table_is_named_by_its_topic_too(world: World) -> None:
    """So do reports that say which mirror is to be made anew."""
    mirrors = mirrors_of(str(world.lake))
    assert mirrors.named([TOPIC]) == mirrors.named(["dbo.T"]) == [TableId(DATABASE, "dbo", "t")]


@pytest.mark.long
def test_rows_that_were_deleted_in_a_gap_are_gone(world: World) -> None:
    world.mirror()
    world.execute("DELETE FROM dbo.t WHERE id = 1")
    world.execute(
        "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N't', @capture_instance = N'all'"
    )
    world.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL")
    world.capture()
    world.mirror()
    assert 1 in {row["id"] for row in world.rows()}, "nobody has told of the deletion yet"
    world.config = replace(world.config, snapshot=replace(world.config.snapshot, mode="when_needed"))
    world.capture("snapshot")
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("id, note, big"))
    state = mirrors_of(str(world.lake)).states()[TOPIC]
    assert not state.gaps
    assert state.spans[0][1] == state.lsn, "what was between is not known"


@pytest.mark.long
def test_many_leaves(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves are divided, joined and rewritten only where something changes; steps end between commits."""
    monkeypatch.setattr(leaves, "LEAF_BYTES", 15000)
    monkeypatch.setattr("cdc_assets.mirror.jobs.LEAF_BYTES", 15000)
    monkeypatch.setattr(steps, "STEP_ROWS", 300)
    world = World(server, tmp_path / "lake", "id int NOT NULL PRIMARY KEY, note nvarchar(60)")
    for start in range(0, 3000, 500):
        values = ", ".join(f"({at}, N'{os.urandom(20).hex()}')" for at in range(start, start + 500))
        world.execute(f"INSERT INTO dbo.t VALUES {values}")
    world.capture("snapshot")
    world.mirror()
    mirrors = mirrors_of(str(world.lake))
    before = {leaf.paths for leaf in mirrors.tables.leaves(f"{TOPIC}.__current") or ()}
    assert len(before) > 4
    world.execute("UPDATE dbo.t SET note = N'new' WHERE id BETWEEN 100 AND 110")
    world.capture()
    world.mirror()
    after = {leaf.paths for leaf in mirrors.tables.leaves(f"{TOPIC}.__current") or ()}
    assert len(before - after) <= 2
    world.execute("DELETE FROM dbo.t WHERE id % 20 <> 0")
    world.execute("INSERT INTO dbo.t VALUES (-5, N'below all')")
    world.capture()
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("id, note"))
    world.execute("UPDATE dbo.t SET note = N'once more'")
    world.capture()
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("id, note"))
    assert len(mirrors.tables.leaves(f"{TOPIC}.__current") or ()) < len(before) / 2
    world.execute("DELETE FROM dbo.t")
    world.execute("INSERT INTO dbo.t VALUES (3, N'alone')")
    world.capture()
    world.mirror()
    assert world.rows() == [{"id": 3, "note": "alone"}]


@pytest.mark.long
def test_replaced_leaves_are_removed_after_the_retention_and_small_files_of_history_joined(world: World) -> None:
    world.config = replace(world.config, lake=replace(world.config.lake, compact_after_files=8))
    left = world.lake / f"{TOPIC}.__current" / f"leaf--{'0' * 32}.parquet"
    left.write_bytes(b"of an attempt long ago")
    os.utime(left, (0, 0))
    for number in range(9):
        world.execute(f"UPDATE dbo.t SET note = N'n{number}' WHERE id = 1")
        world.capture()
        world.mirror()
    assert not left.exists()
    for name in ("current", "history"):
        folder = world.lake / f"{TOPIC}.__{name}"
        named = DeltaTable(str(folder)).file_uris()
        assert len(named) < 8
        assert len(list(folder.glob("*.parquet"))) > len(named), "within the retention for readers of earlier versions"
        for file in folder.glob("*.parquet"):
            os.utime(file, (0, 0))
    versions = content(world.lake)
    world.config = replace(world.config, lake=replace(world.config.lake, retention_hours=0))
    world.execute("UPDATE dbo.t SET note = N'last' WHERE id = 1")
    world.capture()
    world.mirror()
    for name in ("current", "history"):
        folder = world.lake / f"{TOPIC}.__{name}"
        assert len(list(folder.glob("*.parquet"))) == len(DeltaTable(str(folder)).file_uris())
    assert len(content(world.lake)[1]) == len(versions[1]) + 1
    assert ordered(world.rows()) == ordered(world.on_server("id, note, big"))


def test_a_table_without_a_key(server: StandIn, tmp_path: Path) -> None:
    world = World(server, tmp_path / "lake", "a int, b nvarchar(10), big nvarchar(max)")
    world.execute("INSERT INTO dbo.t VALUES (1, N'x', N'X'), (1, N'x', N'X'), (2, NULL, NULL), (3, N'z', N'Z')")
    world.capture("snapshot")
    world.mirror()
    world.execute("INSERT INTO dbo.t VALUES (1, N'x', N'X')")
    world.execute("UPDATE dbo.t SET b = N'y' WHERE a = 3")
    world.execute("UPDATE dbo.t SET a = 4 WHERE a = 3")
    world.execute("DELETE FROM dbo.t WHERE a = 2")
    world.capture()
    world.mirror()
    assert Counter(ordered(world.rows())) == Counter(ordered(world.on_server("a, b, big")))
    world.capture("snapshot")
    world.mirror()
    assert Counter(ordered(world.rows())) == Counter(ordered(world.on_server("a, b, big")))


def test_masked_and_excluded_columns(server: StandIn, tmp_path: Path) -> None:
    """A key that rows show masked, or not at all, still tells them apart."""
    world = World(
        server,
        tmp_path / "lake",
        "code nvarchar(10) NOT NULL, n int NOT NULL, v nvarchar(10), w int, PRIMARY KEY (code, n)",
    )
    rule = ColumnRule("mask", ("dbo.t.code", "dbo.t.v"), 3)
    events = replace(world.config.events, column_rules=(rule,), column_exclude=("dbo.t.n",))
    world.config = replace(world.config, events=events)
    world.execute("INSERT INTO dbo.t VALUES (N'a', 1, N'x', 1), (N'b', 1, N'y', 2), (N'a', 2, N'z', 3)")
    world.capture("snapshot")
    world.mirror()
    world.execute("UPDATE dbo.t SET w = 9 WHERE code = N'a' AND n = 2")
    world.execute("DELETE FROM dbo.t WHERE code = N'b'")
    world.capture()
    world.mirror()
    found = MirrorReader(mirrors_of(str(world.lake)).tables, TOPIC).current().to_pylist()
    assert sorted((row["code"], row["v"], row["w"], row["_key_code"], row["_key_n"]) for row in found) == [
        ("***", "***", 1, "a", 1), ("***", "***", 9, "a", 2)
    ]  # fmt: skip
    assert all("n" not in row for row in found)


def test_modes_that_change_in_midway_give_one_table(server: StandIn, tmp_path: Path) -> None:
    world = World(
        server, tmp_path / "lake", "id int NOT NULL PRIMARY KEY, d decimal(10, 2), m datetime2(6), b varbinary(9)"
    )
    row = "1.25, '2026-01-02 03:04:05.123456', 0x00ff"
    world.execute(f"INSERT INTO dbo.t VALUES (1, {row}), (2, {row})")
    world.capture("snapshot")
    modes = replace(world.config.events, time_mode="isostring", decimal_mode="string", binary_mode="hex")
    world.config = replace(world.config, events=modes)
    world.execute(f"INSERT INTO dbo.t VALUES (3, {row})")
    world.execute("UPDATE dbo.t SET d = 7 WHERE id = 1")
    world.capture()
    world.mirror()
    assert len(list(world.lake.glob(f"{TOPIC}@2"))) == 1
    assert ordered(world.rows()) == ordered(world.on_server("id, d, m, b"))


def test_skipped_operations_are_refused(world: World) -> None:
    skipping = replace(world.config, events=replace(world.config.events, skipped_operations=frozenset("td")))
    with pytest.raises(ConfigurationError, match=r"skipped\.operations"):
        CaptureMirrors(skipping, LocalRunner(1), SystemClock())


def test_a_key_that_does_not_identify_rows_is_refused_alone(world: World) -> None:
    keyed = replace(world.config, events=replace(world.config.events, message_key_columns=("dbo.t:note",)))
    troubles = CaptureMirrors(keyed, LocalRunner(1), SystemClock()).catch_up()
    assert "message key" in str(troubles[TOPIC])


@pytest.mark.parametrize("kind", ["datetime2(7)", "decimal(20, 2)"])
def test_a_key_that_events_shorten_is_refused_with_the_property(server: StandIn, tmp_path: Path, kind: str) -> None:
    world = World(server, tmp_path / "lake", f"id {kind} NOT NULL PRIMARY KEY, note nvarchar(9)")
    events = replace(world.config.events, time_mode="connect", decimal_mode="double")
    world.config = replace(world.config, events=events)
    world.capture("snapshot")
    troubles = CaptureMirrors(world.config, LocalRunner(1), SystemClock()).catch_up()
    setting = "time.precision.mode" if kind == "datetime2(7)" else "decimal.handling.mode"
    assert setting in str(troubles[TOPIC])
    assert f"key column id of {DATABASE}.dbo.t ({kind.replace(' ', '')})" in str(troubles[TOPIC]).replace(", 2", ",2")


def test_a_table_stops_before_two_rows_get_one_key(server: StandIn, tmp_path: Path) -> None:
    world = World(server, tmp_path / "lake", "id datetime2(7) NOT NULL PRIMARY KEY, note nvarchar(9)")
    world.capture("snapshot")
    world.execute("INSERT INTO dbo.t VALUES ('9999-12-31', N'a'), ('9998-12-31', N'b')")
    world.capture()
    manifest = Manifest(TopicTables.of(world.config), world.config.events.topic_prefix)
    state = manifest.read().tables[TableId(DATABASE, "dbo", "t")]
    assert state.status == "failed"
    assert "set time.precision.mode=isostring: a key is never written as null" in state.reason


def test_a_row_that_changes_its_message_key_keeps_its_large_values(server: StandIn, tmp_path: Path) -> None:
    world = World(server, tmp_path / "lake", "id int NOT NULL PRIMARY KEY, region nvarchar(9), big nvarchar(max)")
    world.config = replace(world.config, events=replace(world.config.events, message_key_columns=("dbo.t:id,region",)))
    world.execute("INSERT INTO dbo.t VALUES (1, N'n', N'A'), (2, N's', N'B')")
    world.capture("snapshot")
    world.mirror()
    world.execute("UPDATE dbo.t SET region = N'e' WHERE id = 1")
    world.capture()
    world.mirror()
    assert ordered(world.rows()) == ordered(world.on_server("id, region, big"))


def test_computed_columns_are_left_out(server: StandIn, tmp_path: Path) -> None:
    """The log does not hold them: after the first change only a READ could tell their values."""
    world = World(server, tmp_path / "lake", "id int NOT NULL PRIMARY KEY, n int, twice AS n * 2")
    world.execute("INSERT INTO dbo.t (id, n) VALUES (1, 1)")
    world.capture("snapshot")
    world.mirror()
    world.execute("UPDATE dbo.t SET n = 2")
    world.capture()
    world.mirror()
    assert world.rows() == [{"id": 1, "n": 2}]


def test_only_included_tables_have_a_mirror(world: World, tmp_path: Path) -> None:
    file = tmp_path / "shop.json"
    properties = MINIMUM | {"lake.path": str(world.lake), "database.names": DATABASE, "driver.encrypt": "no"}
    properties |= {"mirror.enabled": "true", "mirror.interval.ms": "500"}
    for pattern, found in (("dbo.t", 1), (rf"{DATABASE}\.dbo\..*", 1), ("dbo.other", 0)):
        file.write_text(json.dumps({**properties, "mirror.table.include.list": pattern}))
        config = load_config(file, {})
        assert (config.mirror.enabled, config.mirror.interval_s) == (True, 0.5)
        assert len(CaptureMirrors(config, LocalRunner(1), SystemClock()).found()[0]) == found


def test_a_table_that_is_not_captured_is_refused(world: World) -> None:
    with pytest.raises(ConfigurationError, match="a captured table"):
        mirrors_of(str(world.lake)).catch_up([TableId(DATABASE, "dbo", "nobody")])


def test_a_step_that_dies_in_process_leaves_no_version_twice(world: World) -> None:
    for step in ("mirror-history-committed", "mirror-committed"):
        with cut_at(step), pytest.raises(PowerCutError):
            mirrors_of(str(world.lake)).catch_up()
    world.mirror()
    versions = MirrorReader(mirrors_of(str(world.lake)).tables, TOPIC).versions().to_pylist()
    assert len(versions) == len({(row["id"], row["_valid_from_lsn"]) for row in versions})


def test_columns_have_the_comments_of_the_source(server: StandIn, tmp_path: Path) -> None:
    world = World(server, tmp_path / "lake", "id int NOT NULL PRIMARY KEY, note nvarchar(50), price money")
    world.execute(call("dbo.t", "add", "Net", "price"))
    world.execute("INSERT INTO dbo.t VALUES (1, N'a', 2)")
    world.capture("snapshot")
    world.mirror()
    assert world.comments("__current") == world.comments("__history") == {"price": "Net"}
    world.execute(call("dbo.t", "update", "Gross", "price"))
    world.execute(call("dbo.t", "add", "What a person wrote", "note"))
    world.execute("ALTER TABLE dbo.t ALTER COLUMN note nvarchar(80)")
    world.execute("INSERT INTO dbo.t VALUES (2, N'b', 3)")
    world.capture()
    world.mirror()
    assert world.comments("__current") == {"note": "What a person wrote", "price": "Gross"}
    assert ordered(world.rows()) == ordered(world.on_server("id, note, price"))


def test_a_capture_goes_on_without_comments_that_it_may_not_read(server: StandIn, tmp_path: Path) -> None:
    world = World(server, tmp_path / "lake", "id int NOT NULL PRIMARY KEY")
    server.faults.error(229, matching="cdc-assets: descriptions", times=100)
    world.execute("INSERT INTO dbo.t VALUES (1)")
    world.capture("snapshot")
    world.mirror()
    assert server.faults.struck
    assert world.comments("__current") == {}
    assert world.rows() == [{"id": 1}]


def test_steps_between_two_reports_are_added_up() -> None:
    first, second = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    earlier = StepReport("t", 1, "a", events=3, rewritten=2, ended=1, size=100, rows=10, leaves=1, newest=second)
    later = StepReport("t", 2, "b", events=4, rewritten=1, ended=0, size=50, rows=12, leaves=1, newest=first)
    expected = StepReport("t", 2, "b", events=7, rewritten=3, ended=1, size=150, rows=12, leaves=2, newest=second)
    assert later.after(earlier) == expected
