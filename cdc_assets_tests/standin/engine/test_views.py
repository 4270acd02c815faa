"""Views: definition, reading, catalogue, transactions, a restart."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_assets.standin.engine.server import Engine
from cdc_assets_tests.standin.engine.collect import Client, open_client


@pytest.fixture
def shop(client: Client) -> Client:
    client.do("CREATE TABLE t (id int NOT NULL PRIMARY KEY, a int NULL, b varchar(20) NULL)")
    client.do("INSERT t VALUES (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'z')")
    client.do("CREATE VIEW dbo.v AS SELECT id, a * 2 AS twice, b FROM t WHERE id > 1")
    return client


def test_a_view_is_read_like_a_table(shop: Client) -> None:
    assert shop.rows("SELECT * FROM v ORDER BY id") == [(2, 40, "y"), (3, 60, "z")]
    assert shop.rows("SELECT x.twice, t.a FROM D.dbo.v x JOIN t ON t.id = x.id WHERE x.id = 2") == [(40, 20)]
    shop.do("INSERT t VALUES (4, 40, NULL)")
    assert shop.rows("SELECT count(*), max(twice) FROM v") == [(3, 80)]


def test_a_view_means_its_own_database(shop: Client) -> None:
    shop.do("USE master")
    assert shop.rows("SELECT id FROM D.dbo.v ORDER BY id") == [(2,), (3,)]
    assert [error.number for error in shop.run("SELECT * FROM v").errors] == [208]


def test_views_over_views_and_expressions(shop: Client) -> None:
    shop.do("CREATE VIEW w (n) WITH SCHEMABINDING AS WITH c AS (SELECT count(*) AS k FROM v) SELECT k FROM c")
    assert shop.rows("SELECT n FROM w") == [(2,)]
    shop.do("CREATE OR ALTER VIEW w AS SELECT TOP (1) * FROM v ORDER BY id DESC")
    assert shop.rows("SELECT * FROM w") == [(3, 60, "z")]


def test_a_star_keeps_the_columns_of_its_definition(shop: Client) -> None:
    shop.do("CREATE VIEW w AS SELECT * FROM t")
    shop.do("ALTER TABLE t ADD c int NULL")
    assert shop.rows("SELECT * FROM w WHERE id = 1") == [(1, 10, "x")]
    shop.do("ALTER TABLE t DROP COLUMN c, b")
    assert [error.number for error in shop.run("SELECT * FROM w").errors] == [4502]


def test_a_view_over_the_catalogue_is_fresh(shop: Client) -> None:
    shop.do("CREATE VIEW names AS SELECT name FROM sys.tables WHERE name LIKE 'n%'")
    assert shop.rows("SELECT * FROM names") == []
    shop.do("CREATE TABLE newcomer (a int)")
    assert shop.rows("SELECT * FROM names") == [("newcomer",)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("CREATE VIEW v AS SELECT 1 AS x", 2714),
        ("CREATE VIEW t AS SELECT 1 AS x", 2714),
        ("CREATE TABLE v (id int)", 2714),
        ("SELECT id INTO v FROM t", 2714),
        ("ALTER VIEW nosuch AS SELECT 1 AS x", 208),
        ("CREATE VIEW w AS SELECT 1", 4511),
        ("CREATE VIEW w AS SELECT 1 AS a, 2 AS A", 4506),
        ("CREATE VIEW w (a) AS SELECT 1, 2", 8158),
        ("CREATE VIEW w AS SELECT nosuch FROM t", 207),
        ("CREATE VIEW w AS SELECT id FROM t ORDER BY id", 1033),
        ("CREATE VIEW w AS SELECT @x AS y", 137),
        ("CREATE VIEW master.dbo.w AS SELECT 1 AS x", 166),
        ("CREATE VIEW w WITH ENCRYPTION AS SELECT 1 AS x", 40510),
        ("SELECT 1; CREATE VIEW w AS SELECT 1 AS x", 111),
        ("UPDATE v SET b = 'q'", 40510),
        ("INSERT v VALUES (9)", 40510),
        ("DELETE v", 40510),
        ("DROP TABLE v", 3705),
        ("DROP VIEW t", 3705),
        ("DROP VIEW nosuch", 3701),
    ],
)
def test_refusals(shop: Client, text: str, number: int) -> None:
    assert [error.number for error in shop.run(text).errors] == [number]


def test_a_temporary_table_has_no_view(shop: Client) -> None:
    shop.do("CREATE TABLE #own (a int)")
    assert [error.number for error in shop.run("CREATE VIEW w AS SELECT a FROM #own").errors] == [4508]


def test_catalogue(shop: Client) -> None:
    text = "CREATE VIEW dbo.v AS SELECT id, a * 2 AS twice, b FROM t WHERE id > 1"
    assert shop.rows("SELECT name, type_desc FROM sys.objects WHERE type = 'V'") == [("v", "VIEW")]
    columns = """SELECT c.name, y.name, c.is_nullable FROM sys.columns c JOIN sys.types y ON y.user_type_id = c.user_type_id
        WHERE c.object_id = OBJECT_ID('v') ORDER BY c.column_id"""
    assert shop.rows(columns) == [("id", "int", 0), ("twice", "int", 1), ("b", "varchar", 1)]
    assert shop.rows(
        "SELECT OBJECT_NAME(OBJECT_ID('dbo.v')), OBJECT_ID('v', 'U'), OBJECT_DEFINITION(OBJECT_ID('v'))"
    ) == [("v", None, text)]


def test_drop_and_rollback(shop: Client, connect: Callable[[], Client]) -> None:
    shop.do("BEGIN TRAN; EXEC('CREATE VIEW w AS SELECT 1 AS x'); DROP VIEW IF EXISTS nosuch, v")
    assert shop.rows("SELECT x FROM w") == [(1,)]
    assert [error.number for error in shop.run("SELECT * FROM v").errors] == [208]
    shop.do("ROLLBACK")
    assert [error.number for error in shop.run("SELECT x FROM w").errors] == [208]
    assert connect().rows("SELECT count(*) FROM v") == [(2,)]


def test_a_view_is_there_after_a_restart(tmp_path: Path) -> None:
    first = Engine(tmp_path, "sa", "secret")
    open_client(first, "master").do("CREATE VIEW answers (n, s) AS SELECT 42, CAST('x' AS nchar(3))")
    first.close()
    second = Engine(tmp_path, "sa", "secret")
    assert open_client(second, "master").rows("SELECT n, s FROM answers") == [(42, "x  ")]
    second.close()
