"""Databases that go offline or into single-user mode, sessions that are killed: what clients of the wire meet."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pyodbc
import pytest

from cdc_assets.standin.control import StandIn

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
        connection.execute(f"ALTER DATABASE {DATABASE} SET ONLINE; ALTER DATABASE {DATABASE} SET MULTI_USER")


def connect(server: StandIn) -> pyodbc.Connection:
    return pyodbc.connect(server.connection_string(DATABASE), autocommit=False)


def number_of(work: Callable[[], object]) -> str:
    with pytest.raises(pyodbc.Error) as raised:
        work()
    return str(raised.value.args)


def test_a_killed_session_is_cut_off_and_rolled_back(server: StandIn, master: pyodbc.Cursor) -> None:
    victim = connect(server)
    spid = victim.execute("SELECT @@SPID").fetchval()
    victim.execute("INSERT dbo.t VALUES (1)")
    master.execute(f"KILL {spid}")
    assert "08S01" in number_of(lambda: victim.execute("SELECT 1"))
    master.execute(f"INSERT {DATABASE}.dbo.t VALUES (1); DELETE {DATABASE}.dbo.t")
    own = master.execute("SELECT @@SPID").fetchval()
    assert "(6104)" in number_of(lambda: master.execute(f"KILL {own}"))
    assert "(6106)" in number_of(lambda: master.execute("KILL 32000"))


def test_a_database_goes_offline_and_comes_back(server: StandIn, master: pyodbc.Cursor) -> None:
    writer = connect(server)
    writer.execute("INSERT dbo.t VALUES (2)")
    assert "(5070)" in number_of(lambda: master.execute(f"ALTER DATABASE {DATABASE} SET OFFLINE WITH NO_WAIT"))
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


def test_single_user_mode_lets_one_in(server: StandIn, master: pyodbc.Cursor) -> None:
    other = connect(server)
    master.execute(f"ALTER DATABASE {DATABASE} SET SINGLE_USER WITH ROLLBACK IMMEDIATE")
    assert "08S01" in number_of(lambda: other.execute("SELECT 1"))
    with closing(connect(server)):
        assert "(4060)" in number_of(lambda: connect(server))
        assert "(924)" in number_of(lambda: master.execute(f"USE {DATABASE}"))


def test_without_a_clause_the_others_are_waited_for(server: StandIn, master: pyodbc.Cursor) -> None:
    other = connect(server)
    master.execute("SET LOCK_TIMEOUT 100")
    assert "(1222)" in number_of(lambda: master.execute(f"ALTER DATABASE {DATABASE} SET SINGLE_USER"))
    master.execute("SET LOCK_TIMEOUT -1")
    timer = threading.Timer(0.2, other.close)
    started = time.monotonic()
    timer.start()
    master.execute(f"ALTER DATABASE {DATABASE} SET SINGLE_USER")
    assert time.monotonic() - started >= 0.15
    timer.join()
