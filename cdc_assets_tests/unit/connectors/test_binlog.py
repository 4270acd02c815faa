"""What a server's binlog lacks, from what the server answers."""

from collections.abc import Mapping
from typing import Any

import pytest

from cdc_assets.config.engine import engine_config
from cdc_assets.connectors.databases.binlog import Binlog
from cdc_assets.connectors.databases.session import DriverSession
from cdc_assets.core.identifiers import TableId

LINES, NOTES = TableId("shop", "", "lines"), TableId("shop", "", "notes")


class Server:
    """Answers each statement by what it begins with, or nothing; itself its connection and cursor."""

    def __init__(self, **variables: str) -> None:
        found = [{"variable_name": name, "value": value} for name, value in variables.items()]
        self._answers: Mapping[str, list[dict[str, Any]]] = {
            "SHOW GLOBAL VARIABLES": found,
            "SELECT VERSION()": [{"version": "8.4.1"}],
            "SHOW BINARY LOG STATUS": [{"File": "bin.000001", "Position": 4}],
            "SELECT DISTINCT": [{"TABLE_SCHEMA": "shop", "TABLE_NAME": "notes"}],
        }

    def cursor(self) -> "Server":
        return self

    def execute(self, statement: str) -> None:
        self._rows = next((rows for text, rows in self._answers.items() if statement.startswith(text)), [])
        self.description = [(name,) for name in (self._rows[0] if self._rows else {})]

    def fetchall(self) -> list[list[Any]]:
        return [list(row.values()) for row in self._rows]

    def close(self) -> None:
        pass


def unsent(server: Server, **more: str) -> Mapping[TableId, str]:
    given = {"connector.class": "io.debezium.connector.mysql.MySqlConnector", "topic.prefix": "shop", "lake.path": "x"}
    config = engine_config(given | {name.replace("_", "."): value for name, value in more.items()})
    session = DriverSession(config, lambda: server, ValueError, refused=lambda _: False, lost=lambda _: False)
    return Binlog(config, session).unsent([LINES, NOTES])


@pytest.mark.parametrize("value", ["PARTIAL_JSON", "partial_json"])
def test_tables_of_which_parts_of_json_are_written_are_named(value: str) -> None:
    """The connector passes over each update of them, and the run goes on."""
    found = unsent(Server(binlog_row_value_options=value))
    assert found.keys() == {NOTES}
    assert "passes over its updates" in found[NOTES]
    assert not unsent(Server(binlog_row_value_options=value), snapshot_mode="initial_only")


@pytest.mark.parametrize("variables", [{}, {"binlog_row_value_options": "", "log_bin_compress": "OFF"}])
def test_nothing_is_named_if_all_is_written_whole(variables: dict[str, str]) -> None:
    assert not unsent(Server(**variables))


def test_each_table_is_named_if_the_binlog_is_compressed() -> None:
    assert unsent(Server(log_bin_compress="ON")).keys() == {LINES, NOTES}
