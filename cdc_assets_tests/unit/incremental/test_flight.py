"""What happens to a round of an incremental snapshot in flight (spec debezium-sqlserver §9.3), each on the stand-in."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.config.settings import FilterSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.signal import Signal
from cdc_assets.core.steps import listening
from cdc_assets.incremental.rounds import Round
from cdc_assets.lake.location import Location
from cdc_assets.ledger.signal_state import QueuedTable
from cdc_assets.signals.inbox import Inbox
from cdc_assets.signals.table import DELETE, INSERT, Row
from cdc_assets_tests.unit.incremental.stories import Once, ask, ids, orders, scans
from cdc_assets_tests.unit.signals.world import World, check_law, values
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


@pytest.mark.long
def test_stop_and_pause_while_a_round_is_in_flight(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = orders(world, 300)
    ask(world, table)
    with listening(Once("chunk-read", lambda: world.signal("s2", "stop-snapshot", type="incremental"))):
        world.run()
    assert world.reads(table) == []
    ask(world, table, own_id="s3")
    with listening(Once("chunk-read", lambda: world.signal("s4", "pause-snapshot", type="incremental"))):
        world.run()
    assert 0 < len(world.reads(table)) < 300
    world.signal("s5", "resume-snapshot", type="incremental")
    world.run()
    assert ids(world, table) == list(range(1, 301))


@pytest.mark.long
def test_a_table_that_somebody_locks_is_read_later_and_the_stream_continues(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    streaming = replace(world.config.streaming, retry_wait_s=0.0)
    world.config = replace(
        world.config, snapshot=replace(world.config.snapshot, lock_timeout_ms=50), streaming=streaming
    )
    table, other = orders(world), world.make("other", "id int PRIMARY KEY")
    world.run("snapshot")
    with server.connect(DATABASE) as blocker:
        rounds: list[int] = []

        def play(name: str) -> None:
            if name != "marker-written":
                return
            rounds.append(len(world.events(other)))
            if len(rounds) == 1:
                blocker.execute("BEGIN TRANSACTION; SELECT COUNT(*) FROM dbo.orders WITH (TABLOCKX, HOLDLOCK)")
                world.sql("INSERT INTO dbo.other VALUES (1)")
                server.agent.drain()
            elif len(rounds) == 2:
                blocker.execute("ROLLBACK")

        ask(world, table)
        with listening(play):
            world.run()
    assert rounds[:2] == [0, 1]
    assert ids(world, table) == list(range(1, 101))


@pytest.mark.long
@pytest.mark.parametrize("locked", ["cdc.dbo_orders_CT", "cdc.dbo_cdc_signal_CT"])
def test_a_change_table_that_somebody_locks_ends_no_snapshot(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: str
) -> None:
    monkeypatch.setattr("cdc_assets.adapters.sqlserver.table_queries.LOCK_WAIT_MS", 50)
    world = World(server, str(tmp_path))
    world.config = replace(world.config, streaming=replace(world.config.streaming, retry_wait_s=0.0))
    table = orders(world)
    world.run("snapshot")
    with server.connect(DATABASE) as blocker:
        free = Timer(0.5, lambda: blocker.execute("ROLLBACK"))

        def lock() -> None:
            world.sql("INSERT INTO dbo.orders VALUES (101, 1)")
            server.agent.drain()
            blocker.execute(f"BEGIN TRANSACTION; SELECT COUNT(*) FROM {locked} WITH (TABLOCKX, HOLDLOCK)")
            free.start()

        ask(world, table)
        with listening(Once("chunk-read", lock)):
            world.run()
        free.join()
    assert ids(world, table) == list(range(1, 101))
    assert world.state().tables[table].status == "healthy"


@pytest.mark.long
def test_a_change_table_that_stays_locked_holds_up_no_snapshot_of_others(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_assets.adapters.sqlserver.table_queries.LOCK_WAIT_MS", 50)
    world = World(server, str(tmp_path))
    world.config = replace(
        world.config, streaming=replace(world.config.streaming, retry_wait_s=0.0, max_duration_s=10.0)
    )
    table, other = orders(world), world.make("other", "id int PRIMARY KEY")
    world.run("snapshot")
    with server.connect(DATABASE) as blocker:

        def lock() -> None:
            world.sql("INSERT INTO dbo.other VALUES (1)")
            server.agent.drain()
            blocker.execute("BEGIN TRANSACTION; SELECT COUNT(*) FROM cdc.dbo_other_CT WITH (TABLOCKX, HOLDLOCK)")

        ask(world, table)
        with listening(Once("chunk-read", lock)):
            world.run()
        assert (ids(world, table), scans(world)) == (list(range(1, 101)), ["SUCCEEDED"])
        assert world.state().tables[other].resumes
        blocker.execute("ROLLBACK")
    world.run()
    assert [event["value"]["op"] for event in world.events(other)] == ["c"]


@pytest.mark.long
def test_a_quiet_table_is_read_with_the_columns_of_its_second_instance(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    table = orders(world)
    world.run("snapshot")
    world.sql("ALTER TABLE dbo.orders ADD state varchar(9) NOT NULL DEFAULT 'open'")
    world.sql(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'orders', @role_name = NULL, "
        "@capture_instance = N'dbo_orders_v2'"
    )
    ask(world, table)
    world.run()
    assert [row["state"] for row in world.reads(table)] == ["open"] * 100


@pytest.mark.long
@pytest.mark.parametrize(
    ("counted", "why"),
    [
        ("at once", "0 of 2 change rows arrived"),
        ("later", "cannot be counted"),
        ("by the replica", "between two questions"),
    ],
)
def test_changed_rows_that_a_replica_has_cleaned_up_already(
    server: StandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    counted: str,
    why: str,
) -> None:
    """The server of the control plane has them still, and its low-water mark tells nothing; perhaps it cannot count them at once, or
    its connection is to the replica until then."""
    world = World(server, str(tmp_path))
    world.config = replace(world.config, streaming=replace(world.config.streaming, retry_wait_s=0.0))
    table = orders(world)
    read, cleaned = MssqlBulkSource.read, list[str]()
    count, troubled = SqlServerSource.rows_per_commit, [counted != "at once"]

    def of_replica(
        bulk: MssqlBulkSource, statement: str, parameters: Sequence[object] = ()
    ) -> Iterator[pa.RecordBatch]:
        batches = read(bulk, statement, parameters)
        if "changed rows" in statement and not cleaned:
            cleaned.append(statement)
            return (batch.slice(0, 0) for batch in batches)
        return batches

    def of_server(source: SqlServerSource, *asked: Any) -> Mapping[str, Sequence[tuple[Lsn, int]]]:
        found = count(source, *asked)
        if not (cleaned and troubled and troubled.pop()):
            return found
        if counted == "later":
            return {}
        source.session.close()
        return dict.fromkeys(found, ())

    monkeypatch.setattr(MssqlBulkSource, "read", of_replica)
    monkeypatch.setattr(SqlServerSource, "rows_per_commit", of_server)
    ask(world, table)
    with listening(Once("chunk-read", lambda: world.sql("UPDATE dbo.orders SET version = 500 WHERE id = 5"))):
        world.run()
    assert {"id": 5, "version": 5} not in world.reads(table)
    assert ids(world, table) == list(range(1, 101))
    assert why in caplog.text


@pytest.mark.long
def test_rows_that_are_read_from_a_replica_that_lags(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change is committed before the open marker, and the replica has not got it yet: the row must not come behind it."""
    world = World(server, str(tmp_path))
    table = orders(world)
    read, write, written = MssqlBulkSource.read, SqlServerSource.write_signal, list[str]()

    def late(bulk: MssqlBulkSource, statement: str, parameters: Sequence[object] = ()) -> Iterator[pa.RecordBatch]:
        for batch in read(bulk, statement, parameters):
            if "cdc-assets: chunk */" not in statement:
                yield batch
                continue
            is_changed = pc.equal(batch.column("version"), 500)
            former = pc.if_else(is_changed, batch.column("id"), batch.column("version"))
            yield batch.set_column(batch.schema.names.index("version"), batch.schema.field("version"), former)

    def change_before(source: SqlServerSource, signals: TableId, row: tuple[str, str, str | None]) -> None:
        if not written:
            world.sql("UPDATE dbo.orders SET version = 500 WHERE id = 5")
        written.append(row[0])
        write(source, signals, row)

    monkeypatch.setattr(MssqlBulkSource, "read", late)
    monkeypatch.setattr(SqlServerSource, "write_signal", change_before)
    ask(world, table)
    world.run()
    assert written
    assert ids(world, table) == [number for number in range(1, 101) if number != 5]


def test_a_stop_by_another_channel_beats_the_error_of_what_it_stops(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path), poll_interval_s=0.0)
    table = orders(world)
    inbox = Inbox(Location.of(world.config.lake), "shop")

    def stop() -> None:
        world.sql("DROP TABLE dbo.orders")
        inbox.put(Signal("s2", "stop-snapshot", '{"type": "incremental"}'))

    ask(world, table)
    with listening(Once("marker-written", stop)):
        world.run()
    assert world.reads(table) == []
    assert [kind for kind, _ in world.notes()] == ["STARTED", "ABORTED"]


@pytest.mark.long
def test_databases_have_signal_tables_and_rounds_of_their_own(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    both = replace(world.config.connection, databases=(DATABASE, "Other"))
    signals = replace(
        world.config.signals, collections=(*world.config.signals.collections, TableId("Other", "dbo", "ask"))
    )
    filters = FilterSettings(
        also=frozenset(str(name).lower() for name in signals.collections), table_exclude=("dbo.cdc_.*", "dbo.ask")
    )
    world.config = replace(world.config, connection=both, signals=signals, filters=filters)
    server.execute("CREATE DATABASE Other")
    world.sql("EXEC sys.sp_cdc_enable_db", "Other")
    world.make("ask", "id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048) NULL", "Other")
    tables = [orders(world), world.make("orders", "id int PRIMARY KEY, version int", "Other")]
    world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {n}' for n in range(1, 81)))}", "Other")
    world.run("snapshot")
    ask(world, tables[0])
    text = json.dumps({"data-collections": [str(tables[1])]})
    world.sql(f"INSERT INTO dbo.ask VALUES ('o1', 'execute-snapshot', '{text}')", "Other")

    def change() -> None:
        world.sql("UPDATE dbo.orders SET version = 1000 WHERE id = 1")
        world.sql("UPDATE dbo.orders SET version = 1000 WHERE id = 2", "Other")

    with listening(Once("chunk-read", change, 2)):
        world.run()
    assert scans(world) == ["SUCCEEDED", "SUCCEEDED"]
    assert set(range(2, 101)) <= set(ids(world, tables[0]))
    assert {1, *range(3, 81)} <= set(ids(world, tables[1]))
    check_law(world, tables[0], {n: n if n > 1 else 1000 for n in range(1, 101)})
    check_law(world, tables[1], {n: n if n != 2 else 1000 for n in range(1, 81)})


@pytest.mark.long
def test_stop_of_one_table_continues_with_the_next(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    other = world.make("others", "id int PRIMARY KEY")
    world.sql("INSERT INTO dbo.others VALUES (1), (2)")
    table = orders(world)
    ask(world, table, other)

    def stop() -> None:
        world.signal("s2", "stop-snapshot", type="incremental", data_collections=[str(table)])

    with listening(Once("chunk-read", stop)):
        world.run()
    assert world.reads(table) == []
    assert ids(world, other) == [1, 2]


@pytest.mark.parametrize("is_deleted", [True, False])
def test_only_a_round_that_is_closed_so_ends_with_the_deletion_of_its_marker(is_deleted: bool) -> None:
    """Else whoever cleans up the signal table would end it while rows are still read."""
    entry = QueuedTable(TableId(DATABASE, "dbo", "orders"), "s1")
    current = Round("m", {}, entry, Mock(), 1, datetime.now(UTC), ZERO_LSN, Future(), Mock(), is_deleted)
    opened = Signal("m-open", "snapshot-window-open", None)
    current.note([Row(Lsn.from_int(7), INSERT, opened), Row(Lsn.from_int(9), DELETE, opened)])
    assert current.opened == Lsn.from_int(7)
    assert current.closed == (Lsn.from_int(9) if is_deleted else None)


def test_repairing_a_gap_of_the_signal_table_reads_no_row_of_it(server: StandIn, tmp_path: Path) -> None:
    world = World(server, str(tmp_path))
    world.config = replace(world.config, streaming=replace(world.config.streaming, gap_policy="resnapshot"))
    orders(world, 1)
    signals = TableId(DATABASE, "dbo", "cdc_signal")
    world.signal("s1", "log", message="lost")
    server.agent.cleanup(
        DATABASE, "dbo_cdc_signal", server.execute("SELECT sys.fn_cdc_get_max_lsn()", database=DATABASE)[0][0]
    )
    world.run()
    state = world.state().tables[signals]
    assert (state.status, bool(state.gaps)) == ("healthy", True)
    assert [event for event in world.events(signals) if event["value"]["op"] == "r"] == []
