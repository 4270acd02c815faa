"""Users' statements and predicates inside ours: nothing but a query comes of them."""

import pytest

from cdc_assets.errors import InvalidValueError
from cdc_assets.shared.selects import embedded, require_predicate

OUTER = "SELECT [t].[id] FROM (\n"

CASES = {
    "SELECT * FROM dbo.a": OUTER + "SELECT * FROM dbo.a\n) AS [t]",
    " select id from dbo.a where n = ')' ; ": OUTER + "select id from dbo.a where n = ')'\n) AS [t]",
    "SELECT * FROM a ORDER BY id": OUTER + "SELECT * FROM a ORDER BY id\nOFFSET 0 ROWS\n) AS [t]",
    "SELECT * FROM a -- order by": OUTER + "SELECT * FROM a -- order by\n) AS [t]",
    "SELECT TOP (5) * FROM a ORDER BY id": OUTER + "SELECT TOP (5) * FROM a ORDER BY id\n) AS [t]",
    "SELECT * FROM a ORDER BY id OFFSET 2 ROWS": OUTER + "SELECT * FROM a ORDER BY id OFFSET 2 ROWS\n) AS [t]",
    "SELECT *, ROW_NUMBER() OVER (ORDER BY id) AS n FROM a": OUTER
    + "SELECT *, ROW_NUMBER() OVER (ORDER BY id) AS n FROM a\n) AS [t]",
    "SELECT [order by] FROM a": OUTER + "SELECT [order by] FROM a\n) AS [t]",
    "WITH x AS (SELECT * FROM a ORDER BY b) SELECT * FROM x": "WITH x AS (SELECT * FROM a ORDER BY b) "
    + OUTER
    + "SELECT * FROM x\n) AS [t]",
    "WITH x (b) AS (SELECT 1), [y ]] z] AS (SELECT 2 AS c) SELECT * FROM x": "WITH x (b) AS (SELECT 1), [y ]] z] AS (SELECT 2 AS c) "
    + OUTER
    + "SELECT * FROM x\n) AS [t]",
    "WITH XMLNAMESPACES ('u:x' AS x), y AS (SELECT 1 AS id) SELECT * FROM y": "WITH XMLNAMESPACES ('u:x' AS x), y AS (SELECT 1 AS id) "
    + OUTER
    + "SELECT * FROM y\n) AS [t]",
    "(SELECT 1 AS id) UNION (SELECT 2)": OUTER + "(SELECT 1 AS id) UNION (SELECT 2)\n) AS [t]",
    "SELECT id /* ; /* ) */ ' */ FROM a -- ; )": OUTER + "SELECT id /* ; /* ) */ ' */ FROM a -- ; )\n) AS [t]",
    "SELECT * FROM a OPTION (MAXDOP 1)": OUTER + "SELECT * FROM a \n) AS [t] OPTION (MAXDOP 1)",
}


@pytest.mark.parametrize("statement", CASES)
def test_statement(statement: str) -> None:
    assert embedded(statement, "[t].[id]") == CASES[statement]


NO_QUERIES = (
    "",
    "-- nothing",
    "SELECT 1) AS t; DELETE FROM a; --",
    "SELECT 1; SELECT 2",
    "SELECT (1",
    "SELECT 1 FROM a WHERE n = 'it''s",
    "DROP TABLE a",
    "DROP TABLE a SELECT 1",
    "EXEC ('DROP TABLE a') SELECT 1",
    "WITH x AS (SELECT 1 AS b) DELETE FROM a SELECT * FROM x",
    "WITH x AS (SELECT 1 AS b) SELECT * FROM x OPTION (MAXDOP 1) DROP TABLE a",
    "SELECT 1 OPTION DROP TABLE a",
    "SELECT 1) AS t DROP TABLE a SELECT * FROM (SELECT 2 AS b",
    "/* /* */ ' */ ; DROP TABLE a; --'",  # a comment inside a comment, which ends before the quote does not
    "SELECT 1 /* never ends",
    "SELECT 1 FROM a -- \r) AS t DROP TABLE a -- ",  # whether a lone CR ends the comment is not certain
)


@pytest.mark.parametrize("statement", NO_QUERIES)
def test_what_is_not_one_query_is_refused(statement: str) -> None:
    with pytest.raises(InvalidValueError, match="one SELECT statement"):
        embedded(statement, "[t].[id]")


@pytest.mark.parametrize(
    "condition",
    [
        "id > 1",
        "n = ') ; DROP TABLE a'",
        "[a)] = 1 AND (b = 2 OR c IN (SELECT id FROM d)) -- )",
        "id > 1 /* ) /* ; */ ) */ AND n LIKE '[a-c]%'",
        "\"a(\" = N'it''s'",
        "id > 1 -- windows\r\nAND n = 2",
    ],
)
def test_a_predicate_is_taken(condition: str) -> None:
    require_predicate(condition)


@pytest.mark.parametrize(
    "condition",
    [
        "1=1) OR (1=1",
        "1=1) DROP TABLE a SELECT (1",
        "1=1; DROP TABLE a",
        "(1=1",
        "n = 'x",
        "id /*",
        "[id = 1",
        "1=1 /* /* */ ' */ ) DROP TABLE a --'",
        "1=1 -- \u2028) DROP TABLE a --",
    ],
)
def test_a_predicate_that_would_end_before_ours_is_refused(condition: str) -> None:
    with pytest.raises(InvalidValueError, match="one predicate"):
        require_predicate(condition)
