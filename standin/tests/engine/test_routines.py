"""User procedures: definition, arguments, results, scope, catalogue, a restart."""

from pathlib import Path

import pytest

from mssql_standin.engine.server import Engine
from tests.engine.collect import Client, open_client


@pytest.fixture
def shop(client: Client) -> Client:
    client.do("CREATE TABLE t (id int NOT NULL PRIMARY KEY, a int NULL) INSERT t VALUES (1, 10), (2, 20)")
    client.do("""
    CREATE PROCEDURE dbo.add_one @id int, @a int = 5, @total int = NULL OUTPUT AS
    BEGIN
        SET NOCOUNT ON
        INSERT t VALUES (@id, @a)
        SET @total = (SELECT count(*) FROM t)
    END
    """)
    client.do("CREATE PROC rows_from (@low int = 0) AS SELECT id, a FROM t WHERE id >= @low ORDER BY id")
    return client


def test_arguments_by_place_name_and_default(shop: Client) -> None:
    assert shop.rows("DECLARE @n int, @r int; EXEC @r = add_one 3, @total = @n OUTPUT; SELECT @n, @r") == [(3, 0)]
    shop.do("EXEC dbo.add_one @a = DEFAULT, @id = 4")
    shop.do("add_one '5', 1.9")
    assert shop.rows("EXEC rows_from 3") == [(3, 5), (4, 5), (5, 1)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("EXEC add_one", 201),
        ("EXEC add_one 3, 1, 2, 3", 8144),
        ("EXEC add_one @nosuch = 1", 8145),
        ("EXEC add_one 1 + 1", 102),
        ("EXEC add_one @n = ABS(-3)", 102),
        ("EXEC add_one (3)", 102),
        ("EXEC add_one -'3'", 102),
        ("DECLARE @a int, @b nosuch", 2715),
        ("EXEC add_one 'x'", 8114),
        ("EXEC add_one 1", 2627),
        ("EXEC nosuch", 2812),
        ("CREATE PROC add_one AS SELECT 1", 2714),
        ("CREATE PROC t AS SELECT 1", 2714),
        ("CREATE TABLE add_one (a int)", 2714),
        ("ALTER PROC add_one AS SELECT 1", 40510),
        ("CREATE PROC p @a nosuch AS SELECT 1", 2715),
        ("CREATE PROC p @a int, @A int AS SELECT 1", 134),
        ("CREATE PROC p AS BEGIN SELECT 1", 102),
        ("CREATE PROC p", 102),
        ("CREATE PROC #p AS SELECT 1", 40510),
        ("CREATE PROC p WITH ENCRYPTION AS SELECT 1", 40510),
        ("CREATE PROC master.dbo.p AS SELECT 1", 166),
        ("SELECT 1; CREATE PROC p AS SELECT 1", 111),
        ("DROP PROC nosuch", 3701),
    ],
)
def test_refusals(shop: Client, text: str, number: int) -> None:
    assert [error.number for error in shop.run(text).errors] == [number]


def test_what_a_procedure_changes_stays_inside(shop: Client) -> None:
    shop.do("CREATE PROC p AS SET NOCOUNT ON; SET XACT_ABORT ON; CREATE TABLE #own (a int); DECLARE @i int = 1")
    shop.do("EXEC p")
    assert shop.errors("SELECT * FROM #own") == [208]
    assert shop.errors("SELECT @i") == [137]
    assert not shop.session.options.nocount
    assert not shop.session.options.xact_abort


def test_a_procedure_runs_in_its_own_database(shop: Client) -> None:
    shop.do("USE master")
    assert shop.rows("EXEC D.dbo.rows_from 2") == [(2, 20)]
    assert shop.rows("SELECT DB_NAME()") == [("master",)]


def test_procedures_call_procedures(shop: Client) -> None:
    shop.do("""
    CREATE PROC deep @n int AS
    IF @n > 0 BEGIN DECLARE @m int = @n - 1; EXEC deep @m END
    ELSE SELECT @@NESTLEVEL
    """)
    assert shop.rows("EXEC deep 5") == [(6,)]
    assert shop.errors("EXEC deep 40") == [217]


def test_errors_tell_the_procedure_and_transactions_continue(shop: Client) -> None:
    shop.do("CREATE PROC fails AS SELECT 1 / 0")
    error = shop.run("EXEC fails").errors[0]
    assert (error.number, error.procedure) == (8134, "fails")
    shop.do("BEGIN TRAN EXEC add_one 9 ROLLBACK")
    assert shop.rows("SELECT max(id) FROM t") == [(2,)]


def test_insert_takes_the_rows_of_a_procedure(shop: Client) -> None:
    shop.do("CREATE TABLE copy (id int, a int) INSERT copy EXEC rows_from")
    assert shop.rows("SELECT * FROM copy ORDER BY id") == [(1, 10), (2, 20)]


def test_change_and_catalogue(shop: Client) -> None:
    object_id = shop.rows("SELECT OBJECT_ID('rows_from', 'P')")
    text = "CREATE OR ALTER PROCEDURE rows_from AS SELECT 1 AS one"
    shop.do(text)
    assert shop.rows("EXEC rows_from") == [(1,)]
    assert shop.rows("SELECT OBJECT_ID('rows_from', 'P')") == object_id
    assert shop.rows("SELECT OBJECT_DEFINITION(OBJECT_ID('rows_from'))") == [(text,)]
    names = "SELECT name FROM sys.objects WHERE type = 'P' ORDER BY 1"
    assert shop.rows(names) == [("add_one",), ("rows_from",)]
    shop.do("DROP PROC IF EXISTS nosuch, rows_from")
    assert shop.rows(names) == [("add_one",)]


def test_a_procedure_is_there_after_a_restart(tmp_path: Path) -> None:
    first = Engine(tmp_path, "sa", "secret")
    open_client(first, "master").do("CREATE PROC answer @n int = 42 AS SELECT @n")
    first.close()
    second = Engine(tmp_path, "sa", "secret")
    assert open_client(second, "master").rows("EXEC answer") == [(42,)]
    second.close()
