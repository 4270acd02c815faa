"""Connecting, statements, results, errors, transactions over every client stack."""

from decimal import Decimal

import pytest

from cdc_assets_tests.contract.clients.conftest import Connect
from cdc_assets_tests.contract.clients.stacks import STACKS, Client, Failure, Server


def test_connects_to_the_database(client: Client, database: str) -> None:
    assert client.execute("SELECT DB_NAME(), @@SPID") == [(database, client.execute("SELECT @@SPID")[0][0])]


class _WrongPassword:
    def __init__(self, server: Server) -> None:
        self.host, self.port, self.user, self.password = server.host, server.port, server.user, "wr0ng"
        self._right, self._text = server.password, server.connection_string

    def connection_string(self, database: str = "", driver: str = "odbc18") -> str:
        return self._text(database, driver).replace(self._right, self.password)


def test_a_wrong_password_is_18456(stack: str, server: Server, database: str) -> None:
    with pytest.raises(Exception, match=r"Login failed for user|18456") as raised:
        STACKS[stack](_WrongPassword(server), database)
    assert "wr0ng" not in str(raised.value)


@pytest.mark.parametrize("name", ["odbc18", "freetds", "mssql-python"])
def test_an_unknown_database_is_refused(name: str, server: Server) -> None:
    """The other two take 4060 for transient and try again until their login times out."""
    with pytest.raises(Exception, match=r"Cannot open database|4060"):
        STACKS[name](server, "no_such_database")


def test_parameters(client: Client) -> None:
    """The same text many times: the drivers go from direct execution over preparation to handles."""
    for number in range(6):
        assert client.execute("SELECT ? + 1 AS a, CAST(? AS nvarchar(40)) AS b", number, f"№ {number}") == [
            (number + 1, f"№ {number}")
        ]


def test_prepared_statement_with_changing_types(client: Client) -> None:
    for value in (1, 2**40, Decimal("12.50"), 7):
        assert client.execute("SELECT CAST(? AS decimal(20, 2))", value) == [(Decimal(value),)]


def test_a_null_parameter(client: Client, table: str) -> None:
    client.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, n int, s nvarchar(10))")
    client.execute(f"INSERT {table} VALUES (?, ?, ?)", 1, None, None)
    assert client.execute(f"SELECT n, s FROM {table} WHERE n IS NULL") == [(None, None)]


def test_the_first_rows_of_several_results(client: Client) -> None:
    assert client.execute("SELECT 1 AS a; SELECT 2 AS b") == [(1,)]
    assert client.execute("SELECT 3 AS a") == [(3,)]


def test_rows_behind_a_count(client: Client, table: str) -> None:
    client.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY)")
    assert client.execute(
        f"SET NOCOUNT ON; INSERT {table} VALUES (1), (2); SELECT COUNT(*) FROM {table}; SET NOCOUNT OFF"
    ) == [(2,)]
    assert client.execute(f"INSERT {table} VALUES (3); SELECT COUNT(*) FROM {table}") == [(3,)]


@pytest.mark.parametrize(
    ("statement", "number", "state"),
    [
        ("SELECT nothing FROM {table}", 207, "42S22"),
        ("SELECT * FROM dbo.nothing", 208, "42S02"),
        ("INSERT {table} VALUES (1, 'twice')", 2627, "23000"),
        ("INSERT {table} VALUES (2, NULL)", 515, "23000"),
        ("SELECT 1 / 0", 8134, "22012"),
        ("SELECT @nobody", 137, "42000"),
        ("RAISERROR('own %d', 16, 1, 7)", 50000, "42000"),
        ("EXEC dbo.nothing", 2812, "42000"),
    ],
)
def test_errors_reach_the_client(
    client: Client, stack: str, table: str, statement: str, number: int, state: str
) -> None:
    client.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, s varchar(10) NOT NULL)")
    client.execute(f"INSERT {table} VALUES (1, 'once')")
    with pytest.raises(Failure) as raised:
        client.execute(statement.format(table=table))
    if stack == "odbc18":
        assert (raised.value.number, raised.value.state) == (number, state)
    elif stack != "mssql-python":  # it keeps the number to itself
        assert raised.value.number == number
    assert client.execute("SELECT 1") == [(1,)]


def test_commit_and_rollback(connect: Connect, table: str) -> None:
    writer, reader = connect(autocommit=False), connect()
    writer.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY)")
    writer.commit()
    writer.execute(f"INSERT {table} VALUES (?)", 1)
    writer.rollback()
    writer.execute(f"INSERT {table} VALUES (?)", 2)
    writer.commit()
    assert reader.execute(f"SELECT id FROM {table}") == [(2,)]
    assert writer.execute("SELECT @@TRANCOUNT")[0][0] in (0, 1)


def test_a_failed_statement_leaves_the_transaction_open(connect: Connect, table: str) -> None:
    writer = connect(autocommit=False)
    writer.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY)")
    writer.commit()
    writer.execute(f"INSERT {table} VALUES (1)")
    with pytest.raises(Failure):
        writer.execute(f"INSERT {table} VALUES (2), (1)")
    writer.execute(f"INSERT {table} VALUES (3)")
    writer.commit()
    assert writer.execute(f"SELECT id FROM {table} ORDER BY id") == [(1,), (3,)]
    writer.commit()


def test_transactions_by_text(client: Client, table: str) -> None:
    client.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY)")
    client.execute("BEGIN TRANSACTION")
    client.execute(f"INSERT {table} VALUES (1)")
    client.execute("SAVE TRANSACTION here")
    client.execute(f"INSERT {table} VALUES (2)")
    client.execute("ROLLBACK TRANSACTION here")
    client.execute("COMMIT TRANSACTION")
    assert client.execute(f"SELECT id FROM {table}") == [(1,)]


def test_an_uncommitted_transaction_ends_with_its_connection(connect: Connect, table: str) -> None:
    reader, writer = connect(), connect(autocommit=False)
    reader.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY)")
    writer.execute(f"INSERT {table} VALUES (1)")
    writer.rollback()
    writer.execute(f"INSERT {table} VALUES (2)")
    writer.close()
    for _ in range(50):
        if reader.execute(f"SELECT COUNT(*) FROM {table} WITH (READPAST)") == [(0,)]:
            break
    assert reader.execute(f"SELECT id FROM {table}") == []


def test_large_values_both_ways(client: Client, table: str) -> None:
    text, data = "ü" * 10_000_000, bytes(range(250)) * 80_000
    client.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, t nvarchar(max), b varbinary(max))")
    client.execute(f"INSERT {table} VALUES (?, ?, ?)", 1, text, data)
    assert client.execute(f"SELECT LEN(t), DATALENGTH(b) FROM {table}") == [(10_000_000, 20_000_000)]
    (found_text, found_data) = client.execute(f"SELECT t, b FROM {table}")[0]
    assert found_text == text
    assert found_data == data


def test_many_rows(client: Client, table: str) -> None:
    client.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, s nvarchar(20))")
    rows = ", ".join(f"({number}, N'n{number}')" for number in range(1000))
    client.execute(f"INSERT {table} VALUES {rows}")
    assert client.execute(f"SELECT id, s FROM {table} ORDER BY id") == [(n, f"n{n}") for n in range(1000)]
