"""What a server of MySQL or MariaDB leaves out of its binlog, or writes into it so that the connector passes it over.

Whatever does not come by the binlog is never sent, not even later, and the binlog ends where it was read to all the same.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.databases.session import DriverSession
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import PreflightError

_REPLICA = (
    "SHOW REPLICA STATUS",
    "SHOW ALL SLAVES STATUS",
    "SHOW SLAVE STATUS",
    "SHOW GLOBAL STATUS WHERE variable_name = 'Slaves_running' AND value <> '0'",
)
"""Queries that have rows where a server is a replica: of MySQL, of MariaDB, of old servers, and of MariaDB without a further right."""
_RELAYS = ("log_replica_updates", "log_slave_updates")
"""The same, since MySQL 8.0.26 and before."""
_SETTINGS = (*_RELAYS, "log_bin_compress", "binlog_row_value_options")
"""Those that a server does not have are none of its rows."""
_JSON = (
    "SELECT DISTINCT table_schema AS table_schema, table_name AS table_name FROM information_schema.columns "
    "WHERE data_type = 'json'"
)
_AGAIN = "and then request an incremental snapshot of the table, because"

_RELAYS_NOTHING = (
    "the server is a replica that keeps the changes of its source out of its own binlog (log_replica_updates=OFF), so "
    "none of them comes. Next: start the server with log-replica-updates (log-slave-updates before MySQL 8.0.26, and of "
    f"MariaDB), {_AGAIN} changes of before are not in the binlog; or "
    "capture from its source; if it receives nothing any more, end that (RESET REPLICA ALL)"
)
_COMPRESSED = (
    "the server compresses its binlog (log_bin_compress=ON), and the connector passes over each compressed change. Next: SET GLOBAL "
    f"log_bin_compress = OFF, and leave it out of the server's options, {_AGAIN} what was passed over is not read later"
)
_PARTIAL = (
    "it has a column of JSON, and the server writes parts of such values (binlog_row_value_options=PARTIAL_JSON), so the connector "
    "passes over its updates. Next: SET PERSIST binlog_row_value_options = '', let all sessions connect again, "
    f"{_AGAIN} what was passed over is not read later; or leave it out (table.exclude.list)"
)


def _names(found: object) -> frozenset[str]:
    """Names in a list of the server's."""
    return frozenset(name.strip() for name in str(found or "").split(",") if name.strip())


class Binlog:
    """The binlog of a server.

    Args:
        session: queries the server.
    """

    def __init__(self, config: EngineConfig, session: DriverSession) -> None:
        self._config, self._session = config, session

    def status(self) -> Mapping[str, Any]:
        """Where it ends, and which databases are to be in it.

        Raises:
            CdcError: the server cannot be queried, or writes no binlog.
        """
        found = self._session.one("SHOW BINARY LOG STATUS" if self._renamed() else "SHOW MASTER STATUS")
        if not found:
            raise PreflightError("The server writes no binlog (log_bin is OFF). Next: start it with log-bin=bin.")
        return found

    def _renamed(self) -> bool:
        """MySQL 8.4 has no `SHOW MASTER STATUS` any more; MariaDB keeps it."""
        text = str(self._session.one("SELECT VERSION() AS version")["version"])
        found = re.match(r"(\d+)\.(\d+)", text)
        return found is not None and "mariadb" not in text.lower() and (int(found[1]), int(found[2])) >= (8, 2)

    def unsent(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        """Those of which changes do not come, with the reason and the next step.

        Raises:
            CdcError: the server cannot be queried, or writes no binlog.
        """
        if not tables or not self._config.streams:
            return {}
        settings = self._settings()
        if any(settings.get(name) == "OFF" for name in _RELAYS) and self._is_replica():
            return dict.fromkeys(tables, _RELAYS_NOTHING)
        compressed = dict.fromkeys(tables, _COMPRESSED) if settings.get("log_bin_compress") == "ON" else {}
        is_partial = "PARTIAL_JSON" in settings.get("binlog_row_value_options", "")
        return {**compressed, **(self._with_json(tables) if is_partial else {}), **self._ignored(tables)}

    def _settings(self) -> Mapping[str, str]:
        names = ", ".join(f"'{name}'" for name in _SETTINGS)
        found = self._session.rows(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})")
        return {str(row["variable_name"]): str(row["value"]).upper() for row in found}

    def _is_replica(self) -> bool:
        return any(self._session.perhaps(query) for query in _REPLICA)

    def _with_json(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        found = {TableId(row["table_schema"], "", row["table_name"]) for row in self._session.rows(_JSON)}
        return {table: _PARTIAL for table in tables if table in found}

    def _ignored(self, tables: Sequence[TableId]) -> Mapping[TableId, str]:
        status = self.status()
        written, ignored = (_names(status.get(f"binlog_{what}_db")) for what in ("do", "ignore"))
        return {
            table: f"the server leaves {table.database} out of its binlog, so none of its changes comes. Next: start the server without "
            "binlog-do-db and binlog-ignore-db for it, and then request an incremental snapshot of the table, because changes of before are "
            "not in the binlog; or leave it out (table.exclude.list)"
            for table in tables
            if (written and table.database not in written) or table.database in ignored
        }
