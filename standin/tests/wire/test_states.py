"""Databases that go offline or back to a backup, a changed password: what clients of the wire meet."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pyodbc
import pytest

from mssql_standin.control import StandIn

DATABASE = "StatesDb"


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as started:
        started.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", database=DATABASE)
        yield started


@pytest.fixture
def master(server: StandIn) -> Iterator[pyodbc.Cursor]:
    with closing(pyodbc.connect(server.connection_string(), autocommit=True)) as connection:
        yield connection.cursor()
        connection.execute(f"ALTER DATABASE {DATABASE} SET ONLINE")


def connect(server: StandIn) -> pyodbc.Connection:
    return pyodbc.connect(server.connection_string(DATABASE), autocommit=False)


def number_of(work: Callable[[], object]) -> str:
    with pytest.raises(pyodbc.Error) as raised:
        work()
    return str(raised.value.args)


def test_a_database_goes_offline_and_comes_back(server: StandIn, master: pyodbc.Cursor) -> None:
    writer = connect(server)
    writer.execute("INSERT dbo.t VALUES (2)")
    assert "(40510)" in number_of(lambda: master.execute(f"ALTER DATABASE {DATABASE} SET OFFLINE WITH NO_WAIT"))
    master.execute(f"ALTER DATABASE {DATABASE} SET OFFLINE WITH ROLLBACK IMMEDIATE")
    assert "08S01" in number_of(writer.commit)
    state = "SELECT state_desc, state FROM sys.databases WHERE name = ?"
    assert tuple(master.execute(state, DATABASE).fetchone() or ()) == ("OFFLINE", 6)
    assert "(942)" in number_of(lambda: master.execute(f"SELECT * FROM {DATABASE}.dbo.t"))
    assert "(942)" in number_of(lambda: master.execute(f"USE {DATABASE}"))
    assert "(4060)" in number_of(lambda: connect(server))
    master.execute(f"ALTER DATABASE {DATABASE} SET ONLINE")
    with closing(connect(server)) as again:
        assert again.execute("SELECT count(*) FROM dbo.t").fetchval() == 0


def test_without_a_clause_the_others_are_waited_for(server: StandIn, master: pyodbc.Cursor) -> None:
    other = connect(server)
    master.execute("SET LOCK_TIMEOUT 100")
    assert "(1222)" in number_of(lambda: master.execute(f"ALTER DATABASE {DATABASE} SET OFFLINE"))
    master.execute("SET LOCK_TIMEOUT -1")
    timer = threading.Timer(0.2, other.close)
    started = time.monotonic()
    timer.start()
    master.execute(f"ALTER DATABASE {DATABASE} SET OFFLINE")
    assert time.monotonic() - started >= 0.15
    timer.join()


def test_a_restored_database_goes_back_and_forks() -> None:
    with StandIn(databases=(DATABASE,)) as server:
        with closing(connect(server)) as connection:
            connection.autocommit = True
            connection.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
            connection.execute("EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL")
            connection.execute("INSERT dbo.t VALUES (1)")
            backup = server.backup()
            before = state_of(connection)
            connection.execute("INSERT dbo.t VALUES (2)")
            lost = state_of(connection)
            server.restore(backup)
            assert "08S01" in number_of(lambda: connection.execute("SELECT 1"))
        with closing(connect(server)) as connection:
            connection.autocommit = True
            restored = state_of(connection)
            assert (restored[0], restored[1]) == (before[0], before[1])
            assert lost[1] > before[1]
            assert len({before[2], lost[2], restored[2]}) == 2
            connection.execute("INSERT dbo.t VALUES (4)")
            again = state_of(connection)
            assert again[0] == [1, 4]
            assert again[1] == lost[1]
            assert [row.id for row in connection.execute("SELECT id FROM cdc.dbo_t_CT")] == [1, 4]
        server.restore(backup, keep_cdc=False)
        with closing(connect(server)) as connection:
            assert [row.id for row in connection.execute("SELECT id FROM dbo.t")] == [1]
            assert "(208)" in number_of(lambda: connection.execute("SELECT * FROM cdc.change_tables"))
            fork = "SELECT recovery_fork_guid FROM sys.database_recovery_status WHERE database_id = DB_ID()"
            assert connection.execute(fork).fetchval() not in {before[2], restored[2]}


def state_of(connection: pyodbc.Connection) -> tuple[list[int], bytes, str]:
    """Keys of the table, maximum LSN, recovery fork."""
    keys = [row[0] for row in connection.execute("SELECT id FROM dbo.t ORDER BY id").fetchall()]
    maximum = connection.execute("SELECT sys.fn_cdc_get_max_lsn()").fetchval()
    fork = "SELECT recovery_fork_guid FROM sys.database_recovery_status WHERE database_id = DB_ID()"
    return keys, maximum, str(connection.execute(fork).fetchval())


def test_a_changed_password_stops_new_logins_only() -> None:
    with StandIn(databases=(DATABASE,)) as server:
        old = server.connection_string(DATABASE)
        with closing(pyodbc.connect(old)) as connection:
            assert server.rotate_password() in server.connection_string(DATABASE)
            assert connection.execute("SELECT 1").fetchval() == 1
            assert "(18456)" in number_of(lambda: pyodbc.connect(old))
            connect(server).close()
