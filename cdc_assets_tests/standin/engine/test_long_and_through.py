"""Long chains, deep nesting, parenthesised queries; UPDATE and DELETE through a query."""

import pytest

from cdc_assets_tests.standin.engine.collect import Client


@pytest.fixture
def things(client: Client) -> Client:
    client.do("""
    CREATE TABLE things (id int NOT NULL PRIMARY KEY, a int NULL, b varchar(9) NULL)
    INSERT things VALUES (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'z')
    """)
    return client


@pytest.mark.parametrize("length", [30, 450, 1000])
def test_a_chain_of_set_operations_may_be_long(client: Client, length: int) -> None:
    everything = " UNION ALL ".join(f"SELECT {number} AS n, 'of {number}' AS s" for number in range(length))
    assert client.rows(everything) == [(number, f"of {number}") for number in range(length)]
    remainders = " UNION ".join(f"SELECT {number % 7} AS n" for number in range(length))
    assert client.rows(f"{remainders} ORDER BY n") == [(number,) for number in range(7)]


def test_a_chain_keeps_the_order_of_its_operations(client: Client) -> None:
    assert client.rows("SELECT 1 UNION ALL SELECT 2 UNION SELECT 2 UNION ALL SELECT 2") == [(1,), (2,), (2,)]
    assert client.rows("SELECT 1 UNION ALL SELECT 3 EXCEPT SELECT 2 EXCEPT SELECT 1") == [(3,)]
    assert client.rows("SELECT 1 UNION ALL SELECT 2.5 UNION ALL SELECT NULL ORDER BY 1") == [(None,), (10,), (25,)]


@pytest.mark.parametrize(("word", "expected"), [("AND", [(1,)]), ("OR", [(1,), (2,), (3,)])])
def test_a_chain_of_conditions_may_be_long(things: Client, word: str, expected: list[tuple[int]]) -> None:
    chain = f" {word} ".join(["id = 1"] + ["id < 2" if word == "AND" else "id > 1"] * 1500)
    assert things.rows(f"SELECT id FROM things WHERE {chain} ORDER BY id") == expected


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SELECT " + "(" * 300 + "1" + ")" * 300, 191),
        ("SELECT " + " + ".join(["1"] * 900), 191),
        ("SELECT * FROM " + "(SELECT * FROM " * 40 + "things" + ") x" * 40, 8623),
    ],
)
def test_what_nests_too_deeply_is_an_error_of_the_statement(things: Client, text: str, number: int) -> None:
    assert [error.number for error in things.run(text).errors] == [number]
    assert things.rows("SELECT count(*) FROM things") == [(3,)]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("(SELECT 1 AS x)", [(1,)]),
        ("((SELECT 1 AS x))", [(1,)]),
        ("(SELECT 1) UNION ALL (SELECT 2)", [(1,), (2,)]),
        ("(SELECT TOP 1 id FROM things ORDER BY id DESC) UNION ALL SELECT 9", [(3,), (9,)]),
        ("(SELECT 1 AS a UNION ALL SELECT 2) EXCEPT SELECT 2", [(1,)]),
        ("WITH c AS (SELECT 5 AS x) (SELECT x FROM c)", [(5,)]),
    ],
)
def test_a_statement_may_begin_with_a_parenthesis(things: Client, text: str, rows: list[tuple[int]]) -> None:
    assert things.rows(text) == rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("WITH c AS (SELECT id, a FROM things) UPDATE c SET a = a + 1 WHERE id = 1", [(1, 11), (2, 20), (3, 30)]),
        ("WITH c (k, z) AS (SELECT id, a FROM dbo.things) UPDATE c SET z += 7 WHERE k > 1", [(1, 10), (2, 27), (3, 37)]),
        ("WITH c AS (SELECT t.id, o.a FROM things t JOIN things o ON o.id = t.id + 1) UPDATE c SET a = c.id", [(1, 10), (2, 1), (3, 2)]),
        ("WITH things AS (SELECT * FROM dbo.things WHERE id = 2) UPDATE things SET a = NULL", [(1, 10), (2, None), (3, 30)]),
        ("UPDATE q SET a = q.a + t.a FROM (SELECT id, a FROM things) q JOIN things t ON t.id = q.id", [(1, 20), (2, 40), (3, 60)]),
        ("WITH c AS (SELECT id, a FROM things WHERE id > 1) DELETE FROM c WHERE a > 25", [(1, 10), (2, 20)]),
        ("WITH c AS (SELECT TOP (1) * FROM things ORDER BY id DESC) DELETE c", [(1, 10), (2, 20)]),
        ("WITH c AS (SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS n FROM things) DELETE c WHERE n > 1", [(1, 10)]),
    ],
)  # fmt: skip
def test_a_change_through_a_query_changes_the_rows_it_shows(
    things: Client, text: str, rows: list[tuple[int, int | None]]
) -> None:
    things.do(text)
    assert things.rows("SELECT id, a FROM things ORDER BY id") == rows


def test_output_of_a_change_through_a_query(things: Client) -> None:
    text = "WITH c AS (SELECT id, a AS z FROM things) UPDATE c SET z = 0 OUTPUT inserted.id, deleted.a WHERE id = 2"
    assert things.rows(text) == [(2, 20)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("WITH c AS (SELECT id, a * 2 AS d FROM things) UPDATE c SET d = 1", 4406),
        ("WITH c AS (SELECT count(*) AS n FROM things) UPDATE c SET n = 1", 4403),
        ("WITH c AS (SELECT DISTINCT a FROM things) DELETE c", 4403),
        ("WITH c AS (SELECT a FROM things UNION ALL SELECT 1) DELETE c", 4426),
        ("WITH c AS (SELECT t.id FROM things t JOIN things o ON t.id = o.id) DELETE c", 4405),
        ("WITH c AS (SELECT id FROM things) UPDATE c SET nosuch = 1", 207),
        ("WITH c AS (SELECT id FROM things), d AS (SELECT id FROM c) DELETE d", 40510),
    ],
)
def test_queries_that_cannot_be_changed(things: Client, text: str, number: int) -> None:
    assert [error.number for error in things.run(text).errors] == [number]
    assert things.rows("SELECT sum(a) FROM things") == [(60,)]
