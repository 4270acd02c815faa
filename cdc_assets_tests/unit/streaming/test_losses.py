"""What the lake has lost is noticed when a run begins, told with its interval, and mended by a snapshot."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from cdc_assets.capture import losses
from cdc_assets.capture.progress import StreamSummary
from cdc_assets.config.settings import CaptureConfig, FilterSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.steps import listening
from cdc_assets.errors import ConfigurationError, LakeAwayError, LakeError
from cdc_assets.lake import delta_log
from cdc_assets.ledger import manifest_rows
from cdc_assets.ledger.state import TableState
from cdc_assets.run import housekeeping
from cdc_assets.run.new_lake import NewLake
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.prepared import Prepared, moved
from cdc_assets_tests.unit.streaming.simulation import LoopRunner, SimulatedServer
from cdc_assets_tests.unit.streaming.tables import two_tables


@dataclass
class World:
    """Two tables that were read and changed, in two windows each."""

    server: SimulatedServer
    config: CaptureConfig
    lake: Path
    lines: TableId
    orders: TableId
    first: Lsn
    last: Lsn

    def topic(self, table: TableId) -> Path:
        return self.lake / f"shop.{table}"

    def insert(self, key: int) -> Lsn:
        return self.server.commit((self.lines, "insert", key, "a"), (self.orders, "insert", key, "a"))

    def stream(self) -> StreamSummary:
        return make_capture(self.server, self.config).stream()

    def state(self, table: TableId) -> TableState:
        return state_of(self.config).tables[table]

    def keys(self, table: TableId) -> set[int]:
        """Of the rows that the events lead to."""
        latest = {event.key: event for event in events_of(self.config, table)}
        return {key for key, event in latest.items() if event.after}

    def after(self, lost: str) -> Lsn:
        """Exclusive start of what is lost: nothing is left, or all up to the window before, or all but a file's events."""
        return {"all": ZERO_LSN, "last window": self.first, "last file": Lsn.from_int(int(self.last) - 1)}[lost]

    def check_promise(self) -> None:
        """After a snapshot all is as if nothing had happened: rows are the server's, no event is there twice."""
        make_capture(self.server, self.config).snapshot([self.orders])
        self.check_rows()
        assert self.state(self.orders).gaps, "what was lost is remembered"

    def check_rows(self) -> None:
        """Both tables go on, their rows are the server's, and no event is there twice."""
        self.insert(70 + len(self.server.rows[self.orders]))
        assert self.stream().troubled == ()
        assert self.stream().troubled == ()
        for table in (self.lines, self.orders):
            assert self.keys(table) == set(self.server.rows[table])
            positions = [event.position for event in events_of(self.config, table)]
            assert len(positions) == len(set(positions))


def make_world(path: Path, **changes: object) -> World:
    server = SimulatedServer()
    lines, orders = server.create("lines", rows=3), server.create("orders", rows=3)
    server.idle_tick()
    config = make_config(str(path), slices=1, **changes)
    make_capture(server, config).snapshot()
    found = World(server, config, path, lines, orders, ZERO_LSN, ZERO_LSN)
    found.first = found.insert(50)
    found.stream()
    found.last = found.insert(51)
    found.stream()
    return found


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "_TORN_S", 0.0)


@pytest.fixture(scope="module")
def prepared_world(tmp_path_factory: pytest.TempPathFactory) -> Prepared[World]:
    found = Prepared(make_world)
    found.prepare(tmp_path_factory.mktemp("losses"))
    return found


@pytest.fixture
def world(prepared_world: Prepared[World], tmp_path: Path) -> World:
    lake = tmp_path / "lake"
    found = prepared_world.copied(lake)
    assert found is not None
    return replace(found, config=moved(found.config, lake), lake=lake)


def commits(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def newest_file(table: Path) -> Path:
    return table / str(max(DeltaTable(str(table)).get_add_actions()["path"].to_pylist()))


def remove(table: Path) -> None:
    shutil.rmtree(table)


def lose_newest_commit(table: Path) -> None:
    commits(table)[-1].unlink()


def empty_newest_commit(table: Path) -> None:
    commits(table)[-1].write_bytes(b"")


def cut_newest_commit(table: Path) -> None:
    commits(table)[-1].write_bytes(commits(table)[-1].read_bytes()[:-20])


def lose_newest_file(table: Path) -> None:
    newest_file(table).unlink()


def cut_newest_file(table: Path) -> None:
    file = newest_file(table)
    file.write_bytes(file.read_bytes()[:-10])


def empty_older_commit(table: Path) -> None:
    commits(table)[-2].write_bytes(b"")


def lose_rows_by_rewriting(table: Path) -> None:
    """Another program joins all files, and forgets the last row."""
    handle, path = DeltaTable(str(table)), table / "joined.parquet"
    former = handle.get_add_actions()["path"].to_pylist()
    rows = pa.concat_tables([pq.read_table(table / name) for name in former])
    pq.write_table(rows.slice(0, rows.num_rows - 1), path)
    statistics = json.dumps({"numRecords": rows.num_rows - 1})
    added = AddAction(path.name, path.stat().st_size, {}, 0, False, statistics)
    handle.create_write_transaction(
        [*(RemoveAction(name, False, 0) for name in former), added], "append", handle.schema()
    )


LOSSES: dict[str, tuple[Callable[[Path], None], str]] = {
    "folder removed": (remove, "all"),
    "newest commit deleted": (lose_newest_commit, "last window"),
    "newest commit empty": (empty_newest_commit, "last window"),
    "newest commit cut off": (cut_newest_commit, "last window"),
    "older commit empty": (empty_older_commit, "all"),
    "data file missing": (lose_newest_file, "last file"),
    "data file cut off": (cut_newest_file, "last file"),
}


@pytest.mark.long
@pytest.mark.parametrize(("lose", "lost"), LOSSES.values(), ids=LOSSES)
def test_a_topic_that_lost_data_has_a_gap_and_the_others_continue(
    world: World, lose: Callable[[Path], None], lost: str
) -> None:
    lose(world.topic(world.orders))
    world.insert(60)
    summary = world.stream()

    [trouble] = summary.troubled
    assert (trouble.table, trouble.status) == (world.orders, "gap")
    assert (trouble.gap_after, trouble.gap_until) == (world.after(lost), world.last)
    assert "snapshot asset" in trouble.reason
    assert world.state(world.lines).status == "healthy"
    assert 60 in world.keys(world.lines)
    assert world.stream().troubled == summary.troubled, "told again, found once"
    assert len(world.state(world.orders).gaps) == 1

    world.check_promise()


def test_older_copy_of_a_topic(world: World, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(world.topic(world.orders), copy)
    for key in (60, 61):
        world.insert(key)
        world.stream()
    shutil.rmtree(world.topic(world.orders))
    copy.rename(world.topic(world.orders))

    [trouble] = world.stream().troubled
    assert (trouble.table, trouble.gap_after) == (world.orders, world.last)
    assert trouble.gap_until == world.state(world.lines).position
    world.check_promise()


def test_commit_that_is_cut_off_must_be_moved_away(world: World) -> None:
    """Delta cannot read such a table, so nothing can be written behind what it holds; but see `cut_newest_commit`."""
    torn = commits(world.topic(world.orders))[-2]
    torn.write_bytes(torn.read_bytes()[:-20])
    world.insert(60)
    [trouble] = world.stream().troubled
    assert (trouble.table, trouble.status) == (world.orders, "failed")
    assert (trouble.gap_after, trouble.gap_until) == (ZERO_LSN, world.last)
    assert "move that folder away" in trouble.reason
    assert 60 in world.keys(world.lines)

    [failed] = make_capture(world.server, world.config).snapshot([world.lines, world.orders]).failed
    assert (failed.table, "move that folder away" in failed.reason) == (world.orders, True)
    world.topic(world.orders).rename(world.lake / "elsewhere")
    world.check_promise()


def test_newest_commit_that_is_being_written_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "_TORN_S", 60.0)
    cut_newest_commit(world.topic(world.orders))
    assert [trouble.status for trouble in world.stream().troubled] == ["failed"]
    assert not list(world.lake.rglob("*.damaged"))


@pytest.mark.parametrize("table", ["folder", "log"])
def test_topics_without_a_manifest_are_not_captured_as_if_nothing_had_been(world: World, table: str) -> None:
    gone = world.lake / "shop.__windows" / ("_delta_log" if table == "log" else "")
    shutil.rmtree(gone)
    before = {table: events_of(world.config, table) for table in (world.lines, world.orders)}
    for _ in range(2):
        for run in (make_capture(world.server, world.config).snapshot, world.stream):
            with pytest.raises(
                LakeError, match=r"shop\.__windows is gone .*shop\.SalesDb\.dbo\.lines.*restore its folder"
            ):
                run()
    assert {table: events_of(world.config, table) for table in (world.lines, world.orders)} == before

    for folder in world.lake.glob("shop*"):
        folder.rename(world.lake.parent / folder.name)
    NewLake.of(world.config).begin()
    make_capture(world.server, world.config).snapshot()
    assert world.stream().troubled == ()
    assert world.keys(world.orders) == set(world.server.rows[world.orders])


def test_restored_manifest_continues(world: World) -> None:
    folder, away = world.lake / "shop.__windows", world.lake / "away"
    folder.rename(away)
    with pytest.raises(LakeError):
        world.stream()
    assert not folder.exists(), "nothing is in the way of what is restored"
    away.rename(folder)
    world.insert(60)
    assert world.stream().troubled == ()


@pytest.mark.parametrize("when", ["before the run", "window-planned", "window-complete"])
def test_rows_that_another_program_has_lost_are_a_gap_also_if_a_run_is_at_work(world: World, when: str) -> None:
    lost: list[str] = []

    def lose(step: str) -> None:
        if step == when and not lost:
            lost.append(step)
            lose_rows_by_rewriting(world.topic(world.orders))

    lose("before the run")
    world.insert(60)
    with listening(lose):
        [trouble] = world.stream().troubled
    assert (lost, trouble.table, trouble.status) == ([when], world.orders, "gap")
    assert "a commit of its log is lost" in trouble.reason
    assert world.stream().troubled == (trouble,), "it is told once"
    world.check_promise()
    assert len(world.state(world.orders).gaps) == 1


def lose_oldest_file(table: Path) -> None:
    (table / min(DeltaTable(str(table)).get_add_actions()["path"].to_pylist())).unlink()


@pytest.mark.parametrize("lose", [remove, empty_older_commit, lose_oldest_file])
def test_what_a_quiet_topic_loses_is_noticed_while_a_run_streams_others(
    world: World, lose: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may go on for half a day."""
    monkeypatch.setattr(housekeeping, "_COMPARE_EVERY", timedelta())
    left = [1, 2, 3, 4]

    def work(step: str) -> None:
        if step != "window-complete" or not left:
            return
        if left == [1, 2, 3, 4]:
            lose(world.topic(world.lines))
        world.server.commit((world.orders, "insert", 60 + left.pop(), "a"))

    world.server.commit((world.orders, "insert", 60, "a"))
    with listening(work):
        [trouble] = world.stream().troubled
    assert not left
    assert (trouble.table, trouble.status) == (world.lines, "gap")
    assert world.state(world.orders).status == "healthy"
    assert world.keys(world.orders) >= {60, 61, 62, 63, 64}
    assert world.state(world.lines).gaps, "what was lost is remembered"
    make_capture(world.server, world.config).snapshot([world.lines])
    world.check_rows()


@pytest.mark.long
@pytest.mark.parametrize("policy", ["resnapshot", "ignore"])
def test_a_folder_that_goes_while_a_run_streams_is_made_anew_by_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setattr(housekeeping, "_COMPARE_EVERY", timedelta())
    world, left = make_world(tmp_path / "lake", gap_policy=policy), [1, 2, 3, 4]

    def work(step: str) -> None:
        if step != "window-complete" or not left:
            return
        at = left.pop()
        if at == 3:
            remove(world.topic(world.lines))
        both = at < 3
        world.server.commit(*((table, "insert", 60 + at, "a") for table in (world.orders, *[world.lines] * both)))

    world.insert(60)
    with listening(work):
        assert world.stream().troubled == ()
    assert not left
    assert world.keys(world.orders) >= {60, 61, 62, 63, 64}
    assert world.keys(world.lines) >= {61, 62}
    if policy == "resnapshot":
        world.check_rows()
    else:
        assert world.state(world.lines).gaps


@pytest.mark.long
@pytest.mark.parametrize("lost", range(1, 7))
@pytest.mark.parametrize("how", ["deleted", "emptied", "cut off"])
def test_newest_commits_of_the_manifest_are_lost(world: World, lost: int, how: str) -> None:
    """No window is left out, and none is told twice."""
    newest = commits(world.lake / "shop.__windows")[-lost:]
    for commit in newest:
        commit.unlink() if how != "emptied" else commit.write_bytes(b"")
    if how == "cut off":
        newest[0].write_bytes(b'{"add":{"path":"m00')
    world.insert(60)
    summary = world.stream()
    assert summary.troubled == (), "two lost windows can be read from the tables' own commits"
    make_capture(world.server, world.config).snapshot([world.orders])
    world.insert(61)
    assert world.stream().troubled == ()
    for table in (world.lines, world.orders):
        assert world.keys(table) == set(world.server.rows[table])
        found = [(event.op, event.key) for event in events_of(world.config, table) if event.op != "r"]
        assert sorted(found) == [("c", key) for key in (50, 51, 60, 61)]


@pytest.mark.parametrize(
    "error", [OSError("HTTP error: timed out"), DeltaError("Invalid JSON")], ids=["away", "damaged"]
)
def test_log_that_cannot_be_read_behind_an_older_manifest(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def history(_: DeltaTable) -> list[dict[str, object]]:
        raise error

    for commit in commits(world.lake / "shop.__windows")[-3:]:
        commit.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "history", history)
        if isinstance(error, OSError):
            with pytest.raises(LakeAwayError, match=r"dbo\.(lines|orders) cannot be read .*timed out"):
                world.stream()
        else:
            assert {trouble.status for trouble in world.stream().troubled} == {"gap"}, "it is not known what they lack"
            make_capture(world.server, world.config).snapshot([world.lines, world.orders])
    assert world.stream().troubled == ()
    world.check_rows()


@pytest.mark.long
@pytest.mark.parametrize("how", ["deleted", "emptied", "cut off"])
def test_checkpoint_of_a_log_that_was_shortened_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The newest one can be done without, since the commits from the one before it on are kept."""
    for name in ("_YOUNG_COMMITS", "MIN_COMMITS"):
        monkeypatch.setattr(delta_log, name, 1)
    world = make_world(tmp_path / "lake", log_commits=1, max_iteration_transactions=1)
    for key in range(100, 155):
        world.insert(key)
    world.stream()
    for place in (world.topic(world.orders), world.lake / "shop.__windows"):
        assert commits(place)[0].name > f"{20:020}", "the log begins with a checkpoint"
        newest = max((place / "_delta_log").glob("*.checkpoint.parquet"))
        whole = newest.read_bytes()
        newest.unlink() if how == "deleted" else newest.write_bytes(whole[:100] if how == "cut off" else b"")
    world.insert(160)
    assert world.stream().troubled == ()
    world.check_rows()


def test_commit_lost_in_the_middle_of_the_manifest(world: World) -> None:
    commits(world.lake / "shop.__windows")[-3].write_bytes(b"")
    with pytest.raises(LakeError, match="lacks the rows between entries"):
        world.stream()


def stopped_at(step: str, action: Callable[[], object]) -> None:
    def stop(reached: str) -> None:
        if reached == step:
            raise KeyboardInterrupt

    with listening(stop), pytest.raises(KeyboardInterrupt):
        action()


@pytest.mark.long
@pytest.mark.parametrize("lose", [remove, empty_newest_commit, lose_newest_file])
@pytest.mark.parametrize("step", ["window-planned", "files-written", "table-committed"])
def test_lost_while_a_window_is_in_flight(world: World, step: str, lose: Callable[[Path], None]) -> None:
    world.insert(60)
    stopped_at(step, world.stream)
    lose(world.topic(world.orders))
    assert [trouble.table for trouble in world.stream().troubled] in ([world.orders], [])
    assert 60 in world.keys(world.lines)
    if world.state(world.orders).gaps:
        world.check_promise()
    world.check_rows()


@pytest.mark.parametrize("known", [True, False], ids=["again", "first"])
def test_lost_while_a_snapshot_is_in_flight(tmp_path: Path, known: bool) -> None:
    world = make_world(tmp_path / "lake", partitions=8)
    new = world.orders if known else world.server.create("news", rows=3)
    stopped_at("round-complete", lambda: make_capture(world.server, world.config).snapshot([new]))
    remove(world.topic(new))
    make_capture(world.server, world.config).snapshot()
    assert world.keys(new) == (set() if known else set(world.server.rows[new]))
    if known:
        assert world.state(new).status == "gap"
        world.check_promise()


def remove_log(table: Path) -> None:
    """Its data files are there."""
    remove(table / "_delta_log")


@pytest.mark.long
@pytest.mark.parametrize("lose", [remove, remove_log, lose_newest_commit])
@pytest.mark.parametrize(
    ("first", "step"), [("new", "round-written"), ("gap", "round-written"), ("gap", "round-complete")]
)
def test_what_a_snapshot_loses_before_a_table_streams_stops_no_other_table(
    tmp_path: Path, first: str, step: str, lose: Callable[[Path], None]
) -> None:
    world = make_world(tmp_path / "lake", partitions=8)
    table = world.server.create("news", rows=3) if first == "new" else world.orders
    if first == "gap":
        remove(world.topic(table))
        world.stream()
    stopped_at(step, lambda: make_capture(world.server, world.config).snapshot([table]))
    lose(world.topic(table))
    world.server.commit((world.lines, "insert", 60, "a"))
    world.stream()
    assert 60 in world.keys(world.lines)
    known = state_of(world.config).tables.get(table)
    assert known is None or known.status == "gap" or world.keys(table) == set(world.server.rows[table])
    make_capture(world.server, world.config).snapshot([table])
    assert world.state(table).status == "healthy"
    assert world.keys(table) == set(world.server.rows[table])


def test_policies(tmp_path: Path) -> None:
    world = make_world(tmp_path / "resnapshot", gap_policy="resnapshot")
    remove(world.topic(world.orders))
    world.insert(60)
    assert world.stream().troubled == ()
    world.check_rows()

    world = make_world(tmp_path / "ignore", gap_policy="ignore")
    lose_newest_file(world.topic(world.orders))
    world.insert(60)
    assert world.stream().troubled == ()
    assert world.keys(world.orders) == {1, 2, 3, 50, 60}, "without 51, and readable"
    assert world.state(world.orders).gap_until == world.last


def with_a_gap(world: World) -> None:
    world.server.disable("dbo_orders")
    world.server.enable(world.orders)


def failed(world: World) -> None:
    world.server.disable("dbo_orders")


def left_out(world: World) -> None:
    world.config = replace(world.config, filters=FilterSettings(table_exclude=("dbo.orders",)))


@pytest.mark.parametrize("stop", [with_a_gap, failed, left_out], ids=lambda stop: stop.__name__)
def test_what_a_table_loses_while_it_is_stopped_is_told_too(world: World, stop: Callable[[World], None]) -> None:
    config, lost = world.config, (world.after("last file"), world.last)
    stop(world)
    world.stream()
    assert world.state(world.orders).status in ("gap", "failed", "excluded")
    lose_newest_file(world.topic(world.orders))
    world.stream()
    if not any(instance.table == world.orders for instance in world.server.instances):
        world.server.enable(world.orders)
    world.config = config
    world.stream()
    world.check_promise()
    assert any(after <= lost[0] and lost[1] <= until for after, until in world.state(world.orders).gaps)


def test_table_that_is_left_out_keeps_its_gap(world: World) -> None:
    remove(world.topic(world.orders))
    assert world.stream().troubled
    config, world.config = world.config, replace(world.config, filters=FilterSettings(table_exclude=("dbo.orders",)))
    assert world.stream().troubled == ()
    world.config = config
    assert [trouble.table for trouble in world.stream().troubled] == [world.orders]


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
