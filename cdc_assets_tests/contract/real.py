"""A real SQL Server behind the same handle as the stand-in, as far as tests without control of the server need it."""

import re
import time
from typing import Any

import pyodbc

from cdc_assets.adapters.sqlserver.bulk_sessions import POOL
from mssql_standin import drivers

_IN_USE, _LEAVING_S = "(3702)", 10.0
"""Error of a DROP DATABASE while sessions are in it, and how long those that are closed may take to be gone."""


class RealServer:
    """The server of an ODBC connection string with keywords Server, UID and PWD."""

    def __init__(self, connection_string: str) -> None:
        given = {
            name.strip().casefold(): value.strip().strip("{}")
            for name, _, value in (part.partition("=") for part in connection_string.split(";"))
        }
        found = re.fullmatch(r"(?:tcp:)?([^,\\]+)(?:,(\d+))?", given["server"])
        assert found, f"Server={given['server']}: host or host,port is expected"
        self.host, self.port = found[1], int(found[2] or 1433)
        self.user, self.password = given["uid"], given["pwd"]
        self.encrypt = given.get("encrypt", "yes")

    def connection_string(self, database: str = "", driver: str = "odbc18") -> str:
        """For pyodbc."""
        return drivers.connection_string(
            driver, self.host, self.port, self.user, self.password, database, self.encrypt, None
        )

    def execute(self, statement: str, *parameters: Any, database: str = "master") -> list[Any]:
        """Run a statement; returns the rows of its first result set."""
        connection = pyodbc.connect(self.connection_string(database), autocommit=True)
        try:
            cursor = connection.execute(statement, *parameters)
            return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def drop(self, database: str) -> None:
        """Drop a database, which only pooled connections of this process may still be in.

        Raises:
            pyodbc.Error: somebody else is in it, so a connection was leaked.
        """
        POOL.clear()
        deadline = time.monotonic() + _LEAVING_S
        while True:
            try:
                self.execute(f"DROP DATABASE [{database}]")
            except pyodbc.Error as error:
                if _IN_USE not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return
