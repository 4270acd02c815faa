"""Tables without a key: whatever is written beside their snapshot, each row is in the topic as often as on the server."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.reached import require_writes
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.readings import OpenReadings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import listening
from cdc_assets.errors import PreflightError
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.overview import inspect_server
from cdc_assets.snapshot.moment import Timed
from cdc_assets.snapshot.plan import Request
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.unit.snapshot.world import DATABASE, World
from mssql_standin.control import StandIn

LAGS = [float(text) for text in os.environ.get("CDC_MOMENT_LAGS", "0,1.2").split(",")]
"""Seconds by which the capture job is late: not at all, and by more than times of commits are rounded."""
ISOLATIONS = ["read_committed", "repeatable_read", "exclusive", "snapshot"]
WAYS = ["signal table", "SNAPSHOT", "signal table and SNAPSHOT", "locks"]


class Shop:
    """Two tables without a key and one with one, written to by somebody who never stops."""

    def __init__(self, server: StandIn, lake: Path, way: str, **properties: str) -> None:
        self.world = World(server, str(lake), **properties)
        self.server, self.written = server, 0
        self.logs = [self.make(name) for name in ("a", "b")]
        self.keyed = self.world.make("k", 20)
        if "signal" in way:
            self.world.sql(
                "CREATE TABLE dbo.ask (id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048) NULL)"
            )
            self.world.enable("ask")
            self.world.properties["signal.data.collection"] = f"{DATABASE}.dbo.ask"
        if "SNAPSHOT" in way:
            server.execute(f"ALTER DATABASE {DATABASE} SET ALLOW_SNAPSHOT_ISOLATION ON")

    def make(self, name: str) -> TableId:
        self.world.sql(f"CREATE TABLE dbo.{name} (n int, note varchar(20))")
        self.world.enable(name)
        rows = ", ".join(f"({number % 10}, 'first')" for number in range(40))
        self.world.sql(f"INSERT INTO dbo.{name} VALUES {rows}")
        return TableId(DATABASE, "dbo", name)

    def write(self, chance: Random) -> None:
        """Change a table: single rows, duplicates, updates, deletions."""
        table, number = chance.choice("ab"), chance.randrange(10)
        statement = chance.choice(
            [
                f"INSERT INTO dbo.{table} VALUES ({number}, 'later')",
                f"INSERT INTO dbo.{table} VALUES ({number}, 'twice'), ({number}, 'twice')",
                f"UPDATE dbo.{table} SET note = 'changed' WHERE n = {number}",
                f"DELETE FROM dbo.{table} WHERE n = {number} AND note = 'changed'",
            ]
        )
        self.server.execute(statement, database=DATABASE)
        self.written += 1

    def wait_for_writes(self) -> None:
        """Until somebody who is writing has written some more."""
        enough = self.written + 10
        wait_until(lambda: self.written >= enough, 120, lambda: f"{self.written} of {enough} statements", every=0.02)

    @contextmanager
    def writing(self, seed: int) -> Iterator[threading.Event]:
        """Somebody writes until the event is set; whoever is locked out waits."""
        over, chance = threading.Event(), Random(seed)  # noqa: S311 - a repeatable workload
        pause_s = 0.004  # so that the readers have a part of the machine
        writer = threading.Thread(target=lambda: [self.write(chance) for _ in iter(lambda: over.wait(pause_s), True)])
        writer.start()
        try:
            yield over
        finally:
            over.set()
            writer.join()

    def check(self) -> None:
        """Read what is left, and compare."""
        self.server.agent.drain()
        self.world.stream()
        for table in self.logs:
            assert rows_of(self.world.events(table)) == self.rows(table)
        assert {event["after"]["id"] for event in self.world.events(self.keyed)} == set(range(1, 21))

    def rows(self, table: TableId) -> Counter[Any]:
        return Counter(
            map(tuple, self.server.execute(f"SELECT n, note FROM {table.within_database}", database=DATABASE))
        )


def rows_of(events: list[dict[str, Any]]) -> Counter[Any]:
    """What the events of one snapshot and the changes after it make; nothing may be removed that is not there."""
    rows: Counter[Any] = Counter()
    for event in events:
        for side, sign in (("before", -1), ("after", 1)):
            if image := event[side]:
                rows[image["n"], image["note"]] += sign
        assert min(rows.values(), default=0) >= 0, "a row was removed before it was there"
    return +rows


@pytest.mark.long
@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_each_row_as_often_as_on_the_server(
    server: StandIn, tmp_path: Path, isolation: str, way: str, lag: float
) -> None:
    if isolation == "snapshot" and "SNAPSHOT" not in way:
        pytest.skip("the isolation needs it")
    shop = Shop(server, tmp_path, way, snapshot__isolation__mode=isolation)
    server.agent.latency_s = lag
    with shop.writing(7):
        shop.wait_for_writes()
        summary = shop.world.snapshot()
        shop.wait_for_writes()
    assert summary.failed == ()
    shop.check()


class Mirrored(Shop):
    """The same with mirrors, which follow whenever they are told to."""

    def follow(self) -> None:
        assert CaptureMirrors(self.world.config, LocalRunner(2), SystemClock()).catch_up() == {}

    def mirrored(self, table: TableId) -> Counter[Any]:
        mirrors = CaptureMirrors(self.world.config, LocalRunner(2), SystemClock())
        rows = MirrorReader(mirrors.tables, f"shop.{table}").current().to_pylist()
        return Counter((row["n"], row["note"]) for row in rows)

    def check_mirrors(self) -> None:
        self.server.agent.drain()
        self.world.stream()
        self.follow()
        for table in self.logs:
            assert self.mirrored(table) == self.rows(table)


@pytest.fixture
def round_per_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_assets.snapshot.rounds._ROUND_SLICES", 1)
    monkeypatch.setattr("cdc_assets.snapshot.rounds.MIN_SLICE", 1)


@pytest.mark.long
@pytest.mark.parametrize("way", ["signal table", "SNAPSHOT", "locks"])
def test_snapshots_of_tables_that_stream(server: StandIn, tmp_path: Path, way: str) -> None:
    """Again as a whole, as a key range, by a signal, and after a gap; somebody writes beside each."""
    shop = Mirrored(server, tmp_path, way, gap__policy="resnapshot")
    a, b = shop.logs
    shop.world.snapshot()
    shop.check_mirrors()
    server.agent.latency_s = 0.5
    with shop.writing(3):
        assert shop.world.snapshot([a, b]).failed == ()
        with shop.world.capture() as capture:
            assert capture.snapshot([a], [0]).failed == ()
        assert shop.world.block("s1", Request(b, select="SELECT * FROM dbo.b WHERE n < 5")).failed == ()
    shop.check_mirrors()
    server.agent.latency_s = 0.0
    shop.world.sql("INSERT INTO dbo.a VALUES (1, 'lost'), (2, 'lost')", "DELETE FROM dbo.a WHERE n = 3")
    newest = server.execute("SELECT sys.fn_cdc_get_max_lsn()", database=DATABASE)[0][0]
    server.agent.cleanup(DATABASE, "dbo_a", newest)
    server.agent.latency_s = 0.5
    with shop.writing(4) as over, listening(lambda name: over.set() if name == "snapshot-complete" else None):
        shop.wait_for_writes()
        shop.world.stream()
    with shop.world.capture() as capture:
        assert len(capture.state().tables[a].gaps) == 1
    shop.check_mirrors()


@pytest.mark.long
def test_mirrors_that_follow_between_the_rounds(server: StandIn, tmp_path: Path, round_per_table: None) -> None:
    """The last row of a table is committed with the next table's; copies of it are counted together."""
    shop = Mirrored(server, tmp_path, "locks")
    shop.world.sql("DELETE FROM dbo.a", "INSERT INTO dbo.a VALUES (1, 'x'), (1, 'x'), (1, 'x')")
    shop.world.snapshot()
    shop.check_mirrors()
    with listening(lambda name: shop.follow() if name == "round-complete" else None):
        shop.world.snapshot([*shop.logs, shop.keyed])
    shop.check_mirrors()


@pytest.mark.long
def test_a_reading_that_was_given_up_hides_no_mirror_that_is_behind(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows yet where it ended; but nothing of it is in the topic, and other READs of the table are of one moment."""
    shop = Mirrored(server, tmp_path, "locks", mirror__enabled="true")
    shop.world.snapshot()
    shop.check_mirrors()
    table = shop.logs[0]

    def told() -> str:
        later = datetime.now(UTC) + timedelta(hours=1)
        report = inspect_server(shop.world.config, partial(SqlServerSource.of, shop.world.config), now=later).report
        return " ".join(str(trouble) for trouble in report.troubles if "mirror" in trouble.where)

    with pytest.raises(PowerCutError), cut_at("moment-fixed"):
        shop.world.snapshot([table])
    monkeypatch.setattr(OpenReadings, "find_end", lambda *_: None)
    shop.world.sql("INSERT INTO dbo.a VALUES (1, 'new')")
    with shop.world.capture() as capture:
        capture.claim()
        capture._activities.snapshotter.give_up(DATABASE, [])
    shop.world.stream()
    with shop.world.capture() as capture:
        assert [one.high for one in capture.state().readings[table]] == [None]
    mirrors = CaptureMirrors(shop.world.config, LocalRunner(2), SystemClock())
    assert f"shop.{table}" in mirrors.behind()
    assert "are behind their topics" in told()
    assert "wait until it is known" not in told()
    shop.check_mirrors()
    assert mirrors.behind() == []
    assert told() == ""


@pytest.mark.long
def test_a_capture_job_that_stands_fails_these_tables_alone(server: StandIn, tmp_path: Path) -> None:
    shop = Shop(server, tmp_path, "locks", snapshot__keyless__wait__ms="300")
    server.agent.pause()
    steps: list[str] = []
    with listening(steps.append):
        done = shop.world.snapshot()
    assert done.tables == (shop.keyed,)
    assert [trouble.table for trouble in done.failed] == shop.logs
    assert steps.count("moment-fixed") == 1, "they do not wait one after the other, and their writers with them"
    assert "snapshot.keyless.wait.ms" in done.failed[0].reason
    server.agent.resume()
    assert shop.world.snapshot().tables == tuple(shop.logs)
    shop.check()


@pytest.mark.long
def test_locks_that_are_not_to_be_had_fail_that_table_alone(server: StandIn, tmp_path: Path) -> None:
    shop = Shop(server, tmp_path, "locks", snapshot__lock__timeout__ms="200")
    with server.connect(DATABASE) as other:
        other.execute("BEGIN TRAN; INSERT INTO dbo.a VALUES (1, 'open')")
        done = shop.world.snapshot()
        other.execute("COMMIT")
    assert [trouble.table for trouble in done.failed] == shop.logs[:1]
    assert shop.world.snapshot().failed == ()
    shop.check()


@pytest.mark.long
def test_without_the_right_to_write_a_signal_another_way_is_found(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PreflightError("The INSERT permission was denied.")

    shop = Shop(server, tmp_path, "signal table and SNAPSHOT")
    monkeypatch.setattr(SqlServerSource, "write_signal", refused)
    with shop.writing(5):
        assert shop.world.snapshot().failed == ()
    shop.check()


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["insert_insert", "insert_delete"])
def test_rows_of_the_signal_table_are_left_as_the_settings_say(server: StandIn, tmp_path: Path, strategy: str) -> None:
    shop = Shop(server, tmp_path, "signal table", incremental__snapshot__watermarking__strategy=strategy)
    assert shop.world.snapshot().failed == ()
    [(rows,)] = server.execute("SELECT COUNT(*) FROM dbo.ask", database=DATABASE)
    assert rows == (strategy == "insert_insert")
    shop.check()


@pytest.mark.long
def test_a_row_of_the_signal_table_that_cannot_be_deleted_stays(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PreflightError("The DELETE permission was denied.")

    shop = Shop(server, tmp_path, "signal table", incremental__snapshot__watermarking__strategy="insert_delete")
    monkeypatch.setattr(SqlServerSource, "delete_signal", refused)
    assert shop.world.snapshot().failed == ()
    shop.check()


@pytest.mark.parametrize("way", ["SNAPSHOT", "locks"])
def test_without_locks(server: StandIn, tmp_path: Path, way: str) -> None:
    shop = Shop(server, tmp_path, way, snapshot__locking__mode="none")
    done = shop.world.snapshot()
    if way == "SNAPSHOT":
        assert done.failed == ()
        shop.check()
    else:
        assert [trouble.table for trouble in done.failed] == shop.logs
        assert "snapshot.locking.mode=none" in done.failed[0].reason


@pytest.mark.long
def test_without_locks_no_moment_is_taken_at_which_a_table_changed(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(server, tmp_path, "SNAPSHOT", snapshot__locking__mode="none")
    fix = Timed.fix

    def write_and_fix(way: Timed) -> None:
        server.execute("INSERT INTO dbo.a VALUES (1, 'between')", database=DATABASE)
        fix(way)

    with monkeypatch.context() as patch:
        patch.setattr(Timed, "fix", write_and_fix)
        done = shop.world.snapshot()
    assert [trouble.table for trouble in done.failed] == shop.logs[:1]
    assert "changed at the moment" in done.failed[0].reason
    assert shop.world.snapshot().failed == ()
    shop.check()


@pytest.mark.parametrize("way", WAYS)
def test_a_crash_at_the_moment_leaves_no_lock_and_doubles_nothing(server: StandIn, tmp_path: Path, way: str) -> None:
    shop = Shop(server, tmp_path, way)
    server.agent.latency_s = 0.3
    with shop.writing(6):
        with pytest.raises(PowerCutError), cut_at("moment-fixed"):
            shop.world.snapshot()
        with pytest.raises(PowerCutError), cut_at("round-written"):
            shop.world.snapshot()
        assert shop.world.snapshot().failed == ()
    shop.check()


@pytest.mark.long
@pytest.mark.parametrize(("way", "session"), [("locks", "locks"), ("SNAPSHOT", "locks"), ("SNAPSHOT", "bulk")])
def test_session_that_a_listener_routes_to_a_secondary_is_refused(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, session: str
) -> None:
    """A lock there keeps nobody away, and a transaction there sees an earlier moment; the control plane is on the primary."""
    shop, asked = Shop(server, tmp_path, way), list[object]()

    def answer(database: str, name: str, found: object) -> None:
        asked.append(found)
        require_writes(database, name, "READ_ONLY")

    with monkeypatch.context() as patch:
        patch.setattr(f"cdc_assets.adapters.sqlserver.{session}.require_writes", answer)
        summary = shop.world.snapshot()
    assert set(asked) == {"READ_WRITE"}
    assert {trouble.table for trouble in summary.failed} == set(shop.logs)
    assert all("routed this connection to a secondary replica" in trouble.reason for trouble in summary.failed)
    assert summary.tables == (shop.keyed,)
    assert shop.world.snapshot().failed == ()
    shop.check()
