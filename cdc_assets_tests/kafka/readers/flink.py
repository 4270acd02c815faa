"""Fold a topic with Flink's `debezium-json`: `flink.py SERVERS TOPIC JAR`; prints the rows as JSON."""

import json
import sys
from typing import Any

from pyflink.common import RowKind
from pyflink.table import EnvironmentSettings, TableEnvironment

COLUMNS = {
    "id": "INT",
    "name": "STRING",
    "amount": "STRING",
    "at": "BIGINT",
    "flag": "BOOLEAN",
    "big": "BIGINT",
    "ratio": "DOUBLE",
}


def main(servers: str, topic: str, jar: str) -> None:
    """Read the topic to its end."""
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    environment.get_config().set("pipeline.jars", f"file://{jar}").set("parallelism.default", "1")
    columns = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
    options = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": servers,
        "properties.isolation.level": "read_committed",
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "format": "debezium-json",
        "debezium-json.schema-include": "true",
    }
    given = ", ".join(f"'{name}' = '{text}'" for name, text in options.items())
    environment.execute_sql(f"CREATE TABLE u ({columns}) WITH ({given})")
    held: dict[Any, int] = {}
    with environment.sql_query("SELECT * FROM u").execute().collect() as changes:
        for change in changes:
            added = change.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER)
            row = tuple(change)
            held[row] = held.get(row, 0) + (1 if added else -1)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row, count in held.items() for _ in range(count)]
    assert all(count >= 0 for count in held.values()), held
    sys.stdout.write("\n" + json.dumps(sorted(rows, key=lambda row: row["id"])) + "\n")


main(*sys.argv[1:])
