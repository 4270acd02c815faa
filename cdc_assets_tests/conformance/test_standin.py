"""The real connector snapshots and streams from the stand-in (issue: the stand-in's acceptance test)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets_tests.conformance.debezium import Debezium, Record, data_records, operations, payload
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

CREATE = """
CREATE TABLE dbo.customers (id int NOT NULL PRIMARY KEY, name nvarchar(50) NOT NULL, created datetime2(7) NULL, amount decimal(10,2) NULL)
"""
ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'customers', @role_name = NULL"


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=("TestDB",)) as server:
        server.execute(CREATE, database="TestDB")
        server.execute(ENABLE, database="TestDB")
        yield server


def engine(server: StandIn, work: Path, **extra: str) -> Debezium:
    return Debezium(
        work,
        **{
            "database.hostname": server.host,
            "database.port": str(server.port),
            "database.user": server.user,
            "database.password": server.password,
            "database.names": "TestDB",
            "topic.prefix": "shop",
            "table.include.list": "dbo.customers",
            **extra,
        },
    )


def customers(records: list[Record]) -> list[Record]:
    return data_records(records, "customers")


@pytest.mark.parametrize("mode", ["direct", "function"])
def test_snapshot_then_every_kind_of_change(server: StandIn, tmp_path: Path, mode: str) -> None:
    for number in (1, 2, 3):
        server.execute(
            "INSERT dbo.customers VALUES (?, ?, '2026-01-02 03:04:05.1234567', 10.50)",
            number,
            f"n{number}",
            database="TestDB",
        )
    with engine(server, tmp_path, **{"data.query.mode": mode}) as debezium:
        debezium.wait(lambda records: len(customers(records)) == 3)
        server.execute("INSERT dbo.customers (id, name) VALUES (4, N'Zoë')", database="TestDB")
        server.execute("UPDATE dbo.customers SET amount = 11 WHERE id = 1", database="TestDB")
        server.execute("DELETE dbo.customers WHERE id = 2", database="TestDB")
        server.execute("UPDATE dbo.customers SET id = 30 WHERE id = 3", database="TestDB")
        records = customers(debezium.wait(lambda records: len(customers(records)) == 10))
    assert operations(records) == ["r", "r", "r", "c", "u", "d", "tombstone", "d", "tombstone", "c"]
    assert payload(records[0]["value"])["after"] == {
        "id": 1,
        "name": "n1",
        "created": 1767323045123456700,
        "amount": "BBo=",
    }
    assert payload(records[3]["value"])["after"]["name"] == "Zoë"
    assert [payload(record["key"]) for record in records[7:]] == [{"id": 3}, {"id": 3}, {"id": 30}]


def test_second_capture_instance_takes_over_without_loss_or_repeat(server: StandIn, tmp_path: Path) -> None:
    with engine(server, tmp_path, **{"snapshot.mode": "no_data"}) as debezium:
        debezium.wait(lambda records: any(record["topic"] == "shop" for record in records))
        server.execute("INSERT dbo.customers (id, name) VALUES (1, N'a')", database="TestDB")
        debezium.wait(lambda records: len(customers(records)) == 1)
        server.execute("ALTER TABLE dbo.customers ADD email varchar(30) NULL", database="TestDB")
        server.execute("INSERT dbo.customers (id, name) VALUES (2, N'b')", database="TestDB")
        server.execute(f"{ENABLE}, @capture_instance = N'dbo_customers_v2'", database="TestDB")
        server.execute("INSERT dbo.customers (id, name, email) VALUES (3, N'c', 'c@x')", database="TestDB")
        records = debezium.wait(lambda records: len(customers(records)) == 3)
    afters = [payload(record["value"])["after"] for record in customers(records)]
    assert [after["id"] for after in afters] == [1, 2, 3]
    assert [("email" in after) for after in afters] == [False, False, True]
    changes = [payload(record["value"])["tableChanges"][0]["type"] for record in records if record["topic"] == "shop"]
    assert changes[-1] == "ALTER"


def test_a_restarted_connector_continues_where_it_stopped(server: StandIn, tmp_path: Path) -> None:
    with engine(server, tmp_path) as debezium:
        server.execute("INSERT dbo.customers (id, name) VALUES (1, N'a')", database="TestDB")
        debezium.wait(lambda records: len(customers(records)) == 1)
    server.execute("INSERT dbo.customers (id, name) VALUES (2, N'b')", database="TestDB")
    with engine(server, tmp_path) as debezium:
        records = debezium.wait(lambda records: len(customers(records)) >= 2)
    assert [payload(record["value"])["after"]["id"] for record in customers(records)] == [1, 2]
