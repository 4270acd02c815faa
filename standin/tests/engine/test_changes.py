"""INSERT, UPDATE, DELETE, OUTPUT, constraints, identity, row versions."""

from collections.abc import Callable

import pytest

from tests.engine.collect import Client


@pytest.fixture
def shop(client: Client) -> Client:
    client.do("""
    CREATE TABLE customers (id int NOT NULL CONSTRAINT pk_c PRIMARY KEY, name nvarchar(10) NOT NULL CONSTRAINT u_c UNIQUE, age tinyint NULL)
    CREATE TABLE orders (id int IDENTITY(100, 10) PRIMARY KEY, customer int NULL CONSTRAINT fk_o REFERENCES customers (id),
        amount decimal(10, 2) NOT NULL CONSTRAINT df_a DEFAULT 1.5, doubled AS amount * 2, v rowversion)
    INSERT customers VALUES (1, 'ann', 30), (2, 'bob', NULL)
    """)
    return client


def test_insert_forms(shop: Client) -> None:
    shop.do("""
    INSERT orders DEFAULT VALUES
    INSERT INTO orders (amount, customer) VALUES (2, 1), (DEFAULT, 2)
    INSERT orders (customer) SELECT id FROM customers WHERE age IS NULL
    ;WITH c AS (SELECT 9 AS a) INSERT orders (amount) SELECT a FROM c
    """)
    assert shop.rows("SELECT id, customer, amount, doubled FROM orders ORDER BY id") == [
        (100, None, 150, 300), (110, 1, 200, 400), (120, 2, 150, 300), (130, 2, 150, 300), (140, None, 900, 1800),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "number", "part"),
    [
        ("INSERT customers VALUES (1, 'x', 1)", 2627, "PRIMARY KEY constraint 'pk_c'. Cannot insert duplicate key in object 'dbo.customers'"),
        ("INSERT customers VALUES (3, 'ANN ', 1)", 2627, "UNIQUE KEY constraint 'u_c'"),
        ("INSERT customers VALUES (3, NULL, 1)", 515, "column 'name', table 'D.dbo.customers'; column does not allow nulls. INSERT fails."),
        ("UPDATE customers SET name = NULL", 515, "UPDATE fails"),
        ("INSERT orders (customer) VALUES (9)", 547, 'FOREIGN KEY constraint "fk_o"'),
        ("INSERT customers VALUES (3, 'much too long', 1)", 2628, "column 'name'. Truncated value: 'much too l'"),
        ("INSERT customers VALUES (3, 'x', 300)", 220, "tinyint"),
        ("INSERT customers VALUES (3, 'x')", 213, ""),
        ("INSERT customers (id) VALUES (3, 'x')", 110, ""),
        ("INSERT customers (id, id) VALUES (3, 3)", 264, ""),
        ("INSERT customers (id, nosuch) VALUES (3, 3)", 207, "nosuch"),
        ("INSERT orders (id, amount) VALUES (1, 1)", 544, "IDENTITY_INSERT is set to OFF"),
        ("INSERT orders (doubled) VALUES (1)", 271, ""),
        ("INSERT orders (v) VALUES (0x01)", 273, ""),
        ("UPDATE orders SET id = 1", 8102, ""),
        ("UPDATE orders SET v = 0x00", 272, ""),
        ("UPDATE sys.tables SET name = 'x'", 259, ""),
        ("INSERT customers SELECT 1, 'x'", 213, ""),
        ("INSERT customers VALUES ('abc', 'x', 1)", 245, ""),
    ],
)  # fmt: skip
def test_refusals(shop: Client, text: str, number: int, part: str) -> None:
    error = shop.run(text).errors[0]
    assert error.number == number
    assert part in error.message
    assert shop.value("SELECT COUNT(*) FROM customers") == 2


def test_referenced_rows_stay(shop: Client) -> None:
    shop.do("INSERT orders (customer) VALUES (1)")
    assert shop.errors("DELETE customers WHERE id = 1") == [547]
    assert shop.errors("UPDATE customers SET id = 9 WHERE id = 1") == [547]
    shop.do("DELETE orders DELETE customers WHERE id = 1")


def test_cascades(client: Client) -> None:
    client.do("""
    CREATE TABLE p (id int PRIMARY KEY)
    CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE)
    CREATE TABLE n (id int PRIMARY KEY, p int REFERENCES p (id) ON DELETE SET NULL)
    INSERT p VALUES (1), (2) INSERT c VALUES (1, 1), (2, 2) INSERT n VALUES (1, 1)
    DELETE p WHERE id = 1
    UPDATE p SET id = 20 WHERE id = 2
    """)
    assert client.rows("SELECT id, p FROM c") == [(2, 20)]
    assert client.rows("SELECT id, p FROM n") == [(1, None)]


def test_a_foreign_key_to_its_own_table_is_judged_at_the_end_of_the_statement(client: Client) -> None:
    client.do(
        "CREATE TABLE tree (id int PRIMARY KEY, parent int REFERENCES tree (id)) INSERT tree VALUES (2, 1), (1, NULL)"
    )
    assert client.errors("INSERT tree VALUES (3, 4)") == [547]
    assert client.errors("DELETE tree WHERE id = 1") == [547]
    client.do("DELETE tree")


def test_one_null_is_allowed_in_a_unique_key(client: Client) -> None:
    client.do(
        "CREATE TABLE u (a int NULL, b int NULL, CONSTRAINT u1 UNIQUE (a, b)) INSERT u VALUES (1, NULL), (NULL, NULL)"
    )
    assert client.errors("INSERT u VALUES (1, NULL)") == [2627]
    assert client.errors("INSERT u VALUES (NULL, NULL)") == [2627]
    client.do("INSERT u VALUES (2, NULL)")


def test_identity(shop: Client) -> None:
    assert shop.errors("BEGIN TRAN INSERT orders DEFAULT VALUES ROLLBACK INSERT orders DEFAULT VALUES") == []
    assert shop.rows("SELECT id FROM orders") == [(110,)]
    assert shop.value("SELECT CAST(SCOPE_IDENTITY() AS int)") == 110
    shop.do("TRUNCATE TABLE orders INSERT orders DEFAULT VALUES")
    assert shop.value("SELECT MAX(id) FROM orders") == 100


def test_a_truncation_that_is_rolled_back_takes_no_identity_values_back(shop: Client) -> None:
    shop.do("INSERT orders DEFAULT VALUES")
    for _ in range(2):
        shop.do("BEGIN TRAN TRUNCATE TABLE orders INSERT orders DEFAULT VALUES ROLLBACK INSERT orders DEFAULT VALUES")
    assert shop.rows("SELECT id FROM orders ORDER BY id") == [(100,), (110,), (120,)]
    shop.do("TRUNCATE TABLE orders")
    shop.do("INSERT orders DEFAULT VALUES")
    assert shop.rows("SELECT id FROM orders") == [(100,)]


def test_row_versions_change_and_never_repeat(shop: Client) -> None:
    shop.do("INSERT orders DEFAULT VALUES INSERT orders DEFAULT VALUES")
    first = [row[0] for row in shop.rows("SELECT v FROM orders ORDER BY id")]
    shop.do("UPDATE orders SET amount = amount")
    second = [row[0] for row in shop.rows("SELECT v FROM orders ORDER BY id")]
    assert len({*first, *second}) == 4
    assert max(first) < min(second)


def test_update_forms(shop: Client) -> None:
    shop.do(
        "UPDATE customers SET age += 1, name = name + 'x' WHERE id = 1 UPDATE dbo.customers SET age = 77 WHERE id = 2"
    )
    assert shop.rows("SELECT name, age FROM customers ORDER BY id") == [("annx", 31), ("bob", 77)]
    shop.do(
        "UPDATE customers SET age = (SELECT MAX(age) FROM customers) WHERE EXISTS (SELECT 1 FROM customers AS x WHERE x.id = customers.id)"
    )
    assert shop.rows("SELECT DISTINCT age FROM customers") == [(77,)]
    assert shop.do("UPDATE customers SET age = DEFAULT WHERE id = 1").counts == [1]
    assert shop.value("SELECT age FROM customers WHERE id = 1") is None


def test_delete_forms(shop: Client) -> None:
    shop.do("INSERT customers VALUES (3, 'c', 1), (4, 'd', 2), (5, 'e', 3)")
    assert shop.do("DELETE FROM customers WHERE id > 3").counts == [2]
    assert shop.do("DELETE customers WHERE id IN (SELECT 2)").counts == [1]


def test_output(shop: Client) -> None:
    assert shop.rows("INSERT orders (amount) OUTPUT inserted.id, inserted.doubled VALUES (3)") == [(100, 600)]
    sink = shop.do("INSERT customers OUTPUT inserted.* VALUES (9, 'z', 9)")
    assert (sink.names, sink.results) == ([["id", "name", "age"]], [[(9, "z", 9)]])


def test_key_updates_are_judged_at_the_end_of_the_statement(client: Client) -> None:
    client.do(
        "CREATE TABLE k (id int PRIMARY KEY, v int) INSERT k VALUES (1, 1), (2, 2), (3, 3) UPDATE k SET id = id + 1"
    )
    assert client.rows("SELECT id, v FROM k ORDER BY id") == [(2, 1), (3, 2), (4, 3)]
    client.do("UPDATE k SET id = CASE id WHEN 2 THEN 3 WHEN 3 THEN 2 ELSE id END")
    assert client.rows("SELECT id, v FROM k ORDER BY id") == [(2, 2), (3, 1), (4, 3)]
    assert client.errors("UPDATE k SET id = 5") == [2627]
    assert client.errors("INSERT k VALUES (2, 0)") == [2627]


def test_a_failed_statement_leaves_nothing(shop: Client) -> None:
    assert shop.errors("INSERT customers SELECT v, CAST(v AS nvarchar(9)), 1 FROM (VALUES (7), (8), (1)) AS t (v)") == [
        2627
    ]
    assert shop.value("SELECT COUNT(*) FROM customers") == 2


def test_temporary_tables(client: Client) -> None:
    client.do("CREATE TABLE #t (id int PRIMARY KEY, v nvarchar(5)) INSERT #t VALUES (1, 'a')")
    assert client.rows("SELECT * FROM #t") == [(1, "a")]
    assert client.errors("INSERT #t VALUES (1, 'b')") == [2627]
    client.do("SELECT id + 1 AS id, v INTO #u FROM #t INSERT #u SELECT * FROM #u")
    assert client.rows("SELECT id FROM tempdb..#u") == [(2,), (2,)]
    client.do("DROP TABLE #t, #u")
    assert client.errors("SELECT * FROM #u") == [208]


def test_temporary_tables_are_private_and_end_with_their_frame(client: Client, connect: Callable[[], Client]) -> None:
    client.do("CREATE TABLE #t (id int)")
    assert connect().errors("SELECT * FROM #t") == [208]
    assert client.errors("EXEC sp_executesql N'CREATE TABLE #own (id int)' SELECT * FROM #own") == [208]


def test_table_variables_survive_a_rollback(client: Client) -> None:
    text = "DECLARE @t TABLE (id int) INSERT @t VALUES (1) BEGIN TRAN INSERT @t VALUES (2) ROLLBACK SELECT id FROM @t"
    assert client.rows(text) == [(1,), (2,)]


@pytest.mark.parametrize(
    "text",
    [
        "MERGE t USING t AS s ON 1 = 0 WHEN MATCHED THEN DELETE;",
        "WITH c AS (SELECT 1 AS a) MERGE t USING c ON 1 = 0 WHEN MATCHED THEN DELETE;",
        "BEGIN TRY SELECT 1 END TRY BEGIN CATCH SELECT 2 END CATCH",
        "WHILE 1 = 1 BREAK",
        "RETURN 1",
        "THROW 50000, 'x', 1",
        "EXEC ('SELECT 1')",
        "{call two}",
        "KILL 51",
        "DBCC CHECKIDENT ('t')",
        "SET IDENTITY_INSERT t ON",
        "CREATE TABLE u (a int CHECK (a > 0))",
        "CREATE VIEW w AS SELECT 1 AS a",
        "ALTER INDEX i ON t REBUILD",
        "SET ROWCOUNT 1 DELETE t",
        "UPDATE t SET @a = 1",
        "UPDATE t SET id.WRITE('x', 0, 1)",
        "DELETE t WHERE CURRENT OF c",
        "UPDATE t SET id = 1 FROM t",
        "DELETE t FROM t",
        "DELETE TOP (5) FROM t",
        "INSERT TOP (5) INTO t SELECT 1",
        "WITH c AS (SELECT 1 AS a) DELETE t",
        "UPDATE t SET id = 1 OUTPUT deleted.id",
        "INSERT t OUTPUT inserted.id INTO @t VALUES (1)",
        "SELECT @a = id FROM t",
    ],
)
def test_what_is_not_supported_says_so(client: Client, text: str) -> None:
    client.do("CREATE TABLE t (id int)")
    assert client.errors(f"DECLARE @a int {text}" if "@a" in text else text) == [40510]


def test_unique_keys_are_judged_when_the_statement_is_done(client: Client) -> None:
    change = "UPDATE k SET id = id + 1"
    client.do("CREATE TABLE k (id int PRIMARY KEY) INSERT k VALUES (1), (2), (3)")
    assert client.errors(change) == []
    assert client.rows("SELECT id FROM k ORDER BY id") == [(2,), (3,), (4,)]
    assert client.errors(change.replace("id + 1", "id * 0")) == [2627]
    assert client.rows("SELECT id FROM k ORDER BY id") == [(2,), (3,), (4,)]
    assert client.errors("INSERT k VALUES (2)") == [2627]
