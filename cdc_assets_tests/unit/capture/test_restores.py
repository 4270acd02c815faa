"""New histories of databases that were restored."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from cdc_assets.capture.reset import Reset
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import Captured, RecoveryFork
from cdc_assets.core.steps import listening
from cdc_assets.errors import DatabaseRestoredError, IncompleteReadError
from cdc_assets.incremental.snapshot import IncrementalSnapshot, Turn
from cdc_assets.shared.instances import before
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE, SimulatedClock, SimulatedServer
from cdc_assets_tests.unit.streaming.tables import started, stream_until
from cdc_assets_tests.unit.streaming.two_databases import OTHER, TwoDatabases, config_of_two


class Restored(TwoDatabases):
    """Each database has a fork of its own."""

    forks: dict[str, RecoveryFork] = {}  # noqa: RUF012 - replaced by each test

    def recovery_fork(self, database: str, known: Lsn = ZERO_LSN) -> RecoveryFork | None:
        return self.forks.get(database, self.fork)


@pytest.mark.parametrize("points", [(0, 1), (1, 0), (1, 0, 1)])
def test_what_was_lost_at_the_earliest_of_some_restores_is_told(tmp_path: Path, points: Sequence[int]) -> None:
    server, config = Restored(), config_of_two(tmp_path)
    lines, _ = server.create("lines", rows=2), server.create_other("other", rows=2)
    server.idle_tick()
    make_capture(server, config).snapshot()
    first = server.commit((lines, "insert", 50, "lost"))
    second = server.commit((lines, "insert", 51, "lost, too"))
    make_capture(server, config).stream()
    for number, point in enumerate(points):
        server.forks = {DATABASE: RecoveryFork(f"fork {number}", (first, second)[point])}
        make_capture(server, config).stream()
    server.idle_tick()
    make_capture(server, config).snapshot([lines])
    after, until = state_of(config).tables[lines].gaps[-1]
    assert (after, until >= second) == (before(first), True)


def test_a_table_that_is_reset_before_a_restore_is_found_lacks_what_was_lost(tmp_path: Path) -> None:
    server, config = Restored(), make_config(str(tmp_path))
    lines = server.create("lines", rows=2)
    server.idle_tick()
    make_capture(server, config).snapshot()
    lost = server.commit((lines, "insert", 50, "lost"))
    make_capture(server, config).stream()
    server.forks = {DATABASE: RecoveryFork("B", lost)}
    Reset(config, SimulatedClock(server)).forget([lines])
    with suppress(DatabaseRestoredError):
        make_capture(server, config).stream()
    server.idle_tick()
    make_capture(server, config).snapshot([lines])
    after, until = state_of(config).tables[lines].gaps[0]
    assert (after, until >= lost) == (before(lost), True)


def test_one_whose_lsns_have_passed_begins_though_another_ones_have_not(tmp_path: Path) -> None:
    server, config = Restored(), config_of_two(tmp_path)
    lines, other = server.create("lines", rows=2), server.create_other("other", rows=2)
    server.idle_tick()
    make_capture(server, config).snapshot()
    lsn = server.commit((lines, "insert", 50, "lost"), (other, "insert", 50, "lost"))
    make_capture(server, config).stream()
    server.forks = {name: RecoveryFork("B", lsn) for name in (DATABASE, OTHER)}
    server.idle_tick()
    newest = {DATABASE: lsn, OTHER: server.captured}
    server.max_captured_lsn = newest.get  # type: ignore[method-assign, assignment]
    done = make_capture(server, config).snapshot([lines, other])
    assert (done.tables, [failed.table for failed in done.failed]) == ((other,), [lines])


@pytest.mark.parametrize("step", ["round-written", "round-complete"])
def test_rows_that_were_read_before_a_restore_do_not_pass_for_the_servers(tmp_path: Path, step: str) -> None:
    server, config = Restored(), make_config(str(tmp_path))
    lines = server.create("lines", rows=2)
    server.idle_tick()
    lost: list[Lsn] = []

    def work(statement: str) -> None:
        if "cdc-assets: rows" in statement and not lost:
            lost.append(server.commit((lines, "insert", 50, "lost")))

    def restore(reached: str) -> None:
        if reached == step and not server.forks:
            server.forks = {DATABASE: RecoveryFork("B", lost[0])}
            server.rows[lines].pop(50)
            server.history, server.transactions = [], []
            server.change_tables = {name: [] for name in server.change_tables}

    server.before_read = work
    with listening(restore), suppress(DatabaseRestoredError):
        make_capture(server, config).snapshot()
    server.commit((lines, "insert", 51, "new"))
    with suppress(DatabaseRestoredError):
        make_capture(server, config).stream()
    rows = {event.key for event in events_of(config, lines)}
    assert 50 not in rows or state_of(config).tables[lines].status == "failed"


@pytest.mark.parametrize("partitions", [None, [0]])
def test_rows_that_were_read_again_count_before_the_stream_comes_there(
    tmp_path: Path, partitions: Sequence[int] | None
) -> None:
    """Their READs lie behind all positions, and nothing was changed while they were read."""
    server, config = Restored(), make_config(str(tmp_path))
    lines = server.create("lines", rows=2)
    server.idle_tick()
    make_capture(server, config).snapshot()
    make_capture(server, config).stream()
    lost = server.commit((lines, "insert", 50, "lost"))
    make_capture(server, config).snapshot([lines], partitions)
    server.forks = {DATABASE: RecoveryFork("B", lost)}
    server.history, server.transactions, server.change_tables = [], [], {name: [] for name in server.change_tables}
    server.commit((lines, "insert", 51, "new"))
    make_capture(server, config).stream()
    assert state_of(config).tables[lines].status == "failed"
    assert state_of(config).log(DATABASE).shared == before(lost)


def test_a_window_that_was_committed_in_part_is_no_more_there_though_nobody_sees_the_fork(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    server.fork, before_it = None, server.captured
    server.commit((lines, "insert", 50, "lost"), (orders, "insert", 50, "lost"))
    stream_until(server, config, "table-committed")
    server.captured, server.history, server.transactions = before_it, [], []
    server.change_tables = {name: [] for name in server.change_tables}
    for key in range(60, 63):
        with suppress(DatabaseRestoredError, IncompleteReadError):
            make_capture(server, config).stream()
        server.commit((lines, "insert", key, "new"), (orders, "insert", key, "new"))
    assert {state_of(config).tables[table].status for table in (lines, orders)} == {"failed"}


def test_what_a_window_committed_in_part_is_passed_before_a_new_history_begins(tmp_path: Path) -> None:
    server, config, lines, orders = started(tmp_path)
    first = server.commit((lines, "insert", 50, "lost"), (orders, "insert", 50, "lost"))
    last = server.commit((lines, "insert", 51, "lost"), (orders, "insert", 51, "lost"))
    stream_until(server, config, "table-committed")
    server.fork, server.captured = RecoveryFork("B", first), first
    with pytest.raises(DatabaseRestoredError, match=f"passed {last}"):
        make_capture(server, config).snapshot([lines, orders])
    server.idle_tick()
    make_capture(server, config).snapshot([lines, orders])
    for table in (lines, orders):
        after, until = state_of(config).tables[table].gaps[-1]
        assert (after <= before(first), until >= last) == (True, True)


def test_a_window_that_reads_nothing_is_taken_for_no_restore(tmp_path: Path) -> None:
    """It ends where its tables are, which may be above what is captured if they were just enabled."""
    server, config = Restored(), make_config(str(tmp_path), mode="no_data")
    server.idle_tick()
    server.fork = None
    lines, _ = server.create("lines"), server.create("orders")
    make_capture(server, config).stream()
    server.disable("dbo_lines")
    with cut_at("history-written"), pytest.raises(PowerCutError):
        make_capture(server, config).stream()
    make_capture(server, config).stream()
    assert "restored" not in state_of(config).tables[lines].reason


@pytest.mark.parametrize("mode", ["initial", "no_data"])
@pytest.mark.parametrize("last", ["snapshot-planned", "snapshot-complete"])
def test_what_a_snapshot_has_passed_is_no_more_there_though_nobody_sees_the_fork(
    tmp_path: Path, mode: str, last: str
) -> None:
    """No window was read since: none of the tables was changed."""
    server, config = SimulatedServer(), make_config(str(tmp_path), mode=mode)
    lines = server.create("lines", rows=2)
    server.idle_tick()
    server.fork, former = None, server.captured
    server.idle_tick()
    with cut_at(last), pytest.raises(PowerCutError):
        make_capture(server, config).snapshot()
    server.captured = former
    with suppress(DatabaseRestoredError):
        make_capture(server, config).stream()
    assert state_of(config).log(DATABASE).restored
    assert {entry.status for table, entry in state_of(config).tables.items() if table == lines} <= {"failed"}


def test_a_replica_that_has_not_got_a_restore_neither_begins_a_history_nor_lengthens_the_loss(tmp_path: Path) -> None:
    server, config = SimulatedServer(), make_config(str(tmp_path))
    lines = server.create("lines", rows=2)
    server.idle_tick()
    make_capture(server, config).snapshot()
    forks = [server.fork, RecoveryFork("B", server.tick())]
    server.fork = forks[-1]
    lost = server.commit((lines, "insert", 50, "lost"))
    make_capture(server, config).stream()
    server.fork = RecoveryFork("C", lost)
    with suppress(DatabaseRestoredError):
        make_capture(server, config).stream()
    server.is_secondary = True
    server.idle_tick()
    for server.fork in forks:
        with suppress(IncompleteReadError):
            make_capture(server, config).snapshot([lines])
        log = state_of(config).log(DATABASE)
        assert (bool(log.restored), log.shared) == (True, before(lost))


def test_no_history_begins_by_how_far_a_secondary_of_the_former_one_is(tmp_path: Path) -> None:
    """It did not follow a forced failover, and is captured further than the new primary."""
    server, config = Restored(), make_config(str(tmp_path))
    lines = server.create("lines", rows=2)
    server.idle_tick()
    make_capture(server, config).snapshot()
    lost = server.commit((lines, "insert", 50, "lost"))
    make_capture(server, config).stream()

    def fork(_: str, known: Lsn = ZERO_LSN) -> RecoveryFork | None:
        if known > lost:
            raise IncompleteReadError("It lags.")
        return RecoveryFork("B", lost)

    server.recovery_fork = fork  # type: ignore[method-assign]
    with suppress(DatabaseRestoredError):
        make_capture(server, config).stream()
    server.max_captured_lsn = lambda _: lost.next()  # type: ignore[method-assign]
    with suppress(DatabaseRestoredError, IncompleteReadError):
        make_capture(server, config).snapshot([lines])
    assert state_of(config).log(DATABASE).restored


def test_no_run_waits_for_markers_of_a_database_that_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config = Restored(), config_of_two(tmp_path)
    server.create("lines", rows=2)
    other = server.create_other("other", rows=2)
    server.idle_tick()
    make_capture(server, config).snapshot()
    lost = server.commit((other, "insert", 50, "lost"))
    make_capture(server, config).stream()

    def turn(_: IncrementalSnapshot, database: str) -> Turn:
        """Markers of one database are not captured yet; meanwhile it is restored."""
        if database != OTHER:
            return "nothing"
        server.forks = {OTHER: RecoveryFork("B", lost)}
        return "waiting"

    def limit(seconds: float) -> None:
        assert seconds < 600, "the run does not end"

    monkeypatch.setattr(IncrementalSnapshot, "turn", turn)
    server.meanwhile = limit
    make_capture(server, config).stream()
    assert state_of(config).log(OTHER).restored


def test_a_primary_on_a_fork_that_was_left_does_not_lag_for_ever(tmp_path: Path) -> None:
    """A copy of the whole server was put back, so its database is on that fork again; no server will be on another one."""
    server, config = Restored(), make_config(str(tmp_path), max_retries=3)
    server.create("lines", rows=2)
    server.idle_tick()
    make_capture(server, config).snapshot()
    server.fork = RecoveryFork("B", server.tick())
    ask = server.max_transaction_lsn

    def put_back(_: float) -> None:
        server.fork = RecoveryFork("A", None)

    def asked(database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN) -> Lsn | None:
        if server.fork is not None and server.fork.identity in server.left_forks(database):
            raise IncompleteReadError("It is on recovery fork A still.")
        return ask(database, after, limit, known)

    server.meanwhile, server.max_transaction_lsn = put_back, asked  # type: ignore[method-assign]
    with suppress(DatabaseRestoredError, IncompleteReadError):
        make_capture(server, config).stream()
    assert "recovery fork is now A" in state_of(config).log(DATABASE).restored


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_fork_that_was_left_and_a_replica_shows_is_no_restore_whoever_is_asked_next(
    tmp_path: Path, times: int
) -> None:
    """Connections to the replica break, so that the primary answers what is asked in between."""
    server, config = Restored(), make_config(str(tmp_path))
    lines = server.create("lines", rows=2)
    server.idle_tick()
    make_capture(server, config).snapshot()
    server.fork = RecoveryFork("B", server.tick())
    make_capture(server, config).stream()
    shown = [RecoveryFork("A", None, is_of_replica=True)] * times

    def fork(_: str, known: Lsn = ZERO_LSN) -> RecoveryFork | None:
        return shown.pop() if shown else server.fork

    server.recovery_fork = fork  # type: ignore[method-assign]
    for _ in range(1 + times):
        with suppress(IncompleteReadError):
            make_capture(server, config).stream()
    assert state_of(config).tables[lines].status == "healthy"


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("sees_forks", [True, False])
def test_a_replica_that_has_captured_less_is_no_restore_whoever_is_asked_next(
    tmp_path: Path, times: int, sees_forks: bool
) -> None:
    """The same; the login may see forks, or none."""
    server, config = Restored(), make_config(str(tmp_path))
    lines = server.create("lines", rows=2)
    server.idle_tick()
    server.fork = server.fork if sees_forks else None
    shown = [Captured(server.captured, is_of_replica=True)] * times
    make_capture(server, config).snapshot()
    server.commit((lines, "insert", 50, "a"))
    make_capture(server, config).stream()

    def captured(_: str) -> Captured:
        return shown.pop() if shown else Captured(server.captured)

    server.captured_by = captured  # type: ignore[method-assign]
    for _ in range(1 + times):
        with suppress(IncompleteReadError):
            make_capture(server, config).stream()
    assert state_of(config).tables[lines].status == "healthy"


@pytest.mark.parametrize("is_loss", [False, True])
def test_another_server_takes_over_between_two_questions(tmp_path: Path, is_loss: bool) -> None:
    """The former primary shows its fork; the new one, on another fork, has not captured all that was read."""
    server, config = Restored(), make_config(str(tmp_path))
    lines = server.create("lines", rows=2)
    server.idle_tick()
    before_it = server.captured
    make_capture(server, config).snapshot()
    lost = server.commit((lines, "insert", 50, "a"))
    make_capture(server, config).stream()
    shown, server.fork = [server.fork], RecoveryFork("B", lost if is_loss else server.tick())

    def fork(_: str, known: Lsn = ZERO_LSN) -> RecoveryFork | None:
        return shown.pop() if shown else server.fork

    server.recovery_fork, server.captured_by = fork, lambda _: Captured(before_it)  # type: ignore[method-assign]
    for _ in range(3):
        with suppress(IncompleteReadError):
            make_capture(server, config).stream()
    assert state_of(config).log(DATABASE).shared == (before(lost) if is_loss else None)
    assert bool(state_of(config).log(DATABASE).restored) is is_loss


def test_a_secondary_that_stands_still_on_a_fork_that_was_never_seen_is_no_restore(tmp_path: Path) -> None:
    server, config = Restored(), make_config(str(tmp_path))
    server.create("lines", rows=2)
    server.idle_tick()
    point, server.fork = server.captured, RecoveryFork("C", None)
    make_capture(server, config).snapshot()
    make_capture(server, config).stream()
    shown = [RecoveryFork("B", point, is_of_replica=True)]

    def fork(_: str, known: Lsn = ZERO_LSN) -> RecoveryFork | None:
        return shown.pop() if shown else server.fork

    server.recovery_fork = fork  # type: ignore[method-assign]
    for _ in range(2):
        with suppress(IncompleteReadError):
            make_capture(server, config).stream()
    assert not state_of(config).log(DATABASE).restored
