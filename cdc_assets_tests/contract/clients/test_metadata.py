"""The drivers' own metadata calls."""

import pyodbc
import pytest
import sqlalchemy

from cdc_assets_tests.contract.clients.stacks import Client, Server, jdbc

TABLE = """
CREATE TABLE {table} (id int IDENTITY(1, 1) NOT NULL, code varchar(10) NOT NULL, price decimal(10, 2) NULL, note nvarchar(max) NULL,
CONSTRAINT pk_{name} PRIMARY KEY (id, code))
"""


@pytest.fixture
def name(odbc: Client, table: str) -> str:
    """A table's name without schema; the table is there."""
    bare = table.removeprefix("dbo.")
    odbc.execute(TABLE.format(table=table, name=bare))
    return bare


def test_odbc_metadata(odbc: Client, name: str) -> None:
    cursor = odbc.raw.cursor()
    assert [row.table_name for row in cursor.tables(table=name, schema="dbo", tableType="TABLE")] == [name]
    columns = [(row.column_name, row.type_name, row.nullable) for row in cursor.columns(table=name, schema="dbo")]
    assert columns == [
        ("id", "int identity", 0),
        ("code", "varchar", 0),
        ("price", "decimal", 1),
        ("note", "nvarchar", 1),
    ]
    keys = [(row.column_name, row.key_seq) for row in cursor.primaryKeys(table=name, schema="dbo")]
    assert keys == [("id", 1), ("code", 2)]
    indexed = {row.column_name for row in cursor.statistics(name, schema="dbo", unique=True) if row.column_name}
    assert indexed == {"id", "code"}


def test_jdbc_metadata(server: Server, database: str, name: str) -> None:
    client = jdbc(server, database)
    metadata = client.raw.getMetaData()
    assert str(metadata.getDatabaseProductName()) == "Microsoft SQL Server"
    columns = metadata.getColumns(database, "dbo", name, "%")
    found = []
    while columns.next():
        found.append((str(columns.getString("COLUMN_NAME")), int(columns.getInt("DATA_TYPE"))))
    assert found == [("id", 4), ("code", 12), ("price", 3), ("note", -9)]
    keys = metadata.getPrimaryKeys(database, "dbo", name)
    names = []
    while keys.next():
        names.append(str(keys.getString("COLUMN_NAME")))
    assert sorted(names) == ["code", "id"]
    client.close()


def test_sqlalchemy_reflects_tables_and_keys(server: Server, database: str, odbc: Client, name: str) -> None:
    odbc.execute(f"CREATE TABLE dbo.{name}_child (n int NULL, parent int NULL, code varchar(10) NULL, CONSTRAINT fk_{name} FOREIGN KEY (parent, code) REFERENCES dbo.{name} (id, code) ON DELETE CASCADE)")  # fmt: skip
    engine = sqlalchemy.create_engine(
        "mssql+pyodbc://", creator=lambda: pyodbc.connect(server.connection_string(database))
    )
    try:
        found = sqlalchemy.inspect(engine)
        assert found.get_pk_constraint(name)["constrained_columns"] == ["id", "code"]
        assert [str(column["type"]).split(" ")[0] for column in found.get_columns(name)] == [
            "INTEGER",
            "VARCHAR(10)",
            "DECIMAL(10,",
            "NVARCHAR",
        ]
        (key,) = found.get_foreign_keys(f"{name}_child")
        assert (key["constrained_columns"], key["referred_table"], key["referred_columns"], key["options"]) == (
            ["parent", "code"],
            name,
            ["id", "code"],
            {"ondelete": "CASCADE"},
        )
        with engine.connect() as connection:
            assert connection.get_isolation_level() == "READ COMMITTED"
    finally:
        engine.dispose()
        odbc.execute(f"DROP TABLE dbo.{name}_child")
