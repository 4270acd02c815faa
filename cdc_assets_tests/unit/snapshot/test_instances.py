"""Capture instances that are dropped, or made again, while a snapshot is carried out."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.core.steps import listening
from cdc_assets.overview.capture import CaptureOverview
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.snapshot.world import DATABASE, World
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from mssql_standin.control import StandIn

Change = Callable[[SimulatedServer, TableId], None]


def dropped(server: SimulatedServer, table: TableId) -> None:
    server.disable(f"dbo_{table.table}")


def replaced(server: SimulatedServer, table: TableId) -> None:
    server.add_column(table, "more")
    server.enable(table, "another")
    dropped(server, table)


def made_again(server: SimulatedServer, table: TableId) -> None:
    dropped(server, table)
    server.add_column(table, "more")
    server.enable(table, f"dbo_{table.table}")


def gone(server: SimulatedServer, table: TableId) -> None:
    dropped(server, table)
    del server.schemas[table]


CHANGES = [dropped, replaced, made_again, gone]


def two(path: Path):  # type: ignore[no-untyped-def]
    server = SimulatedServer()
    bad, good = server.create("bad", rows=40), server.create("good", rows=40)
    server.idle_tick()
    return server, make_config(str(path), partitions=4), bad, good


@pytest.mark.parametrize("is_late", [False, True])
def test_rows_have_the_columns_of_an_instance_that_is_made_while_the_snapshot_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """Its changes are read from there on, so that nothing else would say what its new columns hold."""
    server, config, table, _ = two(tmp_path)
    ask, tell = SimulatedServer.max_captured_lsn, SimulatedServer.capture_instances
    former, made = list(server.instances), list[Lsn]()

    def alter(source: SimulatedServer, database: str) -> Lsn | None:
        if not made:
            server.add_column(table, "more")
            server.rows[table][1]["more"] = "value"
            made.append(server.enable(table, "another").start_lsn)
            server.idle_tick()
        return ask(source, database)

    def lagging(source: SimulatedServer, database: str, known: Lsn = ZERO_LSN) -> Sequence[CaptureInstance]:
        return former if is_late and not (made and known > made[0]) else tell(source, database, known)

    monkeypatch.setattr(SimulatedServer, "max_captured_lsn", alter)
    monkeypatch.setattr(SimulatedServer, "capture_instances", lagging)
    make_capture(server, config).snapshot()
    assert events_of(config, table)[0].after == {"id": 1, "note": "old 1", "more": "value"}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_table_that_loses_its_instance_before_its_structure_is_recorded_fails_alone(
    tmp_path: Path, change: Change
) -> None:
    server, config, bad, good = two(tmp_path)

    done: list[str] = []

    def once(name: str) -> None:
        if name == "snapshot-planned" and not done:
            done.append(name)
            change(server, bad)

    with listening(once):
        summary = make_capture(server, config).snapshot()
    assert summary.tables == (good,)
    [trouble] = summary.failed
    assert trouble.table == bad
    assert "dropped before" in trouble.reason
    assert sorted(event.key for event in events_of(config, good)) == list(range(1, 41))
    assert set(state_of(config).tables) == {good}

    if change in (replaced, made_again):
        assert make_capture(server, config).snapshot().tables == (bad,)
        server.commit((bad, "insert", 50, "b"))
        assert make_capture(server, config).stream().troubled == ()
        assert events_of(config, bad)[-1].after == server.rows[bad][50]


@pytest.mark.combinations
@pytest.mark.parametrize("step", ["snapshot-planned", "history-written", "round-planned", "round-complete"])
@pytest.mark.parametrize("change", CHANGES[:3], ids=lambda change: change.__name__)
def test_a_snapshot_that_died_before_an_instance_went_is_planned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change, step: str
) -> None:
    monkeypatch.setattr("cdc_assets.snapshot.plan.MIN_SLICE", 10)  # several slices and rounds
    monkeypatch.setattr("cdc_assets.snapshot.rounds.MIN_SLICE", 1)
    server, config, bad, good = two(tmp_path)
    with cut_at(step), pytest.raises(PowerCutError):
        make_capture(server, config).snapshot()
    change(server, bad)
    server.commit((good, "insert", 50, "b"), (bad, "insert", 50, "b"))
    done = make_capture(server, config).snapshot()
    assert done.failed == ()
    server.commit((good, "update", 50, "c"), (bad, "update", 50, "c"))
    summary = make_capture(server, config).stream()
    assert summary.troubled == ()
    for table in (good, bad):
        rows: dict[int, object] = {}
        for event in events_of(config, table):
            if event.op is not None:
                rows[event.key] = event.after
        wanted = server.rows[table]
        if table == bad and change is dropped:
            assert state_of(config).tables[bad].position is None, "it has no changes any more"
            wanted = {key: {"id": key, "note": "b" if key == 50 else row["note"]} for key, row in wanted.items()}
        assert rows == wanted


@pytest.mark.parametrize("change", [dropped, replaced, made_again], ids=lambda change: change.__name__)
def test_an_instance_that_goes_while_rows_are_read_ends_as_a_gap_or_the_end_of_the_table(
    tmp_path: Path, change: Change
) -> None:
    server, config, bad, good = two(tmp_path)
    done: list[str] = []

    def once(name: str) -> None:
        if name == "round-planned" and not done:
            done.append(name)
            change(server, bad)

    with listening(once):
        make_capture(server, config).snapshot()
    server.commit((good, "insert", 50, "b"))
    make_capture(server, config).stream()
    state = state_of(config).tables[bad]
    told = {
        dropped: ("failed", "has no capture instance any more"),
        replaced: ("gap", "was dropped before it was completely read"),
        made_again: ("gap", "was disabled and enabled again"),
    }
    status, reason = told[change]
    assert state.status == status
    assert reason in state.reason
    assert events_of(config, good)[-1].key == 50


@pytest.mark.long
@pytest.mark.parametrize("seen", [False, True], ids=["snapshot first", "seen by a run"])
@pytest.mark.parametrize("policy", ["fail", "resnapshot"])
def test_an_instance_made_again_on_an_idle_server_leaves_one_gap_which_the_snapshot_ends(
    server: StandIn, tmp_path: Path, policy: str, seen: bool
) -> None:
    """The new one begins behind all that was captured: no window comes that far before something is committed."""
    world = World(server, str(tmp_path), gap__policy=policy)
    table = world.make("t", 3)
    world.snapshot()
    world.stream()
    before = world.position(table)
    world.server.agent.pause()
    for statement in (
        "DELETE FROM dbo.t WHERE id = 2",
        "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N't', @capture_instance = N'all'",
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL",
    ):
        server.execute(statement, database=DATABASE)
    assert health_of(world) == "gap"
    if seen:
        world.stream()
        assert health_of(world) == ("gap" if policy == "fail" else "healthy")
    if not seen or policy == "fail":
        world.snapshot([table])
    assert health_of(world) == "healthy"
    world.stream()
    with world.capture() as capture:
        state = capture.state().tables[table]
        [instance] = capture._server.source.capture_instances(DATABASE)
    assert state.status == "healthy"
    assert state.position is not None
    assert state.position.next() >= instance.start_lsn
    assert state.gaps == ((before, state.snapshot_lsn),)
    world.server.agent.resume()
    world.sql("INSERT INTO dbo.t VALUES (4, 'n4')")
    world.stream()
    assert world.reads(table)[-2:] == [1, 3]
    assert world.events(table)[-1]["after"]["id"] == 4


def health_of(world: World) -> str:
    """What is told of the only table, by its state and by the server."""
    with world.capture() as capture:
        [table] = CaptureOverview(world.config, capture._server.source).tables
        return table.status
