"""What outlives a statement: cancelling, timeouts, pooled connections, faults, bulk parameters, Arrow."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import mssql_python
import pyodbc
import pytest

from cdc_assets_tests.contract.clients.stacks import Client, Server, mssql
from mssql_standin.control import StandIn


def open_odbc(server: Server, database: str, autocommit: bool = True) -> Any:
    return pyodbc.connect(server.connection_string(database), autocommit=autocommit)


def test_query_timeout(server: Server, database: str) -> None:
    connection = open_odbc(server, database)
    connection.timeout = 1
    begin = time.monotonic()
    with pytest.raises(pyodbc.Error, match="HYT00"):
        connection.execute("WAITFOR DELAY '00:01:00'")
    assert time.monotonic() - begin < 30
    connection.timeout = 0
    assert connection.execute("SELECT 1").fetchval() == 1
    connection.close()


def test_cancel_from_another_thread(server: Server, database: str) -> None:
    connection = open_odbc(server, database)
    cursor = connection.cursor()
    timer = threading.Timer(0.5, cursor.cancel)
    timer.start()
    with pytest.raises(pyodbc.Error, match="HY008"):
        cursor.execute("WAITFOR DELAY '00:01:00'")
    timer.join()
    assert connection.execute("SELECT 1").fetchval() == 1
    connection.close()


def test_a_cancelled_statement_is_undone_alone(server: Server, database: str, table: str) -> None:
    connection = open_odbc(server, database, autocommit=False)
    connection.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY)")
    connection.execute(f"INSERT {table} VALUES (1)")
    connection.timeout = 1
    with pytest.raises(pyodbc.Error, match="HYT00"):
        connection.execute("WAITFOR DELAY '00:01:00'")
    connection.timeout = 0
    connection.commit()
    assert connection.execute(f"SELECT id FROM {table}").fetchval() == 1
    connection.close()


def test_fast_executemany(server: Server, database: str, table: str) -> None:
    """In a process of its own: pyodbc asks for the parameters without letting go of the interpreter lock."""
    script = """
import pyodbc, sys
connection = pyodbc.connect(sys.argv[1], autocommit=True)
connection.execute(f"CREATE TABLE {sys.argv[2]} (id int NOT NULL PRIMARY KEY, s nvarchar(20), d decimal(10, 2), t datetime2)")
cursor = connection.cursor()
cursor.fast_executemany = True
rows = [(n, f"n{n}" if n % 3 else None, n / 4, "2026-01-02 03:04:05") for n in range(1000)]
cursor.executemany(f"INSERT {sys.argv[2]} VALUES (?, ?, ?, ?)", rows)
"""
    subprocess.run([sys.executable, "-c", script, server.connection_string(database), table], check=True, timeout=240)
    totals = "SELECT COUNT(*), COUNT(s), SUM(d), MIN(t) FROM "
    ((count, texts, total, earliest),) = server.execute(totals + table, database=database)
    assert (count, texts, float(total)) == (1000, 666, 124_875.0)
    assert earliest.isoformat() == "2026-01-02T03:04:05"


def test_all_results_of_a_batch(odbc: Client, table: str) -> None:
    odbc.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY)")
    cursor = odbc.raw.cursor()
    cursor.execute(
        f"INSERT {table} VALUES (1), (2); SELECT id FROM {table} ORDER BY id; UPDATE {table} SET id = id + 10; SELECT 'x'"
    )
    assert cursor.rowcount == 2
    assert cursor.nextset()
    assert [row[0] for row in cursor.fetchall()] == [1, 2]
    assert cursor.nextset()
    assert cursor.rowcount == 2
    assert cursor.nextset()
    assert cursor.fetchval() == "x"
    assert not cursor.nextset()


def test_an_error_in_the_middle_of_a_batch(odbc: Client) -> None:
    cursor = odbc.raw.cursor()
    cursor.execute("SELECT 1; SELECT 1 / 0; SELECT 3")
    assert cursor.fetchval() == 1
    with pytest.raises(pyodbc.Error, match="8134"):
        cursor.nextset()


def test_print_and_information(odbc: Client) -> None:
    cursor = odbc.raw.cursor()
    cursor.execute("PRINT 'hello'; SELECT 1")
    assert any("hello" in text for _, text in cursor.messages)


def test_output_parameters_and_status(odbc: Client) -> None:
    text = "DECLARE @n int, @s int; EXEC @s = sp_executesql N'SET @x = @y + 1', N'@x int OUTPUT, @y int', @x = @n OUTPUT, @y = ?; SELECT @n, @s"
    assert odbc.execute(text, 41) == [(42, 0)]


def test_arrow(server: Server, database: str, table: str) -> None:
    client = mssql(server, database)
    client.execute(
        f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, s nvarchar(20), d decimal(10, 2), t datetime2(6))"
    )
    client.execute(f"INSERT {table} VALUES (1, N'ä', 1.5, '2026-01-02 03:04:05.123456'), (2, NULL, NULL, NULL)")
    cursor = client.raw.cursor()
    cursor.execute(f"SELECT id, s, d, t FROM {table} ORDER BY id")
    arrow = cursor.arrow()
    assert arrow.column("s").to_pylist() == ["ä", None]
    assert str(arrow.column("t")[0].as_py()) == "2026-01-02 03:04:05.123456"
    client.close()


def test_nullability_comes_from_the_catalogue(odbc: Client, table: str) -> None:
    odbc.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, s nvarchar(20))")
    assert [entry[6] for entry in odbc.raw.execute(f"SELECT id, s FROM {table}").description] == [False, True]


@pytest.fixture
def pool_of_one() -> Iterator[None]:
    """The driver's own pool, which is a setting of the whole process."""
    mssql_python.pooling(max_size=1, idle_timeout=30)
    yield
    mssql_python.pooling(enabled=False)


@pytest.mark.usefixtures("pool_of_one")
def test_a_pooled_connection_comes_back_clean(server: Server, database: str) -> None:
    """mssql-python pools: the next user must find no temporary table, no option and no transaction."""
    text = ";".join(part for part in server.connection_string(database).split(";") if not part.startswith("Driver="))
    first = mssql_python.connect(text)
    cursor = first.cursor()
    cursor.execute("CREATE TABLE #left (id int); SET NOCOUNT ON; SET LOCK_TIMEOUT 77")
    cursor.execute("SELECT @@SPID")
    spid = cursor.fetchone()[0]
    first.close()
    second = mssql_python.connect(text)
    cursor = second.cursor()
    cursor.execute("SELECT @@SPID, OBJECT_ID('tempdb..#left'), @@LOCK_TIMEOUT, @@TRANCOUNT")
    row = tuple(cursor.fetchone())
    second.close()
    assert row[0] == spid, "the pool gave another connection: the test proves nothing"
    assert row[1:3] == (None, -1)


def test_injected_errors(standin: StandIn, database: str) -> None:
    connection = open_odbc(standin, database)
    standin.faults.error(1222, matching="select 2")
    assert connection.execute("SELECT 1").fetchval() == 1
    with pytest.raises(pyodbc.Error, match="1222"):
        connection.execute("SELECT 2")
    assert connection.execute("SELECT 2").fetchval() == 2
    assert standin.faults.struck == ["SELECT 2"]
    connection.close()


def test_a_deadlock_victim_loses_its_transaction(standin: StandIn, database: str, table: str) -> None:
    connection = open_odbc(standin, database)
    connection.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY)")
    connection.execute("BEGIN TRANSACTION")
    connection.execute(f"INSERT {table} VALUES (1)")
    standin.faults.deadlock(matching=table)
    with pytest.raises(pyodbc.Error, match="1205") as raised:
        connection.execute(f"SELECT * FROM {table}")
    assert raised.value.args[0] == "40001"
    assert connection.execute("SELECT @@TRANCOUNT").fetchval() == 0
    assert connection.execute(f"SELECT COUNT(*) FROM {table}").fetchval() == 0
    connection.close()


@pytest.mark.parametrize("after_rows", [0, 500])
def test_a_dropped_connection(standin: StandIn, database: str, table: str, after_rows: int) -> None:
    connection = open_odbc(standin, database)
    connection.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY)")
    standin.bulk.load_table(database, table.removeprefix("dbo."), 2000)
    standin.faults.drop(matching=table, after_rows=after_rows)
    with pytest.raises(pyodbc.Error, match="08S01"):
        connection.execute(f"SELECT id FROM {table}").fetchall()
    connection.close()


def test_an_error_among_the_rows(standin: StandIn, database: str, table: str) -> None:
    connection = open_odbc(standin, database)
    connection.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY)")
    standin.bulk.load_table(database, table.removeprefix("dbo."), 2000)
    standin.faults.error(9002, matching=table, after_rows=500)
    cursor = connection.execute(f"SELECT id FROM {table}")
    with pytest.raises(pyodbc.Error, match="9002"):
        cursor.fetchall()
    assert connection.execute(f"SELECT COUNT(*) FROM {table}").fetchval() == 2000
    connection.close()


def test_a_half_open_connection(standin: StandIn, database: str) -> None:
    connection = open_odbc(standin, database)
    connection.timeout = 1
    standin.faults.hang(matching="select 5")
    with pytest.raises(pyodbc.Error, match="HYT00"):
        connection.execute("SELECT 5")
    connection.close()


def test_a_slow_connection(standin: StandIn, database: str) -> None:
    connection = open_odbc(standin, database)
    standin.faults.slow(0.4, matching="select 6")
    begin = time.monotonic()
    assert connection.execute("SELECT 6").fetchval() == 6
    assert time.monotonic() - begin >= 0.4
    connection.close()


def test_a_restarted_server_is_reached_again(standin: StandIn, database: str) -> None:
    connection = open_odbc(standin, database)
    standin.restart()
    with pytest.raises(pyodbc.Error, match="08S01"):
        connection.execute("SELECT 1")
    again = open_odbc(standin, database)
    assert again.execute("SELECT DB_NAME()").fetchval() == database
    again.close()
