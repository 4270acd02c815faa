"""Long chains, deep nesting, parenthesised queries."""

import pytest

from tests.engine.collect import Client


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
