"""Heartbeats and notifications beside those of the real connector in a Connect worker: keys, values, headers, partitions."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from cdc_assets.config.settings.kafka import JSON
from cdc_assets_tests.conformance.ours import Ours
from cdc_assets_tests.kafka.alike import headers
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.connect import ROUTE, THEIRS, Worker, of_server, source, wait_until
from cdc_assets_tests.kafka.publishing import Sent, count, murmur2, publish_all, read_committed
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
PREFIX, NOTES, PARTITIONS = "served", "served-notes", 3
BEATS = f"__debezium-heartbeat.{PREFIX}"
ASKED = '{"data-collections": ["SalesDb.dbo.t"]}'


@pytest.mark.parametrize(("schemas", "tables"), [("true", r"dbo\.t"), ("false", r"dbo\.(t|s)")])
def test_heartbeats_and_notifications_are_the_connectors(
    server: StandIn, tmp_path: Path, broker: Broker, schemas: str, tables: str
) -> None:
    """Those of a snapshot, of an incremental one, and heartbeats: the same records, but for ids and instants."""
    for statement in (
        "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, note nvarchar(40))",
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL",
        "CREATE TABLE dbo.s (id varchar(64), type varchar(32), data varchar(2048))",
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N's', @role_name = NULL",
        "INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b'), (3, N'c')",
    ):
        server.execute(statement, database=DATABASE)
    prefix, notes, beats = (name + schemas for name in (PREFIX, NOTES, BEATS))
    properties = {
        **of_server(server, DATABASE, prefix),
        "table.include.list": tables,
        "heartbeat.interval.ms": "100",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": notes,
        "signal.data.collection": f"{DATABASE}.dbo.s",
        **{f"{side}.converter": JSON for side in ("key", "value")},
        **{f"{side}.converter.schemas.enable": schemas for side in ("key", "value")},
        "topic.creation.default.partitions": str(PARTITIONS),
        "topic.creation.default.replication.factor": "1",
    }
    (tmp_path / "ours").mkdir()
    ours = Ours(tmp_path / "ours", **properties, **{"bootstrap.servers": broker.servers})
    ours.catch_up()
    connectors = {"shop": source(tmp_path, **properties, **ROUTE)}
    with Worker(tmp_path / "connect", broker.servers, connectors) as worker:
        wait_until(lambda: count(broker, THEIRS + notes) >= 4, worker, "the snapshot's notifications")
        server.execute(f"INSERT INTO dbo.s VALUES ('ask', 'execute-snapshot', '{ASKED}')", database=DATABASE)
        server.agent.drain()
        wait_until(lambda: ended(broker, THEIRS + notes), worker, "the incremental snapshot")
        wait_until(lambda: count(broker, THEIRS + beats) > 2, worker, "heartbeats")
        told = count(broker, THEIRS + notes)
    ours.catch_up()
    with Worker(tmp_path / "connect", broker.servers, connectors) as worker:
        wait_until(lambda: count(broker, THEIRS + notes) > told, worker, "that no snapshot is needed")
    publish_all(ours.path)
    theirs, own = (list(read_committed(broker, name + notes)) for name in (THEIRS, ""))
    for sent in (*theirs, *own):
        assert sent.partition == (murmur2(sent.key) & 0x7FFFFFFF) % PARTITIONS
    lacking, more = alike(theirs) - alike(own), alike(own) - alike(theirs)
    assert not lacking, f"{lacking.most_common()}, {more.most_common()}"
    assert not more, more.most_common()
    assert len(own) > 6
    theirs, own = (list(read_committed(broker, name + beats)) for name in (THEIRS, ""))
    assert {sent.partition for sent in (*theirs, *own)} == {0}
    assert set(alike(theirs)) == set(alike(own))
    assert own


def ended(broker: Broker, topic: str) -> bool:
    """Whether the incremental snapshot has ended."""
    return any(b"Incremental" in sent.value and b'"COMPLETED"' in sent.value for sent in read_committed(broker, topic))


def alike(found: list[Sent]) -> Counter[str]:
    """Records without ids and instants, and without the order of maps and of the tables of a list."""
    return Counter(f"{masked(sent.key)} {masked(sent.value)} {headers(sent)}" for sent in found)


def masked(text: bytes) -> str:
    """See `alike`."""
    plain = re.sub(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", b"ID", text)
    plain = re.sub(rb'("(?:ts_ms|timestamp)":)\d+', rb"\1T", plain)
    return re.sub(rb'"additional_data":(\{[^}]*\})', lambda part: ordered(part[1]), plain).decode()


def ordered(data: bytes) -> bytes:
    """A map's entries in their order."""
    entries = {name: sorted(text.split(",")) for name, text in json.loads(data).items()}
    return json.dumps(entries, sort_keys=True).encode()
