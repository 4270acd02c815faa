"""Statements of operators inside ours."""

import pytest

from cdc_assets.capture.selects import embedded
from cdc_assets.errors import InvalidValueError

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
    "SELECT * FROM a OPTION (MAXDOP 1)": OUTER + "SELECT * FROM a \n) AS [t] OPTION (MAXDOP 1)",
}


@pytest.mark.parametrize("statement", CASES)
def test_statement(statement: str) -> None:
    assert embedded(statement, "[t].[id]") == CASES[statement]


@pytest.mark.parametrize("statement", ["SELECT 1) AS t; DELETE FROM a; --", "SELECT 1; SELECT 2", "SELECT (1"])
def test_more_than_one_statement_is_refused(statement: str) -> None:
    with pytest.raises(InvalidValueError, match="one statement"):
        embedded(statement, "[t].[id]")
