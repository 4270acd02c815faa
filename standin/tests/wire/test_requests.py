"""Requests and answers through real drivers, with the engine's part written here."""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyodbc
import pytest

from mssql_standin.contract import Fault, Parameter, ResultColumn, ResultSink
from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import (
    INT,
    NVARCHAR_MAX,
    SqlType,
    Value,
    decimal_to_stored,
    guid_to_stored,
    offset_to_stored,
    parse_type,
)
from mssql_standin.wire.server import TdsServer
from tests.wire.conftest import odbc
from tests.wire.scripted import ScriptedEngine, ScriptedSession

at = datetime.fromisoformat
DAY = 864_000_000_000
D2020 = date(2020, 2, 29).toordinal() - 1
CONSTANTS: list[tuple[str, Value, Any]] = [
    ("bit", 1, True),
    ("tinyint", 255, 255),
    ("smallint", -32768, -32768),
    ("int", 2**31 - 1, 2**31 - 1),
    ("bigint", -(2**63), -(2**63)),
    ("real", 0.5, 0.5),
    ("float", 1e308, 1e308),
    ("decimal(5,2)", -12345, Decimal("-123.45")),
    ("decimal(18,4)", 10**17, Decimal("10000000000000.0000")),
    ("numeric(38,0)", decimal_to_stored(10**38 - 1, parse_type("decimal(38,0)")), Decimal(10**38 - 1)),
    ("money", -922337203685477_5808, Decimal("-922337203685477.5808")),
    ("smallmoney", 53230, Decimal("5.3230")),
    ("date", D2020, date(2020, 2, 29)),
    ("datetime", 1, at("1900-01-01 00:00:00.003")),
    ("smalldatetime", 1440, at("1900-01-02")),
    ("datetime2(7)", D2020 * DAY + 12_345_670, at("2020-02-29 00:00:01.234567")),
    ("datetime2(3)", D2020 * DAY + 1_230_000, at("2020-02-29 00:00:00.123")),
    ("uniqueidentifier", guid_to_stored(bytes(range(16))), "03020100-0504-0706-0809-0A0B0C0D0E0F"),
    ("char(3)", "a€ ", "a€ "),
    ("varchar(max)", "é" * 9000, "é" * 9000),
    ("nchar(2)", "日本", "日本"),
    ("nvarchar(40)", "😀", "😀"),
    ("nvarchar(max)", "", ""),
    ("text", "old", "old"),
    ("ntext", "ölt", "ölt"),
    ("image", b"\0\1", b"\0\1"),
    ("xml", "<a>ö</a>", "<a>ö</a>"),
    ("binary(3)", b"\0\1\2", b"\0\1\2"),
    ("varbinary(max)", b"x" * 9000, b"x" * 9000),
    ("rowversion", b"\0\0\0\0\0\0\7\xd1", b"\0\0\0\0\0\0\7\xd1"),
]


def test_values_of_every_type_arrive(engine: ScriptedEngine, connection_string: str) -> None:
    columns = [ResultColumn(f"c{place}", parse_type(declared)) for place, (declared, _, _) in enumerate(CONSTANTS)]
    engine.select("select all", columns, [[stored for _, stored, _ in CONSTANTS], [None] * len(CONSTANTS)])
    with pyodbc.connect(connection_string, autocommit=True) as connection:
        values, nulls = connection.execute("select all").fetchall()
    assert list(values) == [expected for _, _, expected in CONSTANTS]
    assert list(nulls) == [None] * len(CONSTANTS)


def test_time_and_offset(engine: ScriptedEngine, server: TdsServer) -> None:
    stored = offset_to_stored(D2020 * DAY, -90)
    columns = [ResultColumn("t", parse_type("time(7)")), ResultColumn("o", parse_type("datetimeoffset(7)"))]
    engine.select("select both", columns, [(12_345_678, stored)])
    with pyodbc.connect(odbc(server), autocommit=True) as connection:
        connection.add_output_converter(-155, bytes)
        moment, raw = connection.execute("select both").fetchone()
    assert moment.isoformat() == "00:00:01.234567"
    assert len(raw) == 20


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        7,
        2**40,
        1.5,
        Decimal("12.340"),
        "aß日😀",
        b"\0\xff",
        date(2020, 2, 29),
        at("9999-12-31 23:59:59"),
    ],
    ids=repr,
)
def test_parameters_come_back(connection_string: str, value: object) -> None:
    with pyodbc.connect(connection_string, autocommit=True) as connection:
        for _ in range(2):
            assert connection.execute("select ?", value).fetchval() == value


def test_large_values_both_ways(engine: ScriptedEngine, server: TdsServer) -> None:
    text, data = "ü" * 10_000_000, bytes(20_000_000)
    with pyodbc.connect(odbc(server), autocommit=True) as connection:
        row = connection.execute("select ?, ?", text, data).fetchone()
    assert row[0] == text
    assert row[1] == data


FAST = """
import pyodbc, sys
cursor = pyodbc.connect(sys.argv[1], autocommit=True).cursor()
cursor.fast_executemany = True
cursor.executemany("insert t values (?, ?)", [(n, f"n{n}" if n % 3 else None) for n in range(500)])
"""
"""In a process of its own: pyodbc describes the parameters without letting go of the interpreter lock, which the
server in this process needs."""


def test_fast_executemany_sends_many_executions_at_once(engine: ScriptedEngine, server: TdsServer) -> None:
    engine.described = [Parameter("@P1", INT, None), Parameter("@P2", SqlType("nvarchar", 20), None)]
    seen = list[tuple[Value, ...]]()

    def insert(session: ScriptedSession, parameters: Sequence[Parameter], sink: ResultSink) -> int:
        seen.append(tuple(parameter.value for parameter in parameters))
        sink.done(1)
        return 0

    engine.answers["insert t values (@P1, @P2)"] = insert
    subprocess.run([sys.executable, "-c", FAST, odbc(server)], check=True, timeout=60)
    assert seen == [(number, f"n{number}" if number % 3 else None) for number in range(500)]


def test_several_results_and_counts(engine: ScriptedEngine, connection_string: str) -> None:
    def answer(session: ScriptedSession, parameters: Sequence[Parameter], sink: ResultSink) -> int:
        sink.done(3)
        sink.columns([ResultColumn("a", INT)])
        sink.done(sink.rows([(1,), (2,)]))
        sink.message(SqlError(0, "printed", 0))
        sink.columns([ResultColumn("b", INT)])
        sink.done(sink.rows([]))
        return 0

    engine.answers["several"] = answer
    with pyodbc.connect(connection_string, autocommit=True) as connection:
        cursor = connection.execute("several")
        assert cursor.rowcount == 3
        assert cursor.nextset()
        assert [tuple(row) for row in cursor.fetchall()] == [(1,), (2,)]
        assert cursor.nextset()
        assert cursor.fetchall() == []
        assert not cursor.nextset()


def test_no_count_shows_the_result_set_first(engine: ScriptedEngine, connection_string: str) -> None:
    def answer(session: ScriptedSession, parameters: Sequence[Parameter], sink: ResultSink) -> int:
        sink.done()
        sink.columns([ResultColumn("a", INT)])
        sink.rows([(1,)])
        sink.done()
        return 0

    engine.answers["set nocount on; insert; select"] = answer
    with pyodbc.connect(connection_string, autocommit=True) as connection:
        cursor = connection.execute("set nocount on; insert; select")
        assert cursor.description is not None
        assert cursor.fetchval() == 1


def test_an_error_after_rows_reaches_the_fetch(engine: ScriptedEngine, connection_string: str) -> None:
    def answer(session: ScriptedSession, parameters: Sequence[Parameter], sink: ResultSink) -> int:
        sink.columns([ResultColumn("a", INT)])
        sink.rows([(1,), (2,)])
        raise SqlError(8134, "Divide by zero error encountered.")

    engine.answers["select late"] = answer
    with pyodbc.connect(connection_string, autocommit=True) as connection:
        with pytest.raises(pyodbc.Error, match="8134"):
            connection.execute("select late").fetchall()
        assert connection.execute("select 1").fetchval() == 1


def endless(started: threading.Event) -> Any:
    """An answer that runs until it is cancelled."""

    def answer(session: ScriptedSession, parameters: Sequence[Parameter], sink: ResultSink) -> int:
        while True:
            started.set()
            sink.check()
            time.sleep(0.005)

    return answer


def test_query_timeout_fires_on_time(engine: ScriptedEngine, server: TdsServer) -> None:
    engine.answers["endless"] = endless(threading.Event())
    with pyodbc.connect(odbc(server), autocommit=True) as connection:
        connection.timeout = 1
        begin = time.monotonic()
        with pytest.raises(pyodbc.Error, match="HYT00"):
            connection.execute("endless")
        assert 0.9 < time.monotonic() - begin < 30
        connection.timeout = 0
        assert connection.execute("select 1").fetchval() == 1


def test_cancel_from_another_thread(engine: ScriptedEngine, server: TdsServer) -> None:
    started = threading.Event()
    engine.answers["endless"] = endless(started)
    with pyodbc.connect(odbc(server), autocommit=True) as connection:
        cursor = connection.cursor()

        def cancel() -> None:
            started.wait(60)
            cursor.cancel()

        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(pyodbc.Error, match="HY008"):
            cursor.execute("endless")
        thread.join()
        assert connection.execute("select 1").fetchval() == 1


def test_closing_an_unread_cursor_stops_the_rows(engine: ScriptedEngine, connection_string: str) -> None:
    sent = 0

    def answer(session: ScriptedSession, parameters: Sequence[Parameter], sink: ResultSink) -> int:
        nonlocal sent
        sink.columns([ResultColumn("a", NVARCHAR_MAX)])

        def rows() -> Any:
            nonlocal sent
            while sent < 100_000:
                sent += 1
                yield ("x" * 1000,)

        sink.done(sink.rows(rows()))
        return 0

    engine.answers["select much"] = answer
    with pyodbc.connect(connection_string, autocommit=True) as connection:
        cursor = connection.execute("select much")
        cursor.fetchone()
        cursor.close()
        assert connection.execute("select 1").fetchval() == 1
    assert sent < 90_000


def test_transactions_by_request(engine: ScriptedEngine, server: TdsServer) -> None:
    with pyodbc.connect(odbc(server)) as connection:
        connection.execute("select 1").fetchall()
        connection.commit()
        connection.execute("select 2").fetchall()
        connection.rollback()
        connection.execute("select 3").fetchall()
    log = engine.sessions[0].log
    assert [entry for entry in log if not entry.startswith(("begin", "[sys]"))][:5] == [
        "select 1", "commit", "select 2", "rollback", "select 3",
    ]  # fmt: skip
    assert log.index("begin") < log.index("select 1")


def test_a_closed_client_ends_its_statement_and_session(engine: ScriptedEngine, server: TdsServer) -> None:
    started = threading.Event()
    engine.answers["endless"] = endless(started)
    connection = pyodbc.connect(odbc(server), autocommit=True)

    def run() -> None:
        with pytest.raises(pyodbc.Error):
            connection.execute("endless")

    thread = threading.Thread(target=run)
    thread.start()
    started.wait(60)
    server.drop_connections()
    thread.join(60)
    assert engine.sessions[0].closed.wait(60)


@pytest.mark.parametrize("fault", [Fault(drop=True), Fault(drop=True, after_rows=2)], ids=["at once", "among rows"])
def test_a_dropped_connection(engine: ScriptedEngine, server: TdsServer, fault: Fault) -> None:
    engine.select("select three", [ResultColumn("a", INT)], [(1,), (2,), (3,)])
    connection = pyodbc.connect(odbc(server), autocommit=True)
    engine.fault = fault
    with pytest.raises(pyodbc.Error, match="08S01"):
        connection.execute("select three").fetchall()


def test_an_injected_error_among_rows(engine: ScriptedEngine, connection_string: str) -> None:
    engine.select("select three", [ResultColumn("a", INT)], [(1,), (2,), (3,)])
    with pyodbc.connect(connection_string, autocommit=True) as connection:
        engine.fault = Fault(SqlError(1205, "deadlock", 13), after_rows=2)
        with pytest.raises(pyodbc.Error, match="1205"):
            connection.execute("select three").fetchall()
        assert len(connection.execute("select three").fetchall()) == 3


def test_a_half_open_connection_times_out(engine: ScriptedEngine, server: TdsServer) -> None:
    connection = pyodbc.connect(odbc(server), autocommit=True)
    engine.fault = Fault(hang=True)
    connection.timeout = 1
    with pytest.raises(pyodbc.Error, match="HYT00"):
        connection.execute("select 1")


def test_an_internal_error_is_an_answer(engine: ScriptedEngine, connection_string: str, caplog: Any) -> None:
    def answer(session: ScriptedSession, parameters: Sequence[Parameter], sink: ResultSink) -> int:
        raise KeyError("lost")

    engine.answers["broken"] = answer
    with pyodbc.connect(connection_string, autocommit=True) as connection:
        with pytest.raises(pyodbc.Error, match="Internal error of the stand-in"):
            connection.execute("broken")
        assert connection.execute("select 1").fetchval() == 1
