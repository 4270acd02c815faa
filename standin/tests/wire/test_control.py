"""The stand-in as an object and as a command: bulk loads, clock, client without driver, sample and workload."""

import io
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyodbc
import pytest
from rich.console import Console

from mssql_standin import drivers, sample
from mssql_standin.control import StandIn
from mssql_standin.errors import SqlError
from mssql_standin.serve import Options, serve
from mssql_standin.wire.prelogin import ENCRYPTION, VERSION, read_options, write_options

DATABASE = "ControlDb"

EVERY_TYPE = """
CREATE TABLE dbo.every (
    id bigint IDENTITY(1, 1) NOT NULL PRIMARY KEY, a bit, b tinyint, c smallint, d int, e real, f float, g decimal(9, 2) NOT NULL,
    h decimal(38, 4), i money, j smallmoney, k date, l time(3), m datetime, n smalldatetime, o datetime2(7), p datetimeoffset(3),
    q uniqueidentifier, r char(5), s varchar(50), t varchar(max), u nchar(5), v nvarchar(50), w nvarchar(max), x xml,
    y binary(4), z varbinary(max), aa text, ab ntext, ac image, ad rowversion, ae AS (d + 1)
)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as started:
        yield started


def run(server: StandIn, statement: str, *parameters: Any) -> list[Any]:
    return server.execute(statement, *parameters, database=DATABASE)


def test_a_loaded_table_holds_readable_values_of_every_type(server: StandIn) -> None:
    run(server, EVERY_TYPE)
    assert server.bulk.load_table(DATABASE, "every", 1000) == 1
    connection = pyodbc.connect(server.connection_string(DATABASE), autocommit=True)
    connection.add_output_converter(-155, bytes)
    rows = connection.execute("SELECT * FROM dbo.every ORDER BY id").fetchall()
    connection.close()
    assert [row[0] for row in rows] == list(range(1, 1001))
    for place in range(1, len(rows[0])):
        assert any(row[place] is not None for row in rows), f"column {place} holds nothing"
    run(server, "INSERT dbo.every (g) VALUES (1)")
    assert run(server, "SELECT MAX(id) FROM dbo.every") == [(1001,)]
    assert server.bulk.load_table(DATABASE, "every", 10) == 1002


def test_loaded_changes_replay_to_the_final_state(server: StandIn) -> None:
    run(server, "CREATE TABLE dbo.busy (id int NOT NULL PRIMARY KEY, name nvarchar(40), n int, big nvarchar(max))")
    run(server, "EXEC sys.sp_cdc_enable_table @source_schema = 'dbo', @source_name = 'busy', @role_name = NULL")
    server.bulk.load_table(DATABASE, "busy", 100)
    assert run(server, "SELECT COUNT(*) FROM cdc.dbo_busy_CT") == [(0,)]
    state = dict(run(server, "SELECT id, name FROM dbo.busy"))
    last = server.bulk.load_changes(DATABASE, "dbo_busy", transactions=9, updates=30)
    assert run(server, "SELECT sys.fn_cdc_get_max_lsn()") == [(last,)]
    run(server, "UPDATE dbo.busy SET name = N'by hand' WHERE id = 5")
    assert run(server, "SELECT COUNT(DISTINCT __$start_lsn), COUNT(*) FROM cdc.dbo_busy_CT") == [(10, 542)]
    changes = run(
        server,
        "SELECT __$operation, id, name FROM cdc.fn_cdc_get_all_changes_dbo_busy("
        "sys.fn_cdc_get_min_lsn('dbo_busy'), sys.fn_cdc_get_max_lsn(), N'all update old') "
        "ORDER BY __$start_lsn, __$seqval, __$operation",
    )
    for operation, key, name in changes:
        if operation == 3:
            assert state[key] == name
        else:
            state[key] = name
    assert state == dict(run(server, "SELECT id, name FROM dbo.busy"))


def test_unknown_names_in_loads(server: StandIn) -> None:
    with pytest.raises(SqlError, match=r"208.*nothing"):
        server.bulk.load_table(DATABASE, "nothing", 1)
    with pytest.raises(SqlError, match=r"208.*nothing_CT"):
        server.bulk.load_changes(DATABASE, "nothing", 1, 1)
    with pytest.raises(ValueError, match="at least one"):
        server.bulk.load_changes(DATABASE, "dbo_busy", 0, 1)


def test_no_backlog_is_loaded_over_changes_that_wait(server: StandIn) -> None:
    """Its LSNs would be captured before lower ones."""
    run(server, "CREATE TABLE dbo.waiting (id int NOT NULL PRIMARY KEY, n int)")
    run(server, "EXEC sys.sp_cdc_enable_table N'dbo', N'waiting', @role_name = NULL")
    server.bulk.load_table(DATABASE, "waiting", 10)
    server.agent.pause()
    try:
        run(server, "UPDATE dbo.waiting SET n = 0 WHERE id = 1")
        with pytest.raises(ValueError, match="drain"):
            server.bulk.load_changes(DATABASE, "dbo_waiting", 1, 1)
        server.agent.drain()
        server.bulk.load_changes(DATABASE, "dbo_waiting", 1, 1)
    finally:
        server.agent.resume()
    assert run(server, "SELECT COUNT(*) FROM cdc.dbo_waiting_CT") == [(4,)]


def test_the_clock_is_set(server: StandIn) -> None:
    server.clock.set(datetime.fromisoformat("2031-05-06 07:08:09"))
    server.clock.offset_minutes = 120
    try:
        assert run(server, "SELECT CONVERT(varchar(40), SYSDATETIMEOFFSET(), 121)") == [
            ("2031-05-06 09:08:09.0000000 +02:00",)
        ]
    finally:
        server.clock.set(None)
        server.clock.offset_minutes = 0


def test_the_client_without_driver(server: StandIn) -> None:
    run(
        server,
        "CREATE TABLE dbo.plain (id int NOT NULL PRIMARY KEY, d decimal(10, 2), s nvarchar(20), b varbinary(9), t datetime2)",
    )
    with server.connect(DATABASE, autocommit=False) as connection:
        cursor = connection.cursor()
        moment = datetime.fromisoformat("2026-01-02 03:04:05.678901")
        cursor.execute("INSERT dbo.plain VALUES (?, ?, ?, ?, ?) -- why?", (1, Decimal("1.5"), "it's ?", b"\0", moment))
        assert cursor.rowcount == 1
        connection.rollback()
        cursor.executemany(
            "INSERT dbo.plain VALUES (?, ?, 'really?', ?, ?)", [(2, 1, None, moment), (3, None, b"x", None)]
        )
        connection.commit()
        assert connection.execute("SELECT * FROM dbo.plain ORDER BY id").fetchall() == [
            (2, Decimal("1.00"), "really?", None, moment),
            (3, None, "really?", b"x", None),
        ]
        with pytest.raises(SqlError, match="8178"):
            connection.execute("SELECT ?")
        with pytest.raises(SqlError, match="8144"):
            connection.execute("SELECT 1", 2)


def test_data_outlive_the_server(tmp_path: Path) -> None:
    with StandIn(databases=("Kept",), directory=tmp_path) as first:
        first.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY); INSERT dbo.t VALUES (1)", database="Kept")
    with StandIn(databases=("Kept",), directory=tmp_path) as second:
        assert second.execute("SELECT id FROM dbo.t", database="Kept") == [(1,)]


def test_a_start_that_fails_leaves_no_server() -> None:
    before = threading.active_count()
    with pytest.raises(SqlError):
        StandIn(databases=("",)).start()
    assert threading.active_count() == before


def test_sample_and_workload() -> None:
    stop, out = threading.Event(), io.StringIO()
    options = Options(sample=True, workload_rate=200, password="Given1234")
    thread = threading.Thread(target=serve, args=(options, stop, Console(file=out, width=120)))
    thread.start()
    port = _port_in(out)
    try:
        text = drivers.connection_string("odbc18", "127.0.0.1", port, "sa", "Given1234", sample.DATABASE, "no", None)
        connection = pyodbc.connect(text, autocommit=True)
        deadline = time.monotonic() + 20
        while (
            connection.execute("SELECT COUNT(*) FROM cdc.dbo_orders_CT").fetchval() < 410
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        assert connection.execute("SELECT COUNT(*) FROM cdc.dbo_orders_CT").fetchval() >= 410
        connection.close()
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()


def test_how_to_connect_is_reported_whole_on_a_narrow_screen() -> None:
    stop, out = threading.Event(), io.StringIO()
    stop.set()
    serve(Options(databases=("A_name_that_is_longer_than_the_screen_is_wide",)), stop, Console(file=out, width=30))
    port = _port_in(out)
    url = f"jdbc:sqlserver://127.0.0.1:{port};databaseName=A_name_that_is_longer_than_the_screen_is_wide;encrypt=false"
    assert url in out.getvalue().split()
    assert "…" not in out.getvalue()


def test_one_version_is_reported_everywhere(server: StandIn) -> None:
    with closing(pyodbc.connect(server.connection_string(DATABASE), autocommit=True)) as connection:
        text, version = connection.execute("SELECT @@VERSION, SERVERPROPERTY('ProductVersion')").fetchone()
        assert f" {version} " in text
        assert connection.getinfo(pyodbc.SQL_DBMS_VER) == "16.00.1000"
    with socket.create_connection((server.host, server.port)) as client:
        body = write_options({VERSION: bytes(6), ENCRYPTION: b"\2"})
        client.sendall(struct.pack(">BBHHBB", 0x12, 1, 8 + len(body), 0, 1, 0) + body)
        answer = read_options(client.recv(4096)[8:])
    assert "{}.{}.{}.{}".format(*struct.unpack(">BBHH", answer[VERSION])) == version


def _port_in(out: io.StringIO) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = re.search(r"127\.0\.0\.1,(\d+)", out.getvalue())
        if found:
            return int(found[1])
        time.sleep(0.05)
    raise AssertionError("the server did not tell its port")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_stops_cleanly(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "mssql_standin", "--port", "0", "--database", "Some"]
    environment = {**os.environ, "COLUMNS": "160"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "127.0.0.1," in line:
                break
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait(20) == 0
    assert "stops" in rest


@pytest.mark.parametrize("driver", ["odbc18", "freetds"])
def test_procedures_are_called_with_parameters(server: StandIn, driver: str) -> None:
    """ODBC Driver 18 turns `{call p(?)}` into sp_prepexecrpc, FreeTDS into a plain RPC."""
    with closing(pyodbc.connect(server.connection_string(DATABASE, driver), autocommit=True)) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE OR ALTER PROCEDURE dbo.twice @n int, @s nvarchar(20) = N'x' AS SELECT @n * 2, @s")
        for number in (1, 2, 3):
            assert tuple(cursor.execute("{call dbo.twice(?, ?)}", number, "y" * number).fetchone() or ()) == (
                2 * number,
                "y" * number,
            )
        assert tuple(cursor.execute(f"{{call {DATABASE}.dbo.twice(?)}}", 4).fetchone() or ()) == (8, "x")
        with pytest.raises(pyodbc.Error, match="8144"):
            cursor.execute("{call dbo.twice(?, ?, ?)}", 1, "", 3)


def test_transaction_numbers_never_come_again(tmp_path: Path) -> None:
    """Not between bulk loads and sessions, and not after a restart: they become the `tran_id` of captured transactions."""
    for start in (1, 2):
        with StandIn(databases=(DATABASE,), directory=tmp_path) as server:
            if start == 1:
                run(server, "CREATE TABLE dbo.numbered (id int NOT NULL PRIMARY KEY, v int NULL)")
                run(server, "EXEC sys.sp_cdc_enable_table N'dbo', N'numbered', @role_name = NULL")
                server.bulk.load_table(DATABASE, "numbered", 20)
            run(server, "UPDATE dbo.numbered SET v = ISNULL(v, 0) + 100000 WHERE id = 1")
            server.bulk.load_changes(DATABASE, "dbo_numbered", 3, 2)
            run(server, "UPDATE dbo.numbered SET v = ISNULL(v, 0) + 100000 WHERE id = 1")
            server.bulk.load_changes(DATABASE, "dbo_numbered", 3, 2)
            counts = "SELECT count(*), count(DISTINCT tran_id) FROM cdc.lsn_time_mapping WHERE tran_id <> 0x00"
            assert run(server, counts) == [(8 * start, 8 * start)]


def test_a_database_may_have_any_name() -> None:
    names = ("Sales & Co", "a]b", "Ü 1")
    with StandIn(databases=names) as server:
        assert [server.execute("SELECT DB_NAME()", database=name) for name in names] == [[(name,)] for name in names]
