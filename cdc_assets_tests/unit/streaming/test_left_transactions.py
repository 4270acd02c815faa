"""Transactions that a window leaves to the next one of its database, because it was given up behind the commit of some tables."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import RecoveryFork
from cdc_assets.errors import CdcDisabledError, ConfigurationError, DatabaseAwayError, IncompleteReadError, QueryError
from cdc_assets.lake import step
from cdc_assets.lake.step import Change
from cdc_assets.ledger import fold
from cdc_assets.ledger.state import Unpublished
from cdc_assets.overview.capture import CaptureOverview
from cdc_assets.shared import endings
from cdc_assets.streaming import windows
from cdc_assets.streaming.structures import WindowStructures
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.transactions import broken_transactions
from cdc_assets_tests.unit.streaming.two_databases import OTHER, TwoDatabases, config_of_two

AWAY = DatabaseAwayError("Database Other is offline.")


class World:
    """Two databases; `y` and `z` are in the one that is away now and then, `orders` in the other.

    A window takes as many rows as it may have, and an error is not tried again for ever.
    """

    def __init__(self, path: Path) -> None:
        self.server = TwoDatabases()
        self.orders = self.server.create("orders", rows=1)
        self.y, self.z = (self.server.create_other(name, rows=1) for name in ("y", "z"))
        self.server.idle_tick()
        self.config = config_of_two(path, transaction_metadata=True)
        self.config = self.having(max_retries=3)
        make_capture(self.server, self.config).snapshot()

    def having(self, **streaming: object) -> CaptureConfig:
        """The settings with others of streaming."""
        return replace(self.config, streaming=replace(self.config.streaming, **streaming))  # type: ignore[arg-type]

    def commit(self, numbers: Sequence[int]) -> list[Lsn]:
        """A transaction for each number, with a row in both tables."""
        return [self.server.commit((self.y, "insert", n, "x"), (self.z, "insert", n, "x")) for n in numbers]

    def stream(self, config: CaptureConfig | None = None) -> None:
        make_capture(self.server, config or self.config).stream()

    def die_behind(self, table: TableId, config: CaptureConfig | None = None) -> None:
        """A run that dies once one table of the database is committed."""

        def committed(number: int, changes: Sequence[Change]) -> None:
            for change in sorted(changes, key=lambda change: change.directory != f"shop.{table}"):
                is_read = OTHER not in self.server.troubles
                others = ("shop.Other", "shop.transaction") if is_read else ("shop.Other",)
                if change.directory != f"shop.{table}" and change.directory.startswith(others):
                    raise PowerCutError
                change.commit(number)

        with patch.object(step, "_commit", committed), pytest.raises(PowerCutError):
            self.stream(config)

    def give_up_behind(self, table: TableId, config: CaptureConfig | None = None) -> None:
        """The same, and the database is away when the next run begins."""
        self.die_behind(table, config)
        self.server.troubles[OTHER] = AWAY
        self.stream()
        del self.server.troubles[OTHER]

    def assert_whole(self, *numbers: int) -> None:
        """Each event is there once, and each transaction is told once, with all its events."""
        for table in (self.y, self.z):
            assert [event.key for event in events_of(self.config, table) if event.key > 5] == list(numbers)
            assert state_of(self.config).tables[table].status == "healthy"
        assert not broken_transactions(self.config)
        assert not state_of(self.config).unpublished


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.long
def test_a_shorter_window_that_is_given_up_as_well(world: World) -> None:
    """Then one instance is read to be counted, and behind that for its new changes."""
    world.commit(range(6, 10))
    world.give_up_behind(world.y)
    world.give_up_behind(world.z, world.having(window_rows=4))
    world.stream()
    world.assert_whole(6, 7, 8, 9)


@pytest.mark.long
def test_windows_that_are_given_up_one_behind_the_other(world: World) -> None:
    """Then one instance is read twice to be counted."""
    world.commit(range(6, 11))
    world.give_up_behind(world.y)
    for rows in (4, 6):
        world.give_up_behind(world.z, world.having(window_rows=rows))
    reads = state_of(world.config).unpublished[OTHER].reads
    assert [read.table for read in reads] == [world.y, world.z, world.z]
    world.stream()
    world.assert_whole(6, 7, 8, 9, 10)


@pytest.mark.long
def test_a_window_that_is_shorter_since_another_database_had_many_rows(world: World) -> None:
    shared = world.having(window_rows=8, idle_timeout_s=100.0)
    commits = world.commit(range(6, 10))
    world.die_behind(world.y)
    world.server.troubles[OTHER] = AWAY
    world.server.commit(*[(world.orders, "insert", number, "x") for number in range(10, 18)])

    def back(seconds: float) -> None:
        if seconds > 35:
            world.server.troubles.pop(OTHER, None)

    world.server.meanwhile = back
    world.die_behind(world.z, shared)
    assert state_of(world.config).in_flight(OTHER).until == commits[1]  # type: ignore[union-attr]
    world.server.meanwhile = lambda _: None
    world.server.troubles[OTHER] = AWAY
    world.stream()
    del world.server.troubles[OTHER]
    world.stream()
    world.assert_whole(6, 7, 8, 9)


@pytest.mark.long
def test_a_table_that_is_excluded_before_its_transactions_are_told(world: World) -> None:
    world.commit([6])
    world.give_up_behind(world.y)
    world.stream(replace(world.config, filters=replace(world.config.filters, table_exclude=("dbo.y",))))
    assert state_of(world.config).tables[world.y].status == "excluded"
    assert not broken_transactions(world.config)
    world.stream()
    world.assert_whole(6)


@pytest.mark.long
def test_a_table_of_which_one_part_is_counted_and_the_other_refused(world: World) -> None:
    """It stays behind, and goes on where it was."""
    world.commit(range(6, 10))
    world.give_up_behind(world.y)
    world.give_up_behind(world.z, world.having(window_rows=4))
    refused = state_of(world.config).tables[world.z].position

    def refuse(statement: str) -> None:
        if "other_z" in statement:
            raise QueryError("The SELECT permission was denied.", 229)

    world.server.before_read = refuse
    world.stream()
    state = state_of(world.config).tables[world.z]
    assert (state.status, state.position) == ("failed", refused)
    world.server.before_read = lambda _: None
    world.stream()
    for table in (world.y, world.z):
        assert [event.key for event in events_of(world.config, table) if event.key > 5] == [6, 7, 8, 9]


def test_a_restore_behind_what_is_left_is_found_at_once_where_nobody_sees_the_fork(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the server's new history may pass what was read before somebody looks."""
    server = world.server
    server.fork, before = None, server.captured
    world.commit([6])
    world.give_up_behind(world.y)
    now, asked = server.captured, list[str]()

    def captured(database: str) -> Lsn | None:
        asked.append(database)
        return now if database != OTHER or asked.count(OTHER) == 1 else before

    def fork(database: str, known: Lsn = ZERO_LSN) -> None:
        if known > ZERO_LSN and known > (captured(database) or ZERO_LSN):
            raise IncompleteReadError("It lags.")

    monkeypatch.setattr(server, "max_captured_lsn", captured)
    monkeypatch.setattr(server, "recovery_fork", fork)
    world.stream()
    assert state_of(world.config).log(OTHER).restored


@pytest.mark.long
@pytest.mark.parametrize("policy", ["fail", "ignore", "resnapshot"])
def test_rows_that_were_only_to_be_counted_are_cleaned_up(world: World, policy: str) -> None:
    """The table lacks nothing."""
    commits = world.commit(range(6, 10))
    world.give_up_behind(world.y)
    world.give_up_behind(world.z, world.having(window_rows=4))
    assert state_of(world.config).tables[world.z].position == commits[1]
    world.server.clean_up(commits[1])
    world.stream(world.having(gap_policy=policy))
    state = state_of(world.config)
    for table in (world.y, world.z):
        assert (state.tables[table].status, state.tables[table].gaps) == ("healthy", ())
        assert [event.key for event in events_of(world.config, table) if event.key > 5] == [6, 7, 8, 9]
    assert not state.unpublished


@pytest.mark.parametrize("how", ["unreadable", "gone"])
def test_a_topic_that_is_lost_before_its_transactions_are_told_holds_up_nothing(world: World, how: str) -> None:
    world.commit([6])
    world.give_up_behind(world.y)
    topic = Path(world.config.lake.path) / f"shop.{world.y}"
    if how == "gone":
        shutil.rmtree(topic)
    else:
        for commit in (topic / "_delta_log").iterdir():
            commit.write_text("garbage")
    world.commit([7, 8])
    for _ in range(2):
        world.stream()
    assert [event.key for event in events_of(world.config, world.z) if event.key > 5] == [6, 7, 8]
    assert not state_of(world.config).pending
    assert state_of(world.config).tables[world.y].gaps
    assert how == "unreadable" or not topic.exists(), "it may be restored from a copy"


@pytest.mark.long
def test_a_table_that_is_counted_and_has_no_structure_for_its_new_rows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """END counts what is committed of it, and it goes no further."""
    world.commit(range(6, 10))
    world.give_up_behind(world.y)
    world.give_up_behind(world.z, world.having(window_rows=4))
    entry = WindowStructures._entry

    def refused(self, read, *rest):  # type: ignore[no-untyped-def]
        if read.table == world.z:
            raise ConfigurationError("column", "c", "a type that events have", "leave it out")
        return entry(self, read, *rest)

    monkeypatch.setattr(WindowStructures, "_entry", refused)
    world.stream()
    assert state_of(world.config).tables[world.z].status == "failed"
    assert [event.key for event in events_of(world.config, world.z) if event.key > 5] == [6, 7]
    assert not broken_transactions(world.config)
    monkeypatch.undo()
    world.stream()
    assert [event.key for event in events_of(world.config, world.z) if event.key > 5] == [6, 7, 8, 9]


@pytest.mark.parametrize("before", [True, False], ids=["switched off", "switched on"])
def test_transactions_are_switched_while_a_window_is_in_flight(world: World, before: bool) -> None:
    """It is carried out as it was planned."""
    first, then = (
        replace(world.config, events=replace(world.config.events, transaction_metadata=on))
        for on in (before, not before)
    )
    world.commit([6])
    world.die_behind(world.y, first)
    assert state_of(world.config).pending
    world.stream(then)
    world.assert_whole(6)


@pytest.mark.long
def test_transactions_are_switched_off_while_some_are_left(world: World) -> None:
    world.commit([6])
    world.give_up_behind(world.y)
    world.stream(replace(world.config, events=replace(world.config.events, transaction_metadata=False)))
    world.assert_whole(6)


def test_left_transactions_of_tables_that_have_ended_are_no_work(world: World) -> None:
    world.commit([6])
    world.give_up_behind(world.y)
    assert state_of(world.config).unpublished
    world.server.troubles[OTHER] = CdcDisabledError("Change data capture is off.")
    for _ in range(3):
        world.stream()
    assert "BEGIN and END of its transactions" in state_of(world.config).tables[world.z].reason
    assert not CaptureOverview(world.config, world.server).work.unread_databases()  # type: ignore[arg-type]


def test_what_a_shorter_window_has_not_published_is_told_when_the_database_is_restored(world: World) -> None:
    world.server.fork = RecoveryFork("A", None)
    commits = world.commit(range(6, 10))
    world.give_up_behind(world.y)
    with cut_at("transactions-committed"), pytest.raises(PowerCutError):
        world.stream(world.having(window_rows=4))
    world.server.fork = RecoveryFork("B", commits[0])
    world.stream()
    assert f"({commits[1]}, {commits[3]}] were not published" in state_of(world.config).tables[world.z].reason


@pytest.mark.long
def test_a_lake_in_which_transactions_are_left_that_are_published_goes_on(world: World) -> None:
    """An earlier version recorded them, and stood still."""

    def recorded(ledger, window, committed):  # type: ignore[no-untyped-def]
        reads = tuple(replace(read, counted=True) for read in committed)
        return Unpublished(ledger.state.published_until(window), window.until, reads) if reads else None

    def refuse(statement: str) -> None:
        if "other_z" in statement:
            raise QueryError("The SELECT permission was denied.", 229)

    with (
        patch.object(endings, "unpublished", recorded),
        patch.object(windows, "unpublished", recorded),
        patch.object(fold, "_waiting", dict),
    ):
        world.server.before_read = refuse
        world.commit([6])
        world.stream()
        world.server.before_read = lambda _: None
        with cut_at("table-committed"), pytest.raises(PowerCutError):
            world.stream()
        world.server.troubles[OTHER] = AWAY
        world.stream()
        del world.server.troubles[OTHER]
        world.commit([7])
        world.stream(world.having(max_duration_s=20.0))
        assert state_of(world.config).unpublished
    world.stream()
    world.assert_whole(6, 7)
