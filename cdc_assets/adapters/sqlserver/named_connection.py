"""A connection of mssql-python with a chosen application name. Read at mssql-python 1.16.0.

| name | why there is no public way |
|---|---|
| `Connection._construct_connection_string` | makes the text that goes to the ODBC driver, with an application name of its own; a connection string that holds another one is refused. By that name people find the sessions in `sys.dm_exec_sessions` |
"""

from typing import Any, Final

import mssql_python

from cdc_assets.adapters.sqlserver.driver import connection_string

_OWN_NAME: Final = "APP=MSSQL-Python"


class NamedConnection(mssql_python.Connection):
    """A connection with a chosen application name, which mssql-python does not support."""

    def __init__(self, text: str, application: str, **options: Any) -> None:
        self._application = application  # first: the base class reads its connection string at once
        super().__init__(text, **options)

    def _construct_connection_string(self, connection_str: str = "", **options: Any) -> tuple[str, dict[str, str]]:
        text, pairs = super()._construct_connection_string(connection_str, **options)
        return text.replace(_OWN_NAME, connection_string({"APP": self._application}), 1), pairs | {
            "APP": self._application
        }
