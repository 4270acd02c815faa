"""Real consumers read our topics and reach the server's state: Debezium's JDBC sink in a Connect worker, into PostgreSQL."""

from pathlib import Path
from typing import Any

import pytest

from cdc_assets_tests.engines.servers import Postgres
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.connect import JDBC_SINK, Worker, wait_until
from cdc_assets_tests.kafka.publishing import Publishing
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]
JSON = "org.apache.kafka.connect.json.JsonConverter"


def sink(database: Postgres, topic: str) -> dict[str, str]:
    """Writes one topic into the table `t`; reads committed records alone."""
    return {
        "connector.class": JDBC_SINK,
        "topics": topic,
        "connection.url": f"jdbc:postgresql://127.0.0.1:{database.port}/postgres",
        "connection.username": "dbz",
        "connection.password": "secret",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "collection.name.format": "t",
        "key.converter": JSON,
        "value.converter": JSON,
        "consumer.override.isolation.level": "read_committed",
        "consumer.override.auto.offset.reset": "earliest",
    }


def test_a_jdbc_sink_reaches_the_servers_state(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    """Snapshot and changes, deletes, changed keys, a transaction that was rolled back, texts of any kind."""
    case = Publishing(server, tmp_path, broker, "sink", **{"topic.creation.default.partitions": "1"})
    case.insert(*range(30))
    case.execute("INSERT INTO dbo.t VALUES (100, N'Zoë 😀 日本 '' \"'), (101, NULL), (102, N'')")
    case.capture("snapshot")
    with Postgres(tmp_path / "postgres.log") as database:
        case.publish()
        with Worker(tmp_path / "connect", broker.servers, {"sink": sink(database, case.topic)}) as worker:
            wait_until(lambda: held(database) == state(case), worker, "the snapshot")
            for number in range(0, 30, 3):
                case.execute(f"UPDATE dbo.t SET note = N'changed {number}' WHERE id = {number}")
                case.execute(f"DELETE FROM dbo.t WHERE id = {number + 1}")
            case.execute("UPDATE dbo.t SET id = id + 1000 WHERE id > 99")
            case.execute("BEGIN TRAN; DELETE FROM dbo.t; ROLLBACK TRAN")
            case.execute("DELETE FROM dbo.t WHERE id = 2; INSERT INTO dbo.t VALUES (2, N'again')")
            case.capture()
            case.publish()
            wait_until(lambda: held(database) == state(case), worker, "the server's state")
    assert len(state(case)) == 23


def held(database: Postgres) -> dict[int, Any]:
    """Rows of the sink's table."""
    if database.execute("select to_regclass('t') is null").strip() == "t":
        return {}
    return {row["id"]: row["note"] for row in database.rows("t", ["id", "note"])}


def state(case: Publishing) -> dict[int, Any]:
    """Rows of the server's table."""
    return dict(case.server.execute("SELECT id, note FROM dbo.t", database=DATABASE))
