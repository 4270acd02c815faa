"""Synchronous, delayed, paused, stopped and failing capture."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mssql_standin.capture.agent import Agent
from mssql_standin.control import StandIn
from mssql_standin.engine.server import Engine
from mssql_standin.errors import SqlError
from tests.capture.client import Client
from tests.capture.harness import Server, Session


@pytest.fixture
def captured(session: Session) -> Session:
    session.make("t", "id int;n int")
    session.enable()
    return session


def insert(session: Session, key: int) -> None:
    table = session.catalog.databases["shop"].tables["dbo", "t"]
    session.execute(f"INSERT INTO {table.sqlite} VALUES ({key}, 0)")


def keys(session: Session) -> list[object]:
    return [row[2] for row in session.changes()]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def test_without_latency_a_commit_is_captured_when_it_returns(captured: Session) -> None:
    insert(captured, 1)
    assert keys(captured) == [1]


@pytest.mark.parametrize("way", ["pause", "stop", "job"])
def test_what_does_not_run_captures_nothing_and_continues_in_order(captured: Session, way: str) -> None:
    insert(captured, 1)
    top = captured.cdc("lsn_time_mapping")[-1]
    {"pause": captured.agent.pause, "stop": captured.agent.stop, "job": lambda: captured.call("sp_cdc_stop_job")}[way]()
    insert(captured, 2)
    insert(captured, 3)
    assert keys(captured) == [1]
    assert captured.cdc("lsn_time_mapping")[-1] == top
    {"pause": captured.agent.resume, "stop": captured.agent.start, "job": lambda: captured.call("sp_cdc_start_job")}[
        way
    ]()
    wait_for(lambda: keys(captured) == [1, 2, 3])
    insert(captured, 4)
    assert keys(captured) == [1, 2, 3, 4]


def test_with_latency_a_change_appears_later(captured: Session) -> None:
    captured.agent.latency_s = 0.2
    insert(captured, 1)
    assert keys(captured) == []
    wait_for(lambda: keys(captured) == [1])


def test_drain_captures_what_waits(captured: Session) -> None:
    captured.agent.pause()
    insert(captured, 1)
    captured.agent.drain()
    assert keys(captured) == [1]


def test_a_scan_by_hand_works_while_the_agent_is_stopped(captured: Session) -> None:
    captured.agent.stop()
    insert(captured, 1)
    insert(captured, 2)
    captured.call("sp_cdc_scan", maxtrans=1, maxscans=1)
    assert keys(captured) == [1]
    captured.call("sp_cdc_scan")
    assert keys(captured) == [1, 2]


def test_the_order_of_the_backlog_is_the_order_of_commits(server: Server, captured: Session) -> None:
    other = server.session()
    captured.agent.pause()
    for key in range(10):
        insert((captured, other)[key % 2], key)
    captured.agent.resume()
    assert keys(captured) == list(range(10))


def test_a_failing_scan_keeps_the_commit_shows_itself_once_and_is_made_good(captured: Session) -> None:
    captured.agent.fail_next(SqlError(22859, "Log Scan process failed."))
    insert(captured, 1)
    (failed,) = captured.agent.history(5).errors()
    assert failed.error.number == 22859
    wait_for(lambda: keys(captured) == [1])  # the Agent's thread tries again
    with pytest.raises(SqlError, match="Log Scan process failed") as caught:
        insert(captured, 2)
    assert caught.value.number == 22859
    insert(captured, 3)
    assert keys(captured) == [1, 3]


def test_a_broken_change_table_does_not_lock_anything(captured: Session) -> None:
    change = captured.catalog.databases["shop"].tables["cdc", "dbo_t_ct"]
    captured.connection.execute(f"ALTER TABLE {change.sqlite} RENAME TO away")
    captured.agent.pause()
    insert(captured, 1)
    captured.agent.resume()
    captured.connection.execute(f"ALTER TABLE away RENAME TO {change.sqlite}")
    with pytest.raises(SqlError, match="no such table"):
        insert(captured, 2)
    insert(captured, 3)
    assert keys(captured) == [1, 3]


def test_enabling_with_a_running_job_gives_a_maximum_by_an_idle_row(captured: Session) -> None:
    (row,) = captured.cdc("lsn_time_mapping")
    assert row[3] == b"\0"
    assert row[0] > captured.cdc("change_tables")[0][4]  # type: ignore[operator]


def test_enabling_with_a_stopped_agent_leaves_the_maximum_unknown(session: Session) -> None:
    session.agent.stop()
    session.make("t", "id int;n int")
    session.enable()
    assert session.cdc("lsn_time_mapping") == []


def test_idle_rows_move_the_maximum(captured: Session) -> None:
    before = captured.cdc("lsn_time_mapping")[-1][0]
    captured.agent.idle_row("shop")
    after = captured.cdc("lsn_time_mapping")[-1]
    assert after[0] > before  # type: ignore[operator]
    assert after[3] == b"\0"
    with pytest.raises(SqlError, match="not enabled"):
        captured.agent.idle_row("other")


def test_no_idle_row_overtakes_a_transaction_that_waits(session: Session) -> None:
    """A reader that took the idle row's LSN for the end of the log would never see the transaction."""
    session.agent.pause()
    session.make("t", "id int;n int")
    session.enable()
    insert(session, 1)
    session.agent.idle_row("shop")
    assert session.cdc("lsn_time_mapping") == []
    session.agent.latency_s = 0.2
    session.agent.resume()
    wait_for(lambda: keys(session) == [1])
    found = [row[0] for row in session.cdc("lsn_time_mapping")]
    assert found == sorted(found)  # type: ignore[type-var]


def test_a_log_continues_in_another_vlf_after_a_restart(captured: Session) -> None:
    insert(captured, 1)
    captured.agent.pause()
    insert(captured, 2)
    last = captured.agent.next_lsn("shop")
    captured.agent.stop()
    captured.server.agent = captured.agent = Agent(captured.server.storage, captured.clock)
    captured.agent.opened(captured)  # type: ignore[arg-type]
    wait_for(lambda: keys(captured) == [1, 2])
    insert(captured, 3)
    assert keys(captured) == [1, 2, 3]
    assert captured.cdc("dbo_t_CT")[-1][0] > last  # type: ignore[operator]
    captured.agent.stop()


def test_a_savepoint_lsn_lies_between_commits(captured: Session) -> None:
    insert(captured, 1)
    point = captured.agent.next_lsn("shop")
    insert(captured, 2)
    first, second = (row[0] for row in captured.cdc("dbo_t_CT"))
    assert first < point < second  # type: ignore[operator]


def test_folders_are_not_shared(tmp_path: Path) -> None:
    one = Server(tmp_path)
    assert one.storage.path.exists()
    one.agent.stop()


@pytest.fixture
def shop(engine: Engine) -> Client:
    client = Client(engine, "shop")
    client.run("CREATE TABLE t (id int PRIMARY KEY, n int)")
    client.run("EXEC sys.sp_cdc_enable_table 'dbo', 't', @role_name = NULL")
    return client


def test_without_its_job_a_database_is_not_captured_until_there_is_one_again(tmp_path: Path) -> None:
    for start in range(2):
        engine = Engine(tmp_path)
        client = Client(engine, "master")
        if start == 0:
            client.run(
                "CREATE DATABASE shop; EXEC shop.sys.sp_cdc_enable_db; CREATE TABLE shop.dbo.t (id int PRIMARY KEY)"
            )
            client.run(
                "EXEC shop.sys.sp_cdc_enable_table 'dbo', 't', @role_name = NULL; EXEC shop.sys.sp_cdc_drop_job 'capture'"
            )
        engine.agent.stop()
        engine.agent.start()
        client.run(f"INSERT shop.dbo.t VALUES ({start})")
        time.sleep(0.05)
        assert client.run("SELECT id FROM shop.cdc.dbo_t_CT") == []
        if start == 1:
            client.run("EXEC shop.sys.sp_cdc_add_job 'capture', @start_job = 0")
            assert client.run("SELECT id FROM shop.cdc.dbo_t_CT") == []
            client.run("EXEC shop.sys.sp_cdc_start_job 'capture'")
            wait_for(lambda: client.run("SELECT id FROM shop.cdc.dbo_t_CT ORDER BY id") == [(0,), (1,)])  # noqa: B023
        engine.close()


def test_another_captured_table_brings_a_dropped_job_back(shop: Client) -> None:
    shop.run("EXEC sys.sp_cdc_drop_job 'capture'; INSERT t VALUES (1, 1); CREATE TABLE u (id int PRIMARY KEY)")
    assert shop.run("SELECT id FROM cdc.dbo_t_CT") == []
    shop.run("EXEC sys.sp_cdc_enable_table 'dbo', 'u', @role_name = NULL")
    wait_for(lambda: shop.run("SELECT id FROM cdc.dbo_t_CT") == [(1,)])


def test_a_new_database_under_an_old_number_begins_anew(engine: Engine) -> None:
    client = Client(engine, "master")
    numbers = []
    for stops in (True, False):
        client.run(
            "CREATE DATABASE again; EXEC again.sys.sp_cdc_enable_db; CREATE TABLE again.dbo.t (id int PRIMARY KEY)"
        )
        client.run("EXEC again.sys.sp_cdc_enable_table 'dbo', 't', @role_name = NULL")
        numbers.append(client.run("SELECT DB_ID('again')"))
        assert client.run("SELECT COUNT(*) FROM again.sys.dm_cdc_errors") == [(0,)]
        if stops:
            engine.agent.fail_next(SqlError(22859, "Log Scan process failed."))
            client.run("INSERT again.dbo.t VALUES (1)")
            assert client.number("INSERT again.dbo.t VALUES (2)") == 22859
            client.run("EXEC again.sys.sp_cdc_stop_job 'capture'; DROP DATABASE again")
    client.run("INSERT again.dbo.t VALUES (1)")
    assert client.run("SELECT id FROM again.cdc.dbo_t_CT") == [(1,)]
    assert numbers[0] == numbers[1]


def test_a_failed_scan_fails_one_commit_and_lets_go_of_everything(engine: Engine, shop: Client) -> None:
    engine.agent.fail_next(SqlError(22859, "Log Scan process failed."))
    shop.run("INSERT INTO t VALUES (1, 1)")
    shop.run("BEGIN TRAN; INSERT INTO t VALUES (2, 2)")
    assert shop.number("COMMIT") == 22859
    assert shop.run("SELECT @@TRANCOUNT") == [(0,)]
    other = Client(engine, "shop")
    other.run("SET LOCK_TIMEOUT 1000")
    other.run("INSERT INTO t VALUES (3, 3)")
    assert shop.run("SELECT id FROM t ORDER BY id") == [(1,), (3,)]
    assert shop.run("SELECT id FROM cdc.dbo_t_CT ORDER BY __$start_lsn") == [(1,), (3,)]
    assert shop.run("SELECT error_number FROM sys.dm_cdc_errors") == [(22859,)]
    assert shop.run(
        "SELECT error_count, scan_phase FROM sys.dm_cdc_log_scan_sessions WHERE session_id > 0 AND error_count > 0"
    ) == [(1, "Error")]


def test_a_paused_agent_neither_blocks_writers_nor_waits_for_them(engine: Engine, shop: Client) -> None:
    writer = Client(engine, "shop")
    engine.agent.pause()
    shop.run("INSERT INTO t VALUES (1, 1)")
    writer.run("BEGIN TRAN; INSERT INTO t VALUES (2, 2)")
    began = time.monotonic()
    engine.agent.resume()  # the writer keeps the Agent's thread waiting, not us for ever
    engine.agent.stop()
    assert time.monotonic() - began < 60
    writer.run("COMMIT")
    engine.agent.start()
    engine.agent.drain()
    assert shop.run("SELECT id FROM cdc.dbo_t_CT ORDER BY __$start_lsn") == [(1,), (2,)]


def test_a_snapshot_reader_sees_change_tables_as_of_its_first_read(engine: Engine, shop: Client) -> None:
    shop.run("ALTER DATABASE shop SET ALLOW_SNAPSHOT_ISOLATION ON")
    reader = Client(engine, "shop")
    reader.run("SET TRANSACTION ISOLATION LEVEL SNAPSHOT; BEGIN TRAN; SELECT COUNT(*) FROM cdc.dbo_t_CT")
    shop.run("INSERT INTO t VALUES (1, 1)")
    assert reader.run("SELECT COUNT(*) FROM cdc.dbo_t_CT") == [(0,)]
    reader.run("COMMIT")
    assert reader.run("SELECT COUNT(*) FROM cdc.dbo_t_CT") == [(1,)]


def test_a_savepoint_lsn_covers_exactly_what_its_snapshot_sees(engine: Engine, shop: Client) -> None:
    shop.run("ALTER DATABASE shop SET ALLOW_SNAPSHOT_ISOLATION ON; INSERT INTO t VALUES (1, 1)")
    locker, reader = Client(engine, "shop"), Client(engine, "shop")
    locker.run("BEGIN TRAN; SELECT * FROM t WITH (TABLOCK, HOLDLOCK) WHERE 1 = 0")
    reader.run(
        "SET TRANSACTION ISOLATION LEVEL SNAPSHOT; BEGIN TRAN; SELECT TOP 1 object_id FROM cdc.change_tables; SAVE TRANSACTION here"
    )
    locker.run("ROLLBACK")
    shop.run("INSERT INTO t VALUES (2, 2)")
    point = reader.run(
        "SELECT CAST(t.database_transaction_most_recent_savepoint_lsn AS varchar(25)) FROM sys.dm_tran_database_transactions t "
        "JOIN sys.dm_tran_current_transaction c ON c.transaction_id = t.transaction_id"
    )
    number = int(str(point[0][0]))
    lsn = (number // 10**15 << 48 | number // 10**5 % 10**10 << 16 | number % 10**5).to_bytes(10, "big")
    seen = reader.run("SELECT id FROM t")
    below = shop.run(f"SELECT id FROM cdc.dbo_t_CT WHERE __$start_lsn <= 0x{lsn.hex()}")
    assert seen == below == [(1,)]


def test_many_tables_made_at_once_are_no_failure_of_the_agent() -> None:
    """The thread may find no moment in which the tables stand still; nothing is wrong with what it captures."""
    with StandIn(databases=("Big",)) as server, server.connect("Big") as connection:
        for number in range(50):
            connection.execute(f"CREATE TABLE dbo.t{number} (id int NOT NULL PRIMARY KEY)")
            connection.execute(f"EXEC sys.sp_cdc_enable_table N'dbo', N't{number}', @role_name = NULL")
        for number in range(50):
            connection.execute(f"INSERT INTO dbo.t{number} VALUES (1)")
