"""Locks of each isolation level over the stand-in: whom they stop, how long, and what happens when they are lost."""

import json
import signal
import threading
import time
from pathlib import Path

import pytest

from cdc_assets.adapters.sqlserver.locks import HeldTableLocks
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import VARIABLE, listening
from cdc_assets.errors import ConnectionLostError, ServerBusyError
from cdc_assets.shared.progress import Progress
from cdc_assets_tests.unit.snapshot.world import DATABASE, World
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from cdc_assets_tests.unit.streaming.sleepers import woken_beside
from cdc_assets_tests.warm import run_module
from mssql_standin.control import StandIn
from mssql_standin.errors import SqlError


@pytest.fixture(autouse=True)
def round_per_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_assets.snapshot.rounds._ROUND_SLICES", 1)
    monkeypatch.setattr("cdc_assets.snapshot.rounds.MIN_SLICE", 1)


class Shop:
    """Three tables and a writer who does not wait."""

    def __init__(self, server: StandIn, lake: Path, isolation: str, **properties: str) -> None:
        self.world = World(server, str(lake), snapshot__isolation__mode=isolation, snapshot__max__threads="1")
        self.world.properties |= {name.replace("_", "."): text for name, text in properties.items()}
        self.tables = [self.world.make(name, 3) for name in ("a", "b", "c")]
        self.passed: list[str] = []
        server.execute(f"ALTER DATABASE {DATABASE} SET ALLOW_SNAPSHOT_ISOLATION ON")

    def write(self, when: str) -> None:
        """Change a row of the last table if nothing is in the way."""
        try:
            self.world.sql("SET LOCK_TIMEOUT 0; UPDATE dbo.c SET note = 'later' WHERE id = 1")
        except SqlError as error:
            assert error.number == 1222  # noqa: PT017
        else:
            self.passed.append(when)

    def snapshot(self) -> list[str]:
        """Snapshot with an attempt to write after each step; when it came through."""

        def on_step(name: str) -> None:
            if name in ("snapshot-planned", "round-written"):
                self.write(name)

        with listening(on_step), self.world.capture() as capture:
            assert capture.snapshot().tables == tuple(self.tables)
        self.write("afterwards")
        return self.passed

    def notes(self, table: TableId) -> list[str]:
        return [event["after"]["note"] for event in self.world.events(table) if event["op"] == "r"]


EXPECTED = {
    "read_committed": ["snapshot-planned", *["round-written"] * 3, "afterwards"],
    "repeatable_read": [*["round-written"] * 3, "afterwards"],
    "exclusive": ["afterwards"],
    "snapshot": ["snapshot-planned", "round-written", "afterwards"],
}


@pytest.mark.parametrize("isolation", EXPECTED)
def test_who_is_kept_out_and_until_when(server: StandIn, tmp_path: Path, isolation: str) -> None:
    shop = Shop(server, tmp_path, isolation)
    assert shop.snapshot() == EXPECTED[isolation]
    assert shop.notes(shop.tables[2])[0] == ("n1" if isolation == "exclusive" else "later")


def test_without_locking_nobody_is_kept_out(server: StandIn, tmp_path: Path) -> None:
    shop = Shop(server, tmp_path, "exclusive", snapshot_locking_mode="none")
    assert shop.snapshot() == EXPECTED["read_committed"]


@pytest.mark.parametrize(("timeout", "min_s"), [("0", 0.0), ("200", 0.2)])
def test_lock_that_is_not_to_be_had_in_time(server: StandIn, tmp_path: Path, timeout: str, min_s: float) -> None:
    shop = Shop(server, tmp_path, "exclusive", snapshot_lock_timeout_ms=timeout)
    with server.connect(DATABASE) as other:
        other.execute("BEGIN TRAN")
        other.execute("UPDATE dbo.b SET note = 'held'")
        began = time.monotonic()
        with pytest.raises(ServerBusyError, match=rf"dbo\.b could not be locked within {timeout} ms.*lock\.timeout"):
            shop.world.snapshot()
        assert min_s <= time.monotonic() - began < min_s + 8
        other.execute("ROLLBACK")
    assert shop.world.snapshot().tables == tuple(shop.tables)


@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read"])
def test_a_locked_table_holds_no_other_back(server: StandIn, tmp_path: Path, isolation: str) -> None:
    shop = Shop(server, tmp_path, isolation, snapshot_lock_timeout_ms="300", snapshot_locking_mode="none")
    a, b, c = shop.tables
    with server.connect(DATABASE) as other:
        other.execute("BEGIN TRAN; UPDATE dbo.b WITH (TABLOCKX) SET note = 'held'")
        began = time.monotonic()
        done = shop.world.snapshot()
        assert time.monotonic() - began < 20
        other.execute("ROLLBACK")
    assert done.tables == (a, c)
    [trouble] = done.failed
    assert trouble.table == b
    assert "LockTimeoutError" in trouble.reason
    assert shop.world.snapshot().tables == (b,)


def test_lock_that_is_waited_for(server: StandIn, tmp_path: Path) -> None:
    shop = Shop(server, tmp_path, "exclusive", snapshot_lock_timeout_ms="-1")
    with server.connect(DATABASE) as other:
        other.execute("BEGIN TRAN")
        other.execute("UPDATE dbo.b SET note = 'held'")
        timer = threading.Timer(0.5, lambda: other.execute("COMMIT"))
        timer.start()
        shop.world.snapshot()
        timer.join()
    assert set(shop.notes(shop.tables[1])) == {"held"}


@pytest.mark.long
def test_snapshot_under_lost_locks_begins_again(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(server, tmp_path, "exclusive")
    alive = HeldTableLocks.check
    checks = 0

    def check(locks: HeldTableLocks) -> None:
        nonlocal checks
        checks += 1
        if checks == 2:
            raise ConnectionLostError("The session is gone.")
        alive(locks)

    monkeypatch.setattr(HeldTableLocks, "check", check)
    with pytest.raises(ConnectionLostError):
        shop.world.snapshot()
    assert [len(shop.notes(table)) for table in shop.tables[:1]] == [2], "its last row waits for its marker"
    shop.write("between")
    assert shop.world.snapshot().tables == tuple(shop.tables)
    assert [len(shop.notes(table)) for table in shop.tables] == [5, 3, 3]
    assert shop.notes(shop.tables[2])[0] == "later", "all rows are of the second moment"
    assert shop.world.notes()[-1][0] == "COMPLETED"
    assert shop.world.stream().troubled == ()


def test_session_that_holds_locks_gives_way_in_a_deadlock(server: StandIn, tmp_path: Path) -> None:
    """The stand-in always ends the session that closes the circle, so only the wish can be seen there."""
    shop = Shop(server, tmp_path, "exclusive", snapshot_lock_timeout_ms="700")
    found: list[tuple[object, ...]] = []
    question = "SELECT deadlock_priority, lock_timeout FROM sys.dm_exec_sessions WHERE deadlock_priority <> 0"
    with listening(lambda name: found.extend(server.execute(question)) if name == "round-planned" else None):
        shop.world.snapshot()
    assert [tuple(row) for row in found] == [(-5, 700)] * 3


@pytest.mark.crash
@pytest.mark.parametrize(
    ("isolation", "step"),
    [("exclusive", "round-planned"), ("exclusive", "round-complete"), ("snapshot", "table-committed:2")],
)
def test_killed_process_leaves_no_lock_and_no_row_out(
    server: StandIn, tmp_path: Path, isolation: str, step: str
) -> None:
    shop = Shop(server, tmp_path / "lake", isolation)
    file = tmp_path / "shop.json"
    file.write_text(json.dumps(shop.world.given))
    arguments = ["capture", "--local", "--snapshot-only", "-c", str(file)]
    before = server.connections
    killed = run_module("cdc_assets.cli.main", *arguments, environment={VARIABLE: step})
    assert killed.returncode == -signal.SIGKILL, killed.said
    while server.connections > before:  # it learns of it a moment later
        time.sleep(0.02)
    shop.write("between")
    assert shop.passed == ["between"]
    assert shop.world.snapshot().tables == tuple(shop.tables)
    assert [set(shop.world.reads(table)) for table in shop.tables] == [{1, 2, 3}] * 3
    recorded = step != "round-planned"
    assert shop.notes(shop.tables[2])[-3] == ("n1" if recorded else "later"), "all was read, or all is read again"


def test_crash_under_locks_begins_again_and_each_row_is_there(server: StandIn, tmp_path: Path) -> None:
    shop = Shop(server, tmp_path, "exclusive")
    seen: list[Progress] = []

    def stop(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), shop.world.capture(stop) as capture:
        capture.snapshot()
    shop.write("between")
    assert shop.passed == ["between"], "the locks went with the process"
    assert shop.world.snapshot().tables == tuple(shop.tables)
    assert [set(shop.world.reads(table)) for table in shop.tables] == [{1, 2, 3}] * 3


def test_snapshot_that_begins_again_while_its_first_run_sleeps(server: StandIn, tmp_path: Path) -> None:
    """The run that was believed dead wakes before the structures are recorded, under the number of the former beginning."""
    world = World(server, str(tmp_path / "lake"), snapshot__isolation__mode="snapshot")
    server.execute(f"ALTER DATABASE {DATABASE} SET ALLOW_SNAPSHOT_ISOLATION ON")
    table = world.make("a", 3)
    woken_beside("snapshot-planned", "snapshot-planned", world.snapshot, world.snapshot)
    assert [row["type"] for row in rows_of_topic(world.config, "shop.__schema_history")] == ["CREATE"]
    assert world.reads(table) == [1, 2, 3]
