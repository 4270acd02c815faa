"""A server is restored to an earlier moment: what was read beyond it is never mixed with what comes after it."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.capture import loop
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import RecoveryFork
from cdc_assets.core.steps import listening
from cdc_assets.errors import CdcError, DatabaseRestoredError
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.contract.two import HERE, THERE, Two, reasons, snapshot
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from cdc_assets_tests.unit.streaming.law import state_of


def fork_of(two: Two) -> RecoveryFork | None:
    with SqlServerSource(two.config.connection) as source:
        return source.recovery_fork(THERE.database)


def overview(two: Two) -> tuple[dict[str, Lsn], list[object]]:
    """Databases that the sensor would start a run for, and tables that it would snapshot."""
    with SqlServerSource(two.config.connection) as source:
        seen = CaptureOverview(two.config, source).work
        return dict(seen.unread_databases()), list(seen.waiting([HERE, THERE], first_tick=True))


def at_step(name: str, action: Callable[[], None]) -> Callable[[str], None]:
    """Do something once, when a step is reached for the first time."""
    left = [action]

    def listener(step: str) -> None:
        if step == name and left:
            left.pop()()

    return listener


def test_fork_and_its_point(two: Two) -> None:
    first = fork_of(two)
    assert first is not None
    assert first.point is None
    with SqlServerSource(two.config.connection) as source:
        captured = source.max_captured_lsn(THERE.database)
    two.server.restore(two.server.backup())
    second = fork_of(two)
    assert second is not None
    assert second.identity != first.identity
    two.insert(THERE)
    with SqlServerSource(two.config.connection) as source:
        assert second.point is not None
        assert captured is not None
        assert captured < second.point < source.max_transaction_lsn(THERE.database, captured, 0)  # type: ignore[operator]


@pytest.mark.long
@pytest.mark.parametrize("keep_cdc", [True, False])
@pytest.mark.parametrize("passed", [False, True])
def test_restore_between_two_runs(two: Two, keep_cdc: bool, passed: bool) -> None:
    old = fork_of(two)
    backup = two.server.backup()
    two.insert(THERE, THERE)
    two.run()
    position = state_of(two.config).tables[THERE].position
    two.server.restore(backup, keep_cdc)
    if passed and keep_cdc:
        two.insert(THERE, THERE, THERE)
    if not keep_cdc and passed:
        two.server.execute("EXEC sys.sp_cdc_enable_db", database=THERE.database)
        two.enable(THERE)
    if keep_cdc:
        two.insert(HERE)
        assert THERE.database in overview(two)[0]
    told = reasons(two.run())
    new = fork_of(two)
    assert old is not None
    assert new is not None
    for part in (old.identity, new.identity, str(position), "topic.prefix"):
        assert part in told[THERE]
    assert two.keys(THERE) == [2, 3, 4]
    state = state_of(two.config)
    assert (state.tables[THERE].status, state.tables[THERE].reason) == ("failed", told[THERE])
    if keep_cdc:
        assert set(told) == {THERE}
        assert two.keys(HERE)[0] == 1
        assert len(two.keys(HERE)) == 2
    assert two.told() == ([] if keep_cdc else [("DROP", "Here")])
    two.run()
    assert two.keys(THERE) == [2, 3, 4]
    fresh, waiting = overview(two)
    assert THERE.database not in fresh
    assert THERE not in waiting


@pytest.mark.long
def test_snapshot_of_a_restored_database_is_refused(two: Two) -> None:
    backup = two.server.backup()
    two.insert(THERE)
    two.run()
    two.server.restore(backup)
    assert reasons(two.run()).keys() == {THERE}
    done = snapshot(two, HERE, THERE)
    assert done.tables == (HERE,)
    assert [failed.table for failed in done.failed] == [THERE]
    assert "topic.prefix" in done.failed[0].reason
    assert two.keys(THERE) == [2, 3]
    two.config = replace(two.config, connection=replace(two.config.connection, databases=(THERE.database,)))
    with pytest.raises(DatabaseRestoredError, match=r"topic\.prefix"):
        snapshot(two, THERE)
    with pytest.raises(DatabaseRestoredError):
        snapshot(two)
    assert reasons(two.run()).keys() >= {THERE}
    two.config = replace(two.config, lake=replace(two.config.lake, path=f"{two.config.lake.path}/again"))
    snapshot(two)
    two.insert(THERE)
    assert reasons(two.run()) == {}
    assert two.keys(THERE) == [2, 4]


def pass_by(two: Two, reached: Lsn) -> None:
    """Write until the server's LSNs are behind those that the lake holds."""
    with SqlServerSource(two.config.connection) as source:
        while (source.max_captured_lsn(THERE.database) or reached) <= reached:
            two.insert(THERE)


def rows_from_the_last_drop(two: Two) -> list[int]:
    """Keys that exist after the events behind the last DROP, in position order."""
    history = rows_of_topic(two.config, "shop.__schema_history")
    drop = max(str(row["commit_lsn"]) for row in history if row["type"] == "DROP" and row["database"] == THERE.database)
    alive: set[int] = set()
    for event in events_of(two.config, THERE):
        if str(event.position)[:22] >= drop:
            alive = alive - {event.key} if event.op in ("d", None) else alive | {event.key}
    return sorted(alive)


@pytest.mark.long
@pytest.mark.parametrize("dies_at", ["", "tables-marked", "window-planned", "history-recorded", "window-complete"])
def test_a_new_history_continues_behind_the_old_one(two: Two, dies_at: str) -> None:
    """Whatever step the run that begins it dies at."""
    two.insert(HERE, THERE)
    two.run()
    backup = two.server.backup()
    two.insert(THERE, THERE)
    two.server.execute("DELETE FROM dbo.orders WHERE id = 4", database=THERE.database)
    two.server.agent.drain()
    two.run()
    lost = two.keys(THERE)
    two.server.restore(backup)
    two.run()
    state = state_of(two.config)
    parted, reached = state.tables[THERE].position, state.log(THERE.database).read
    assert reached is not None
    refused = snapshot(two, THERE)
    assert f"have passed {reached}" in refused.failed[0].reason
    two.insert(HERE)
    with cut_at("window-planned"), suppress(PowerCutError):
        two.run()  # another database's window is in flight
    pass_by(two, reached)
    assert snapshot(two).tables == ()
    assert two.keys(THERE) == lost, "nobody has asked for it"

    seen: list[str] = []

    def cut(name: str) -> None:
        seen.append(name)
        if name == dies_at and "tables-marked" in seen:
            raise PowerCutError

    with listening(cut), suppress(PowerCutError):
        snapshot(two, THERE)
    assert not dies_at or seen[-1] == dies_at
    if state_of(two.config).tables[THERE].status != "healthy":
        assert snapshot(two, THERE).tables[-1:] == (THERE,)
    two.insert(THERE, HERE)
    two.server.execute("DELETE FROM dbo.orders WHERE id = 2", database=THERE.database)
    two.server.agent.drain()
    assert reasons(two.run()) == {}
    rows = [row[0] for row in two.server.execute("SELECT id FROM dbo.orders ORDER BY id", database=THERE.database)]
    assert rows_from_the_last_drop(two) == rows
    events = events_of(two.config, THERE)
    assert [event.key for event in events[: len(lost)]] == lost
    assert all(str(event.position)[:22] > str(reached) for event in events[len(lost) :])
    assert len({event.position for event in events}) == len(events)
    assert two.told() == [("DROP", "There")]
    new = state_of(two.config).tables[THERE]
    assert new.gaps[-1][0] < parted <= reached < new.gaps[-1][1] == new.snapshot_lsn  # type: ignore[operator]
    assert len(new.gaps) == 1


def test_restore_that_loses_nothing_of_ours(two: Two) -> None:
    two.insert(THERE)
    two.run()
    two.insert(HERE)
    backup = two.server.backup()
    two.insert(THERE, HERE)  # nobody has read these
    two.server.restore(backup)
    assert reasons(two.run()) == {}
    assert (two.keys(HERE), two.keys(THERE)) == ([1, 4], [2, 3])
    two.insert(THERE)
    assert reasons(two.run()) == {}
    assert two.keys(THERE) == [2, 3, 7]
    fork = fork_of(two)
    assert fork is not None
    assert state_of(two.config).log(THERE.database).fork == fork.identity


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("step", ["window-planned", "files-written"])
def test_restore_while_a_window_is_in_flight(two: Two, step: str, lost: bool) -> None:
    """`window-planned` is before its rows are read, `files-written` after it."""
    backup = two.server.backup()
    two.insert(THERE)
    if not lost:
        backup = two.server.backup()

    def back() -> None:
        two.server.restore(backup)
        if lost:
            two.server.execute("INSERT INTO dbo.orders VALUES (33)", database=THERE.database)
            two.server.agent.drain()

    with listening(at_step(step, back)), suppress(CdcError):
        two.run()
    told = reasons(two.run())
    if not lost:
        assert told == {}
        assert two.keys(THERE) == [2, 3]
        return
    assert told.keys() == {THERE}
    assert two.keys(THERE) == [2]
    assert not state_of(two.config).pending
    two.insert(HERE)
    two.run()
    assert len(two.keys(HERE)) == 2


@pytest.mark.parametrize("pending", [False, True])
def test_death_when_it_is_recorded(two: Two, pending: bool) -> None:
    backup = two.server.backup()
    two.insert(THERE)
    if pending:
        with cut_at("files-written"), pytest.raises(PowerCutError):
            two.run()
    else:
        two.run()
    two.server.restore(backup)
    with cut_at("tables-marked"), pytest.raises(PowerCutError):
        two.run()
    state = state_of(two.config)
    assert not state.pending
    assert state.tables[THERE].status == "failed"
    assert reasons(two.run()) == {THERE: state.tables[THERE].reason}
    assert two.keys(THERE) == ([2] if pending else [2, 3])


def test_restore_after_a_window_was_committed(two: Two) -> None:
    backup = two.server.backup()
    two.insert(THERE)
    with listening(at_step("table-committed", lambda: two.server.restore(backup))), suppress(CdcError):
        two.run()
    assert reasons(two.run()).keys() == {THERE}
    assert two.keys(THERE) == [2, 3]


def test_restore_while_nothing_is_new(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that runs for long finds it by itself."""
    monkeypatch.setattr("cdc_assets.streaming.planner.IDLE_CHECK", loop.IDLE_CHECK * 0)
    backup = two.server.backup()
    two.insert(THERE)
    back = at_step("window-complete", lambda: two.server.restore(backup))
    with listening(back):
        assert reasons(two.run()).keys() == {THERE}


@pytest.mark.parametrize("step", ["snapshot-planned", "round-planned"])
def test_restore_while_a_snapshot_reads(two: Two, step: str) -> None:
    backup = two.server.backup()
    two.insert(THERE)
    two.run()
    with listening(at_step(step, lambda: two.server.restore(backup))), suppress(CdcError):
        snapshot(two, THERE)
    reasons(two.run())
    state = state_of(two.config)
    assert state.snapshots == {}
    assert not state.pending
    assert state.tables[THERE].status == "failed"
    assert two.keys(THERE) == [2, 3]


def test_login_that_cannot_see_the_fork(two: Two) -> None:
    text = "Invalid object name 'sys.database_recovery_status'."
    two.server.faults.error(208, text, matching="database_recovery_status", times=10_000)
    assert fork_of(two) is None
    backup = two.server.backup()
    two.insert(THERE, THERE)
    two.run()
    two.server.restore(backup)
    two.insert(THERE)
    told = reasons(two.run())
    assert told.keys() == {THERE}
    assert "invisible to this login" in told[THERE]
    assert two.keys(THERE) == [2, 3, 4]
    assert state_of(two.config).log(HERE.database).restored == ""


def test_whole_server_that_is_put_back_on_its_fork(two: Two) -> None:
    """As a snapshot of its machine is: no fork tells it, and its LSNs are behind what was read."""
    backup, fork = two.server.backup(), fork_of(two)
    two.insert(THERE, THERE)
    two.run()
    two.server.restore(backup, keep_forks=True)
    assert fork_of(two) == fork
    with SqlServerSource(two.config.connection) as source:
        assert "on the same recovery fork" in str(CaptureOverview(two.config, source).problems()[THERE.database])
    assert overview(two)[0].keys() >= {THERE.database}
    told = reasons(two.run())
    assert THERE in told
    assert "on the same recovery fork" in told[THERE]
    assert two.keys(THERE) == [2, 3, 4]
    reached = state_of(two.config).log(THERE.database).read
    assert reached is not None
    pass_by(two, reached)
    assert THERE in snapshot(two, THERE).tables
    two.insert(THERE)
    assert THERE not in reasons(two.run())
    rows = [row[0] for row in two.server.execute("SELECT id FROM dbo.orders ORDER BY id", database=THERE.database)]
    assert rows_from_the_last_drop(two) == rows
