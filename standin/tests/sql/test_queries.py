"""Queries on real SQLite: results, result columns, error numbers, index use."""

import pytest

from mssql_standin.errors import SqlError
from tests.sql.harness import Bench


@pytest.fixture(scope="module")
def bench() -> Bench:
    bench = Bench()
    bench.table(
        "customers", "id int not null; name nvarchar(20); city varchar(10); credit decimal(10,2); since date",
        (1, "Ada", "Bonn", "10.50", "2020-01-01"), (2, "bob ", "bonn", "20", "2021-06-15"), (3, "Cleo", None, None, None),
        (4, "Åsa", "Köln", "-1.25", "2019-12-31"),
    )  # fmt: skip
    bench.table(
        "orders", "id bigint not null; customer_id int; amount money; placed datetime2(3); code binary(4)",
        (10, 1, "5", "2024-01-01 10:00", "ab"), (11, 1, "7.5", "2024-01-02 11:00", "cd"), (12, 2, "1", None, None),
    )  # fmt: skip
    bench.table("big", "id decimal(38,0); at datetimeoffset(3); g uniqueidentifier; cs nvarchar(10) collate Latin1_General_CS_AS",
                ("12345678901234567890123", "2020-01-01 10:00 +02:00", "00000000-0000-0000-0000-000000000001", "a"),
                ("-5", "2020-01-01 09:00 +01:00", "01000000-0000-0000-0000-000000000000", "A"))  # fmt: skip
    for name, declaration, value in (
        ("@id", "int", "1"), ("@name", "nvarchar(4000)", "BOB"), ("@n", "int", "2"), ("@day", "nvarchar(30)", "2020-06-01"),
        ("@out", "varchar(3)", None), ("@dec", "decimal(9,1)", "10.5"), ("@bin", "varbinary(8000)", "0x61620000"),
    ):  # fmt: skip
        bench.set(name, declaration, value)
    bench.connection.execute('CREATE UNIQUE INDEX i1 ON "t885578209"(c1)')
    bench.connection.execute('CREATE INDEX i2 ON "t885578209"(c2 COLLATE ts_ci_as)')
    bench.connection.execute('CREATE INDEX i4 ON "t885578225"(c5)')
    bench.connection.execute('CREATE INDEX i3 ON "t885578225"(c4)')
    return bench


QUERIES = [
    ("SELECT id FROM customers WHERE name = @name", [("2",)]),
    ("SELECT id FROM customers WHERE name = N'ASA'", []),
    ("SELECT id FROM customers WHERE name = N'ASA' COLLATE Latin1_General_CI_AI", [("4",)]),
    ("SELECT id FROM customers WHERE name <> 'ada' ORDER BY name DESC", [("3",), ("2",), ("4",)]),
    ("SELECT city, COUNT(*), SUM(credit) FROM customers GROUP BY city ORDER BY 2 DESC, city", [("Bonn", "2", "30.50"), (None, "1", None), ("Köln", "1", "-1.25")]),
    ("SELECT COUNT(DISTINCT city) FROM customers", [("2",)]),
    ("SELECT DISTINCT city FROM customers WHERE city LIKE 'b%'", [("Bonn",)]),
    ("SELECT id FROM customers WHERE name NOT LIKE N'%a%'", [("2",), ("3",)]),
    ("SELECT id FROM customers WHERE city NOT LIKE 'b!onn' ESCAPE '!'", [("4",)]),
    ("SELECT id FROM customers WHERE id NOT BETWEEN 2 AND 3 AND id NOT IN (4)", [("1",)]),
    ("SELECT name FROM customers c WHERE since > @day", [("bob ",)]),
    ("SELECT id FROM customers WHERE since = '2020-01-01'", [("1",)]),
    ("SELECT id FROM customers WHERE credit = @dec", [("1",)]),
    ("SELECT id FROM customers WHERE credit > 10.499", [("1",), ("2",)]),
    ("SELECT id FROM customers WHERE id > 1.5 AND id < 3.5e0", [("2",), ("3",)]),
    ("SELECT id FROM customers WHERE city IS NULL OR credit < 0", [("3",), ("4",)]),
    ("SELECT id FROM customers WHERE NOT city = 'Bonn'", [("4",)]),
    ("SELECT id FROM customers WHERE '2' = id", [("2",)]),
    ("SELECT id FROM customers WHERE id IN (1, 3, NULL)", [("1",), ("3",)]),
    ("SELECT id FROM customers WHERE id NOT IN (SELECT customer_id FROM orders)", [("3",), ("4",)]),
    ("SELECT id FROM customers WHERE name IN ('ADA', 'cleo')", [("1",), ("3",)]),
    ("SELECT id FROM customers WHERE since BETWEEN '2020-01-01' AND '2021-06-15'", [("1",), ("2",)]),
    ("SELECT id FROM orders WHERE code = 0x6364", [("11",)]),
    ("SELECT id FROM orders WHERE code = 0x636400 AND code >= 0x6364 AND code <> 0x63", [("11",)]),
    ("SELECT x FROM (VALUES (0x01), (0x0100), (0x0101)) v(x) WHERE x = 0x010000", [("0x01",), ("0x0100",)]),
    ("SELECT COUNT(*) FROM (VALUES (0x), (0x00), (0x01)) v(x) GROUP BY x", [("2",), ("1",)]),
    ("SELECT COUNT(*) FROM (VALUES (0x01)) a(x) JOIN (VALUES (0x0100), (0x02)) b(y) ON x = y AND x >= y", [("1",)]),
    ("SELECT id FROM orders WHERE code IN (0x6162, 0x00) AND code = @bin", [("10",)]),
    ("SELECT id FROM orders WHERE placed >= '2024-01-02'", [("11",)]),
    ("SELECT id FROM orders WHERE placed IS NOT DISTINCT FROM NULL", [("12",)]),
    ("SELECT id FROM big WHERE id = -5", [("-5",)]),
    ("SELECT id FROM big ORDER BY id", [("-5",), ("12345678901234567890123",)]),
    ("SELECT COUNT(DISTINCT at) FROM big", [("1",)]),
    ("SELECT COUNT(*) FROM (SELECT DISTINCT at FROM big) x", [("1",)]),
    ("SELECT COUNT(*) FROM (SELECT at FROM big UNION SELECT at FROM big) x", [("1",)]),
    ("SELECT DISTINCT TOP 1 at, g FROM big ORDER BY g", [("2020-01-01 09:00:00.000 +01:00", "01000000-0000-0000-0000-000000000000")]),
    ("SELECT DISTINCT x FROM (VALUES (0x01), (0x0100)) v(x)", [("0x01",)]),
    ("SELECT COUNT(*) FROM big WHERE at = '2020-01-01T08:00:00Z'", [("2",)]),
    ("SELECT g FROM big ORDER BY g", [("01000000-0000-0000-0000-000000000000",), ("00000000-0000-0000-0000-000000000001",)]),
    ("SELECT cs FROM big WHERE cs = 'a'", [("a",)]),
    ("SELECT cs FROM big ORDER BY cs", [("a",), ("A",)]),
    ("SELECT c.name, o.id FROM customers c JOIN orders o ON o.customer_id = c.id WHERE o.amount > 4 ORDER BY o.id", [("Ada", "10"), ("Ada", "11")]),
    ("SELECT c.id, o.id FROM customers c LEFT JOIN orders o ON o.customer_id = c.id AND o.amount > 6 ORDER BY c.id", [("1", "11"), ("2", None), ("3", None), ("4", None)]),
    ("SELECT o.id FROM customers c RIGHT JOIN orders o ON o.customer_id = c.id AND c.id = 2 ORDER BY 1", [("10",), ("11",), ("12",)]),
    ("SELECT COUNT(*) FROM customers a FULL JOIN orders b ON a.id = b.id", [("7",)]),
    ("SELECT COUNT(*) FROM customers, orders", [("12",)]),
    ("SELECT COUNT(*) FROM customers CROSS JOIN orders", [("12",)]),
    ("SELECT a.id FROM customers a JOIN (orders b JOIN orders c ON b.id = c.id) ON a.id = b.customer_id AND b.id = 12", [("2",)]),
    ("SELECT value FROM GENERATE_SERIES(3, 1)", [("3",), ("2",), ("1",)]),
    ("SELECT TOP 2 id FROM customers ORDER BY id DESC", [("4",), ("3",)]),
    ("SELECT TOP (@n) id FROM customers ORDER BY id", [("1",), ("2",)]),
    ("SELECT id FROM customers ORDER BY id OFFSET 1 ROWS FETCH NEXT 2 ROWS ONLY", [("2",), ("3",)]),
    ("SELECT id FROM customers ORDER BY id OFFSET (@n) ROWS", [("3",), ("4",)]),
    ("SELECT name AS id FROM customers ORDER BY id", [("Ada",), ("Åsa",), ("bob ",), ("Cleo",)]),
    ("SELECT id * -1 AS x FROM customers ORDER BY x", [("-4",), ("-3",), ("-2",), ("-1",)]),
    ("SELECT CAST(b AS datetimeoffset(0)) AS d FROM (VALUES ('2020-01-02', '2020-01-05'), ('2020-01-03', '2020-01-04')) v(a, b) ORDER BY d", [("2020-01-04 00:00:00 +00:00",), ("2020-01-05 00:00:00 +00:00",)]),
    ("SELECT id FROM customers ORDER BY customers.name DESC, 1", [("3",), ("2",), ("4",), ("1",)]),
    ("SELECT 1 UNION SELECT 1 UNION ALL SELECT 2", [("1",), ("2",)]),
    ("SELECT COUNT(*) FROM (SELECT 'A' AS x UNION SELECT 'a ') u", [("1",)]),
    ("SELECT 1 AS a, NULL AS b UNION ALL SELECT 2.5, 'x' ORDER BY a", [("1.0", None), ("2.5", "x")]),
    ("SELECT c.id, c.city AS town FROM customers c WHERE c.id < 3 UNION SELECT o.id, NULL FROM orders o ORDER BY c.id DESC", [("12", None), ("11", None), ("10", None), ("2", "bonn"), ("1", "Bonn")]),
    ("SELECT c.*, c.id AS n FROM (SELECT id FROM customers) c UNION ALL SELECT 0, 0 ORDER BY c.id DESC OFFSET 3 ROWS", [("1", "1"), ("0", "0")]),
    ("SELECT id FROM customers EXCEPT SELECT customer_id FROM orders", [("3",), ("4",)]),
    ("SELECT id FROM customers INTERSECT SELECT customer_id FROM orders", [("1",), ("2",)]),
    ("SELECT 1 UNION SELECT 2 INTERSECT SELECT 3", [("1",)]),
    ("WITH a AS (SELECT id FROM customers WHERE id < 3), b(x) AS (SELECT id * 2 FROM a) SELECT x FROM b ORDER BY x", [("2",), ("4",)]),
    ("SELECT 1, 'x' FROM customers HAVING COUNT(*) = 4", [("1", "x")]),
    ("SELECT 1 FROM customers WHERE id > 9 HAVING COUNT(*) = 0", [("1",)]),
    ("SELECT TOP 1 0 FROM customers HAVING 1 = 1 ORDER BY 1", [("0",)]),
    ("SELECT x, y FROM (VALUES (1, 'a'), (2, NULL)) v(x, y) WHERE y IS NULL", [("2", None)]),
    ("SELECT id, ROW_NUMBER() OVER (PARTITION BY city ORDER BY id DESC) FROM customers WHERE city = 'bonn' ORDER BY id", [("1", "2"), ("2", "1")]),
    ("SELECT id + 1, -id FROM customers c GROUP BY c.id + 1, -c.id HAVING id + 1 > 4", [("5", "-4")]),
    ("SELECT (SELECT TOP 1 name FROM customers WHERE customers.id = o.customer_id) FROM orders o ORDER BY o.id", [("Ada",), ("Ada",), ("bob ",)]),
    ("SELECT MAX(s) FROM (SELECT TOP (@n + 1) id AS s FROM orders WHERE id >= @id ORDER BY id) AS x", [("12",)]),
    ("SELECT dbo.customers.id FROM TestDB.dbo.customers WHERE dbo.customers.id = 1", [("1",)]),
    ("SELECT t.* FROM customers c JOIN orders t ON c.id = t.customer_id WHERE t.id = 12", [("12", "2", "1.0000", None, None)]),
    ("SELECT 1 WHERE EXISTS (SELECT * FROM customers WHERE id = 9)", []),
    ("SELECT CASE WHEN COUNT(*) > 3 THEN 'many' ELSE 'few' END FROM customers", [("many",)]),
]  # fmt: skip


@pytest.mark.parametrize(("query", "rows"), QUERIES, ids=[case[0] for case in QUERIES])
def test_rows(bench: Bench, query: str, rows: list[tuple[str | None, ...]]) -> None:
    assert bench.texts(query) == rows


ERRORS = [
    ("SELECT nope FROM customers", 207),
    ("SELECT id FROM customers, orders", 209),
    ("SELECT id FROM nothing", 208),
    ("SELECT x.id FROM customers", 4104),
    ("SELECT x.* FROM customers", 107),
    ("SELECT *", 263),
    ("SELECT name, COUNT(*) FROM customers", 8120),
    ("SELECT * FROM customers GROUP BY id", 8120),
    ("SELECT id FROM customers WHERE COUNT(*) > 1", 147),
    ("SELECT id FROM customers WHERE ROW_NUMBER() OVER (ORDER BY id) = 1", 4108),
    ("SELECT SUM(COUNT(*)) FROM customers", 130),
    ("SELECT SUM(RANK() OVER (ORDER BY id)) FROM customers", 4109),
    ("SELECT RANK() OVER (ORDER BY RANK() OVER (ORDER BY id)) FROM customers", 4109),
    ("SELECT RANK() OVER (ORDER BY 1) FROM customers", 5308),
    ("SELECT RANK() OVER (ORDER BY 'x') FROM customers", 5309),
    ("SELECT RANK(1) OVER (ORDER BY id) FROM customers", 4114),
    ("SELECT RANK() FROM customers", 10753),
    ("SELECT TOP (NULL) id FROM customers", 1060),
    ("SELECT SUM(NULL) FROM customers", 8117),
    ("SELECT 1 FROM customers GROUP BY 'x'", 164),
    ("SELECT 1 FROM customers GROUP BY @id", 164),
    ("SELECT 1 FROM customers GROUP BY (SELECT 1)", 144),
    ("SELECT id FROM customers ORDER BY 1 + 1", 408),
    ("SELECT id FROM customers ORDER BY @id", 1008),
    ("SELECT TOP 1.5 id FROM customers", 1060),
    ("SELECT TOP (id) id FROM customers", 4115),
    ("SELECT SUM(x) FROM (VALUES (1e308), (1e308)) v(x)", 8115),
    ("SELECT TOP (@n - 3) id FROM customers", 127),
    ("SELECT id FROM customers ORDER BY id OFFSET -1 ROWS", 10742),
    ("SELECT id FROM customers ORDER BY id OFFSET 1.5 ROWS", 10743),
    ("SELECT id FROM customers ORDER BY id OFFSET 0 ROWS FETCH NEXT 0 ROWS ONLY", 10744),
    ("SELECT ROW_NUMBER() OVER () FROM customers", 4112),
    ("SELECT SUM(name) FROM customers", 8117),
    ("SELECT id FROM (SELECT id FROM customers ORDER BY id) x", 1033),
    ("SELECT x.a FROM (SELECT 1) x", 8155),
    ("SELECT x.a FROM (SELECT 1 AS a, 2 AS a) x", 8156),
    ("SELECT x.a FROM (SELECT 1, 2) x(a)", 8158),
    ("SELECT x.a FROM (SELECT 1) x(a, b)", 8159),
    ("SELECT 1 UNION SELECT 1, 2", 205),
    ("SELECT id FROM customers ORDER BY 3", 108),
    ("SELECT DISTINCT id FROM customers ORDER BY name", 145),
    ("SELECT 1 AS a UNION SELECT 2 ORDER BY b", 104),
    ("SELECT c.id FROM customers c UNION SELECT o.id FROM orders o ORDER BY o.id", 104),
    ("SELECT c.id FROM customers c UNION SELECT 2 ORDER BY c.name", 104),
    ("SELECT c.id FROM customers c UNION SELECT 2 ORDER BY c.id + 1", 104),
    ("SELECT (SELECT id FROM customers)", 512),
    ("SELECT id FROM customers WHERE id", 4145),
    ("SELECT id FROM customers WHERE id = ", 102),
    ("SELECT id FROM customers c JOIN orders c ON 1 = 1", 1011),
    ("SELECT id FROM customers WITH (NOSUCHHINT)", 321),
    ("SELECT @id = id FROM customers", 40510),
    ("SELECT @id += 1", 40510),
    ("SELECT id FROM customers FOR XML AUTO", 40510),
    ("SELECT id FROM customers FOR BROWSE", 40510),
    ("SELECT id FROM customers TABLESAMPLE (10 PERCENT)", 40510),
    ("SELECT SUM(DISTINCT id) FROM customers", 40510),
    ("SELECT SUM(id) FROM big", 40510),
    ("SELECT SUM(id) OVER (ORDER BY id) FROM customers", 40510),
    ("SELECT ROW_NUMBER() OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) FROM customers", 40510),
    ("SELECT c.id FROM customers c CROSS APPLY (SELECT c.id AS x) a", 40510),
    ("SELECT c.id FROM customers c OUTER APPLY dbo.twice(c.id) a", 40510),
    ("SELECT TOP 50 PERCENT id FROM customers", 40510),
    ("SELECT TOP 1 WITH TIES id FROM customers ORDER BY id", 40510),
    ("SELECT (SELECT TOP (c.id) id FROM orders ORDER BY id) FROM customers c", 40510),
    ("SELECT id FROM customers WHERE id >= ALL (SELECT id FROM customers)", 40510),
    ("WITH r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r", 40510),
    ("SELECT id FROM customers GROUP BY ROLLUP (id)", 40510),
    ("SELECT id FROM customers PIVOT (MAX(name) FOR city IN ([a])) p", 40510),
    ("WITH a AS (SELECT 1 AS x), A AS (SELECT 2 AS x) SELECT x FROM a", 239),
    ("SELECT id FROM customers WHERE name = CAST('x' AS xml)", 305),
    ("SELECT id FROM customers WHERE since = 5", 206),
    ("SELECT id FROM big WHERE g = 5", 206),
    ("SELECT id FROM customers LIMIT 5", 102),
    ("DELETE FROM customers", 102),
    ("SELECT id FROM customers ORDER BY CAST(name AS ntext)", 306),
    ("SELECT id FROM customers WHERE CAST(name AS ntext) = N'x'", 402),
    ("SELECT CAST(name AS ntext) + N'x' FROM customers", 402),
    ("SELECT CAST(id AS sql_variant) FROM customers", 40510),
    ("SELECT NEXT VALUE FOR dbo.s", 40510),
    ("SELECT * FROM OPENJSON('[]')", 40510),
    ("SELECT customers.name.value('x', 'int') FROM customers", 40510),
    ("SELECT id FROM customers WHERE CONTAINS(name, 'x')", 40510),
]  # fmt: skip


@pytest.mark.parametrize(("query", "number"), ERRORS, ids=[case[0] for case in ERRORS])
def test_error_number(bench: Bench, query: str, number: int) -> None:
    with pytest.raises(SqlError) as caught:
        bench.rows(query)
    assert caught.value.number == number


def test_the_collation_of_the_database_can_be_named() -> None:
    bench = Bench()
    bench.collation = "Latin1_General_CS_AS"
    assert bench.value("CASE WHEN 'a' COLLATE DATABASE_DEFAULT = 'A' THEN 1 ELSE 0 END") == "0"


def test_result_columns_tell_names_types_and_nullability(bench: Bench) -> None:
    query = "SELECT ID, name AS n, x = credit, credit + 1, o.id FROM customers LEFT JOIN orders o ON o.id = 1"
    assert [(c.name, str(c.type), c.nullable) for c in bench.compile(query.replace("ID", "customers.ID")).columns] == [
        ("ID", "int", False),
        ("n", "nvarchar(20)", True),
        ("x", "decimal(10,2)", True),
        ("", "decimal(11,2)", True),
        ("id", "bigint", True),
    ]


def test_hints_into_and_variables_are_reported(bench: Bench) -> None:
    query = bench.compile("SELECT id INTO #copy FROM customers WITH (TABLOCKX, HOLDLOCK) WHERE id = @ID")
    assert query.into == ("#copy",)
    assert query.variables == ["id"]
    assert [names for _, names in query.hints] == [frozenset({"TABLOCKX", "HOLDLOCK"})]
    assert [relation.table.name for relation in query.relations if relation.table] == ["customers"]


PLANS = [
    ("SELECT id FROM customers WHERE id = @id", "i1 (c1=?)"),
    ("SELECT id FROM customers WHERE id > @id AND id <= 3.0", "i1 (c1>? AND c1<?)"),
    ("SELECT id FROM customers WHERE id = '2'", "i1 (c1=?)"),
    ("SELECT id FROM customers WHERE name = @name", "i2 (c2=?)"),
    ("SELECT id FROM customers WHERE name LIKE 'ad%'", "i2 (c2>?)"),
    ("SELECT id FROM orders WHERE placed >= @day", "i3 (c4>?)"),
    ("SELECT id FROM orders WHERE placed >= DATEADD(day, -1, SYSUTCDATETIME())", "i3 (c4>?)"),
    ("SELECT id FROM customers WHERE id IN (1, 2)", "i1 (c1=?)"),
    ("SELECT id FROM orders WHERE code >= @bin", "i4 (c5>?)"),
    ("SELECT id FROM orders WHERE code = 0x61", "i4 (c5=?)"),
]


@pytest.mark.parametrize(("query", "plan"), PLANS, ids=[case[0] for case in PLANS])
def test_comparisons_use_indexes(bench: Bench, query: str, plan: str) -> None:
    compiled = bench.compile(query)
    values = {name: bench.variables[name].value for name in compiled.variables}
    details = [row[3] for row in bench.connection.execute(f"EXPLAIN QUERY PLAN {compiled.sql}", values)]
    assert any(detail.startswith("SEARCH") and plan in detail for detail in details), details
