"""Descriptions of tables and columns, as extended properties, through every driver."""

import pytest

from cdc_assets_tests.contract.clients.stacks import Client, Failure
from cdc_assets_tests.descriptions import call

_SHOWN = (
    "SELECT minor_id, CONVERT(nvarchar(3750), value) FROM sys.extended_properties "
    "WHERE class = 1 AND name = N'MS_Description' AND major_id = OBJECT_ID(?) ORDER BY minor_id"
)


def test_descriptions_are_added_changed_and_dropped(client: Client, table: str) -> None:
    client.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, price decimal(10, 2) NULL)")
    assert client.execute(_SHOWN, table) == []
    client.execute(call(table, "add", "What is sold"))
    client.execute(call(table, "add", "Net, in €", "price"))
    client.execute(call(table, "add", "another", "price", name="unit"))
    assert client.execute(_SHOWN, table) == [(0, "What is sold"), (2, "Net, in €")]
    client.execute(call(table, "update", "Gross", "price"))
    client.execute(call(table, "drop"))
    assert client.execute(_SHOWN, table) == [(2, "Gross")]


def test_description_follows_its_column(odbc: Client, table: str) -> None:
    odbc.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, price int NULL, gone int NULL)")
    odbc.execute(call(table, "add", "Net", "price"))
    odbc.execute(call(table, "add", "Old", "gone"))
    odbc.execute(f"EXEC sp_rename '{table}.price', 'net_price', 'COLUMN'")
    odbc.execute(f"ALTER TABLE {table} DROP COLUMN gone")
    odbc.execute(f"ALTER TABLE {table} ADD gone int NULL")
    assert odbc.execute(_SHOWN, table) == [(2, "Net")]


def test_descriptions_are_as_transactional_as_tables(odbc: Client, table: str) -> None:
    odbc.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY)")
    odbc.execute(f"BEGIN TRANSACTION; {call(table, 'add', 'never')}; ROLLBACK")
    assert odbc.execute(_SHOWN, table) == []


@pytest.mark.parametrize(
    ("verb", "column", "number"),
    [("add", "id", 15233), ("update", "", 15217), ("drop", "", 15217), ("add", "none", 15135)],
)
def test_mistakes_have_their_numbers(odbc: Client, table: str, verb: str, column: str, number: int) -> None:
    odbc.execute(f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY)")
    odbc.execute(call(table, "add", "key", "id"))
    with pytest.raises(Failure) as found:
        odbc.execute(call(table, verb, "text", column))
    assert found.value.number == number
