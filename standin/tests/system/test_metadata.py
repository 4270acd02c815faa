"""Catalogue procedures as drivers call them."""

from typing import Any

import pytest

from mssql_standin.contract import Parameter
from mssql_standin.sqltypes import INT, NVARCHAR_MAX, Value
from tests.capture.client import Client


def call(client: Client, procedure: str, *values: Value) -> list[dict[str, Any]]:
    parameters = [Parameter("", INT if isinstance(value, int) else NVARCHAR_MAX, value) for value in values]
    rows = client.call(procedure, *parameters)
    return [dict(zip(client.names, row, strict=True)) for row in rows]


@pytest.mark.parametrize(
    ("kinds", "count"),
    [(None, 3), ("'''TABLE'''", 3), ("'''VIEW'',''MATERIALIZED VIEW'',''TABLE'''", 3), ("'VIEW'", 0)],
)
def test_tables_by_the_type_texts_that_drivers_send(client: Client, kinds: str | None, count: int) -> None:
    found = call(client, "sp_tables", "%", None, "shop", kinds)
    assert len(found) == count
    assert (
        list(found[0]) == ["TABLE_QUALIFIER", "TABLE_OWNER", "TABLE_NAME", "TABLE_TYPE", "REMARKS"] if found else True
    )


def test_enumerations_of_sp_tables(client: Client) -> None:
    assert "shop" in [row["TABLE_QUALIFIER"] for row in call(client, "sp_tables", "", "", "%")]
    assert "dbo" in [row["TABLE_OWNER"] for row in call(client, "sp_tables", "", "%", "")]
    assert [row["TABLE_TYPE"] for row in call(client, "sp_tables", "", "", "", "%")] == [
        "SYSTEM TABLE",
        "TABLE",
        "VIEW",
    ]


def test_another_database_as_qualifier_is_15250(client: Client) -> None:
    assert client.number("EXEC sp_tables '%', NULL, 'other'") == 15250


def test_columns_in_the_form_that_jdbc_reads_by_position(client: Client) -> None:
    found = call(client, "sp_columns_100", "customers", "dbo", "shop", "%", 2, 3)
    assert len(found[0]) == 29
    assert [
        (row["COLUMN_NAME"], row["DATA_TYPE"], row["TYPE_NAME"], row["PRECISION"], row["SCALE"], row["NULLABLE"])
        for row in found
    ] == [
        ("id", 4, "int identity", 10, 0, 0),
        ("code", 12, "varchar", 10, None, 0),
        ("name", -9, "nvarchar", 50, None, 1),
        ("credit", 3, "decimal", 12, 2, 1),
        ("twice", 3, "decimal", found[4]["PRECISION"], 2, 1),
        ("notes", -9, "nvarchar", 1073741823, None, 1),
        ("seen", 93, "datetime2", 27, 7, 1),
        ("version", -2, "timestamp", 8, None, 0),
    ]
    assert found[2]["COLUMN_DEF"] == "(N'new')"
    assert [row["SS_IS_IDENTITY"] for row in found] == [1, 0, 0, 0, 0, 0, 0, 0]
    assert [row["SS_IS_COMPUTED"] for row in found] == [0, 0, 0, 0, 1, 0, 0, 0]
    assert [row["ORDINAL_POSITION"] for row in found] == list(range(1, 9))


def test_an_odbc_2_caller_gets_the_old_codes(client: Client) -> None:
    found = call(client, "sp_columns_100", "customers", "dbo", "shop", "seen", 0, 2)
    assert found[0]["DATA_TYPE"] == 11


@pytest.mark.parametrize(
    ("pattern", "names"),
    [("a%", ["a_b", "ab"]), ("a_b", ["a_b"]), (r"a\_b", ["a_b"]), ("a[_]b", ["a_b"]), ("AB", ["ab"]), ("[^a]%", [])],
)
def test_name_patterns(client: Client, pattern: str, names: list[str]) -> None:
    assert [row["COLUMN_NAME"] for row in call(client, "sp_columns_100", "heap", "dbo", None, pattern)] == names


def test_primary_keys_in_key_order(client: Client) -> None:
    found = call(client, "sp_pkeys", "orders", "dbo", "shop")
    assert [(row["COLUMN_NAME"], row["KEY_SEQ"], row["PK_NAME"]) for row in found] == [
        ("id", 1, "PK_orders"),
        ("line", 2, "PK_orders"),
    ]
    assert call(client, "sp_pkeys", "heap", "dbo", "shop") == []


def test_statistics_begin_with_a_row_of_type_0(client: Client) -> None:
    found = call(client, "sp_statistics_100", "orders", "dbo", "shop", "%", "N", "Q")
    assert [
        (row["TYPE"], row["INDEX_NAME"], row["SEQ_IN_INDEX"], row["COLUMN_NAME"], row["COLLATION"]) for row in found
    ] == [
        (0, None, None, None, None),
        (1, "PK_orders", 1, "id", "A"),
        (1, "PK_orders", 2, "line", "A"),
        (3, "IX_customer", 1, "customer", "D"),
    ]
    assert [row["INDEX_NAME"] for row in call(client, "sp_statistics_100", "customers", "dbo", "shop", "%", "Y", "Q")] == [
        None, "PK_customers", "UQ_code",
    ]  # fmt: skip


@pytest.mark.parametrize("procedure", ["sp_fkeys 'customers'", "sp_special_columns_100 'orders'", "sp_databases"])
def test_procedures_that_are_left_out_are_refused_by_name(client: Client, procedure: str) -> None:
    assert client.number(f"EXEC {procedure}") == 40510


@pytest.mark.parametrize(
    ("code", "names"),
    [
        (12, ["varchar"]),
        (-9, ["nvarchar", "sysname"]),
        (-3, ["varbinary"]),
        (93, ["datetime2", "datetime", "smalldatetime"]),
    ],
)
def test_datatype_info_as_odbc_asks_at_connect(client: Client, code: int, names: list[str]) -> None:
    found = call(client, "sp_datatype_info_100", code, 3)
    assert sorted(row["TYPE_NAME"] for row in found) == sorted(names)
    assert len(found[0]) == 20


def test_all_datatypes_have_a_code(client: Client) -> None:
    found = call(client, "sp_datatype_info_100", 0, 3)
    assert len(found) == 31
    assert [row["DATA_TYPE"] for row in found] == sorted(row["DATA_TYPE"] for row in found)


JDBC_COLUMNS = """DECLARE @mssqljdbc_temp_sp_columns_result TABLE(TABLE_QUALIFIER SYSNAME, TABLE_OWNER SYSNAME, TABLE_NAME SYSNAME, COLUMN_NAME SYSNAME, DATA_TYPE SMALLINT, TYPE_NAME SYSNAME, PRECISION INT, LENGTH INT, SCALE SMALLINT, RADIX SMALLINT, NULLABLE SMALLINT, REMARKS VARCHAR(254), COLUMN_DEF NVARCHAR(4000), SQL_DATA_TYPE SMALLINT, SQL_DATETIME_SUB SMALLINT, CHAR_OCTET_LENGTH INT, ORDINAL_POSITION INT, IS_NULLABLE VARCHAR(254), SS_IS_SPARSE SMALLINT, SS_IS_COLUMN_SET SMALLINT, SS_IS_COMPUTED SMALLINT, SS_IS_IDENTITY SMALLINT, SS_UDT_CATALOG_NAME NVARCHAR(128), SS_UDT_SCHEMA_NAME NVARCHAR(128), SS_UDT_ASSEMBLY_TYPE_NAME NVARCHAR(max), SS_XML_SCHEMACOLLECTION_CATALOG_NAME NVARCHAR(128), SS_XML_SCHEMACOLLECTION_SCHEMA_NAME NVARCHAR(128), SS_XML_SCHEMACOLLECTION_NAME NVARCHAR(128), SS_DATA_TYPE TINYINT);
INSERT INTO @mssqljdbc_temp_sp_columns_result EXEC sp_columns_100 N'customers', N'dbo', N'shop', N'%', 2, 3;
SELECT TABLE_QUALIFIER AS TABLE_CAT, COLUMN_NAME, DATA_TYPE, CASE WHEN SS_IS_IDENTITY = 1 THEN 'YES' ELSE 'NO' END AS IS_AUTOINCREMENT FROM @mssqljdbc_temp_sp_columns_result ORDER BY TABLE_CAT, ORDINAL_POSITION"""


def test_the_batch_by_which_jdbc_reads_columns(client: Client) -> None:
    rows = client.run(JDBC_COLUMNS)
    assert rows[:2] == [("shop", "id", 4, "YES"), ("shop", "code", 12, "NO")]
    assert len(rows) == 8
