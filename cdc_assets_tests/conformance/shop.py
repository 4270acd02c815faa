"""Tables that change on command, for both connectors."""

import json

import pyodbc

from mssql_standin.control import StandIn

ROWS = 60
TABLES = {
    "orders": "id int PRIMARY KEY, version int NOT NULL, note nvarchar(40) NULL",
    "lines": "code varchar(10) NOT NULL, no int NOT NULL, version int, PRIMARY KEY (code, no)",
    "cdc_signal": "id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048) NULL",
}


class Shop:
    """Tables that change on command."""

    def __init__(self, server: StandIn) -> None:
        self._connection = pyodbc.connect(server.connection_string("TestDB"), autocommit=True)
        for name, columns in TABLES.items():
            self.run(f"CREATE TABLE dbo.{name} ({columns})")
            self.run(
                f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{name}', @role_name = NULL"
            )
        for number in range(ROWS):
            self.run(f"INSERT INTO dbo.orders VALUES ({number}, 1, N'é {number}')")
            self.run(f"INSERT INTO dbo.lines VALUES ('{'aBcD'[number % 4]}', {number}, 1)")

    def run(self, statement: str) -> None:
        self._connection.execute(statement)

    def change(self, version: int) -> None:
        """Updates, deletes and inserts of both tables."""
        for number in range(0, ROWS, 7):
            self.run(f"UPDATE dbo.orders SET version = {version} WHERE id = {number + version}")
            self.run(f"UPDATE dbo.lines SET version = {version} WHERE no = {number + version}")
        self.run(f"DELETE FROM dbo.orders WHERE id = {version}")
        self.run(f"INSERT INTO dbo.orders VALUES ({1000 + version}, {version}, NULL)")

    def ask(self, own_id: str, **data: object) -> None:
        text = json.dumps({"type": "blocking", **data}).replace("'", "''")
        self.run(f"INSERT INTO dbo.cdc_signal VALUES ('{own_id}', 'execute-snapshot', '{text}')")
