"""Statements that are wrong in unusual ways: each gets SQL Server's number, none an internal error (found by fuzzing)."""

import pytest

from mssql_standin.queries import selects
from tests.engine.collect import Client


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SELECT ABS(NEWID())", 8116),
        ("SELECT LEFT('abc', 'x')", 245),
        ("SELECT 0x01 % 'a'", 402),
        ("SELECT 0x01 - CAST('<a/>' AS xml)", 402),
        ("SELECT CAST(1e308 AS datetime)", 40510),
        ("SELECT CAST(0xFFFFFFFFFFFFFFFFFFFF AS datetime2(7))", 40510),
        ("SELECT 1.* = ALL", 102),
        ("RAISERROR(16, 'own %d', 1, 7)", 245),
        ("CREATE TABLE t (a int); INSERT BULK dbo.t ([a] int) WITH (CHECK_CONSTRAINTS)", 40510),
        ("BULK INSERT dbo.t FROM 'file'", 40510),
        ("CREATE DATABASE s ON (NAME = d, FILENAME = 'f') AS SNAPSHOT OF d", 40510),
        ("CREATE DATABASE s WITH TRUSTWORTHY ON", 40510),
    ],
)
def test_a_mistake_has_its_number(client: Client, text: str, number: int) -> None:
    assert [error.number for error in client.run(text).errors] == [number]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("SELECT 1e", 1.0),
        ("SELECT LEFT(1001, 2)", "10"),
    ],
)
def test_unusual_arguments(client: Client, text: str, value: object) -> None:
    assert client.rows(text) == [(value,)]


def test_a_fault_of_our_own_is_an_error_with_a_number(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong inside a statement: the client gets a number, and the session goes on."""
    client.do("CREATE TABLE t (a int NOT NULL PRIMARY KEY); BEGIN TRAN; INSERT t VALUES (1)")
    with monkeypatch.context() as patch:
        patch.setattr(selects, "select_plan", lambda *_: 1 // 0)
        assert [error.number for error in client.run("SELECT 1").errors] == [8624]
    client.do("COMMIT")
    assert client.rows("SELECT a FROM t") == [(1,)]
