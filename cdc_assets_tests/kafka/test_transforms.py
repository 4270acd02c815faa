"""Transformed topics beside those of the real connector in a Connect worker with the same transforms, byte for byte."""

import signal
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.config.settings.kafka import JSON
from cdc_assets_tests.kafka.alike import headers
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.connect import THEIRS, Worker, of_server, source, wait_until
from cdc_assets_tests.kafka.publishing import Publishing, Sent, count, read_committed
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
NAMES = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"
TRANSFORMS = {
    "transforms": "outbox,unwrap,route",
    "predicates": "outbox,table",
    "predicates.outbox.type": NAMES,
    "predicates.outbox.pattern": r".*\.dbo\.outbox",
    "predicates.table.type": NAMES,
    "predicates.table.pattern": r".*\.dbo\.t",
    "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
    "transforms.outbox.predicate": "outbox",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.predicate": "table",
    "transforms.unwrap.delete.tombstone.handling.mode": "rewrite-with-tombstone",
    "transforms.unwrap.add.fields": "op,source.commit_lsn",
    "transforms.unwrap.add.headers": "op,db,source.change_lsn",
    "transforms.route.type": ROUTER,
    "transforms.route.regex": r"(.*)\.SalesDb\.dbo\.(.*)",
    "transforms.route.replacement": "clean.$1.$2",
}
TOPICS = ("clean.transformed.t", "outbox.event.order", "outbox.event.customer")


def test_unwrapped_routed_and_outbox_records_are_the_connectors(
    server: StandIn, tmp_path: Path, broker: Broker
) -> None:
    options: dict[str, Any] = {f"{side}.converter": JSON for side in ("key", "value")} | {
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
        "kafka.transaction.rows": "4",
    }
    case = Publishing(server, tmp_path, broker, "transformed", **options, **TRANSFORMS)
    case.execute(
        "CREATE TABLE dbo.outbox (id varchar(36) NOT NULL PRIMARY KEY, aggregatetype varchar(20),"
        " aggregateid varchar(20), type varchar(20), payload nvarchar(200))"
    )
    case.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'outbox', @role_name = NULL")
    case.insert(1, 2, 3)
    case.capture("snapshot")
    route = {"transforms": "outbox,unwrap,route,theirs", "transforms.theirs.type": ROUTER}
    route |= {"transforms.theirs.regex": "(.*)", "transforms.theirs.replacement": f"{THEIRS}$1"}
    properties = source(tmp_path, **of_server(server, DATABASE, "transformed"), **options | TRANSFORMS | route)
    with Worker(tmp_path / "connect", broker.servers, {"shop": properties}) as worker:
        wait_until(lambda: count(broker, THEIRS + TOPICS[0]) == 3, worker, "the snapshot")
        for number in range(6):
            kind = "customer" if number % 3 else "order"
            case.execute(f"UPDATE dbo.t SET note = N'😀 {number}' WHERE id < {number}")
            row = f"'{number}', '{kind}', 'key {number % 2}', 'changed', N'{{\"n\": {number}}}'"
            case.execute(f"INSERT INTO dbo.outbox VALUES ({row})")
        case.execute("DELETE FROM dbo.t WHERE id = 2; DELETE FROM dbo.outbox")
        case.execute("UPDATE dbo.t SET id = 30 WHERE id = 3")
        case.capture()
        killed = case.command(crash="publish-sent:2")
        assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
        case.publish()
        sent = {topic: case.sent(topic) for topic in TOPICS}
        wait_until(
            lambda: all(count(broker, THEIRS + topic) >= len(sent[topic]) for topic in TOPICS),
            worker,
            "as many records",
        )
    for topic, own in sent.items():
        assert list(map(content, own)) == list(map(content, read_committed(broker, THEIRS + topic))), topic
    assert [len(own) for own in sent.values()] == [3 + 9 + 2 + 3, 2, 4]


def content(sent: Sent) -> tuple[Any, ...]:
    """All of a record."""
    return sent.partition, sent.key, sent.value, headers(sent)
