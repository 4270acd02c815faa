"""Isolation `snapshot`: all readers see one moment, whoever writes meanwhile, and none of it goes on after a crash."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource, SnapshotTransaction
from cdc_assets.adapters.sqlserver.locks import HeldTableLocks
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.capture import Capture
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.jobs import Job
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.steps import listening
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import ConfigurationError, ConnectionLostError, QueryError, ServerBusyError
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.unit.snapshot.world import DATABASE, World
from cdc_assets_tests.unit.streaming.loop_runner import LoopRunner
from mssql_standin.control import StandIn
from mssql_standin.errors import SqlError


class Bank:
    """Accounts in four tables whose sum never changes, and transfers between them."""

    def __init__(self, server: StandIn, lake: Path, *, allowed: bool = True) -> None:
        self.world = World(server, str(lake), snapshot__isolation__mode="snapshot", snapshot__max__threads="2")
        self.tables = [self.world.make(name) for name in ("a", "b", "c", "d")]
        for table in self.tables:
            self.world.sql(f"INSERT INTO dbo.{table.table} VALUES (1, '100')")
        if allowed:
            server.execute(f"ALTER DATABASE {DATABASE} SET ALLOW_SNAPSHOT_ISOLATION ON")
        self.transfers = 0

    def transfer(self) -> bool:
        """Move 1 from the first table to the last; False if locks are in the way."""
        try:
            self.world.server.execute(
                "SET LOCK_TIMEOUT 0; BEGIN TRAN; UPDATE dbo.a SET note = CAST(CAST(note AS int) - 1 AS varchar(9)); "
                "UPDATE dbo.d SET note = CAST(CAST(note AS int) + 1 AS varchar(9)); COMMIT",
                database=DATABASE,
            )
        except SqlError as error:
            assert error.number == 1222  # noqa: PT017
            return False
        self.transfers += 1
        return True

    def snapshot(self, runner: TaskRunner | None = None) -> Sequence[TableId]:
        config = self.world.config
        with SqlServerSource.of(config) as source:
            capture = Capture(config, source, MssqlBulkSource.of(config), runner or LocalRunner(2), SystemClock())
            return capture.snapshot().tables

    def sums(self) -> list[int]:
        """Sum of the newest READ of each table."""
        newest = [[e for e in self.world.events(table) if e["op"] == "r"][-1] for table in self.tables]
        return [int(event["after"]["note"]) for event in newest]


def test_all_readers_see_one_moment_though_transfers_continue(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = Bank(server, tmp_path)
    pin, read = SnapshotTransaction.pin, SnapshotTransaction.read
    moments: dict[str, list[bool]] = {"planned": [], "pinning": [], "reading": []}

    def slow_pin(self: SnapshotTransaction, table: TableId) -> None:
        moments["pinning"].append(bank.transfer())
        pin(self, table)
        moments["pinning"].append(bank.transfer())

    def slow_read(self: SnapshotTransaction, statement: str, parameters: Sequence[object] = ()) -> Iterator[object]:
        moments["reading"].append(bank.transfer())
        yield from read(self, statement, parameters)

    monkeypatch.setattr(SnapshotTransaction, "pin", slow_pin)
    monkeypatch.setattr(SnapshotTransaction, "read", slow_read)
    with listening(lambda name: moments["planned"].append(bank.transfer()) if name == "snapshot-planned" else None):
        assert bank.snapshot() == tuple(bank.tables)

    assert (moments["planned"], set(moments["pinning"])) == ([True], {False})
    assert bank.sums() == [99, 100, 100, 101], "the transfer before the lock is seen by all, later ones by none"
    assert not list((tmp_path / "shop.__readers").glob("*")), "the folder of the barrier is gone"
    while not bank.transfer():
        pass
    server.agent.drain()
    summary = bank.world.stream()
    assert summary.rows[bank.tables[0]] == {"u": bank.transfers}


@pytest.mark.parametrize(
    ("step", "moment"), [("round-planned", [99, 100, 100, 101]), ("table-committed", [100, 100, 100, 100])]
)
def test_crash_begins_again_at_another_moment_unless_all_was_read(
    server: StandIn, tmp_path: Path, step: str, moment: list[int]
) -> None:
    bank = Bank(server, tmp_path)

    with pytest.raises(PowerCutError), cut_at(step):
        bank.snapshot()
    assert bank.transfer()
    assert bank.snapshot() == tuple(bank.tables)
    assert bank.sums() == moment
    assert [len(bank.world.reads(table)) for table in bank.tables] == [1] * 4


@pytest.mark.usefixtures("short")
def test_fewer_places_than_readers_is_said(server: StandIn, tmp_path: Path) -> None:
    bank = Bank(server, tmp_path)
    with pytest.raises(ConfigurationError, match=r"snapshot\.max\.threads 2 .*at most 1"):
        bank.snapshot(LoopRunner(2))
    assert bank.transfer(), "no lock was taken"
    assert bank.snapshot() == tuple(bank.tables)


def test_lock_that_is_not_to_be_had(server: StandIn, tmp_path: Path) -> None:
    bank = Bank(server, tmp_path)
    bank.world.properties["snapshot.lock.timeout.ms"] = "100"
    with server.connect(DATABASE) as other:
        other.execute("BEGIN TRAN")
        other.execute("UPDATE dbo.b SET note = 'held'")
        with pytest.raises(ServerBusyError, match=r"dbo\.b could not be locked within 100 ms"):
            bank.snapshot()
        other.execute("ROLLBACK")
    assert bank.snapshot() == tuple(bank.tables)


@pytest.mark.long
def test_locks_that_were_lost_record_nothing(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = Bank(server, tmp_path)

    def lost(_: HeldTableLocks) -> None:
        raise ConnectionLostError("The session is gone.")

    with monkeypatch.context() as patch:
        patch.setattr(HeldTableLocks, "check", lost)
        with pytest.raises(ConnectionLostError, match="session is gone"):
            bank.snapshot()
    assert bank.snapshot() == tuple(bank.tables)
    assert [len(bank.world.reads(table)) for table in bank.tables] == [1] * 4


def test_database_that_does_not_allow_it(server: StandIn, tmp_path: Path) -> None:
    bank = Bank(server, tmp_path, allowed=False)
    with pytest.raises(QueryError, match="snapshot isolation is not allowed"):
        bank.snapshot()


@pytest.mark.long
def test_reader_that_is_started_twice_ends_the_attempt(server: StandIn, tmp_path: Path) -> None:
    bank = Bank(server, tmp_path)

    class Repeating(LocalRunner):
        """Runs the first task again, as a cluster does that has lost a worker."""

        def run(self, function: Callable[..., object], tasks: Sequence[object], job: Job) -> list:  # type: ignore[type-arg]
            super().run(function, tasks, job)
            return super().run(function, tasks, job)

    with pytest.raises(ServerBusyError, match="started twice"):
        bank.snapshot(Repeating(2))
    assert bank.snapshot() == tuple(bank.tables)
    assert [len(bank.world.reads(table)) for table in bank.tables] == [1] * 4


def test_runner_that_may_start_a_reader_twice_is_refused(server: StandIn, tmp_path: Path) -> None:
    """The second copy would answer first, and the snapshot would begin again for ever."""
    bank = Bank(server, tmp_path)

    class Speculating(LocalRunner):
        may_start_twice = True

    with pytest.raises(ConfigurationError, match=r"spark\.speculation"):
        bank.snapshot(Speculating(2))
    assert bank.snapshot() == tuple(bank.tables)


def test_table_that_fails_leaves_the_others_their_moment(server: StandIn, tmp_path: Path) -> None:
    bank = Bank(server, tmp_path)
    bank.world.properties |= {
        "snapshot.select.statement.overrides": "dbo.b",
        "snapshot.select.statement.overrides.dbo.b": "SELECT * FROM dbo.nowhere",
    }
    assert bank.snapshot() == tuple(table for table in bank.tables if table.table != "b")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_assets.snapshot.barrier._GATHER_S", 0.5)


@pytest.mark.spark
def test_in_spark_tasks(server: StandIn, tmp_path: Path, runner: TaskRunner) -> None:
    bank = Bank(server, tmp_path)
    assert bank.snapshot(runner) == tuple(bank.tables)
    assert bank.sums() == [100] * 4


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("taken", [1, 2])
def test_slots_that_others_have_taken_are_told(
    server: StandIn, tmp_path: Path, spark_resource: SparkResource, runner: TaskRunner, taken: int
) -> None:
    bank, ended = Bank(server, tmp_path), tmp_path / "ended"

    def of_a_user(number: int) -> int:
        (tmp_path / f"begun-{number}").touch()
        while not ended.exists():
            time.sleep(0.05)
        return number

    context = spark_resource.spark_session.sparkContext
    job = threading.Thread(target=lambda: context.parallelize(range(taken), taken).map(of_a_user).collect())
    job.start()
    wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == taken, 60, lambda: "a user's job runs", every=0.05)
    try:
        with pytest.raises(ConfigurationError, match="only so many readers run at once"):
            bank.snapshot(runner)
        assert job.is_alive()
    finally:
        ended.touch()
        job.join()
    assert bank.snapshot(LocalRunner(2)) == tuple(bank.tables)
