"""Consumers of committed records see each event once and in order, whatever happens to the publisher and the broker."""

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from cdc_assets.config.settings.kafka import AVRO
from cdc_assets.connectors.reader.avro import AvroParts
from cdc_assets.envelope.json import event_text
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.e2e.chains import PUBLISH
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import Publishing, murmur2
from cdc_assets_tests.unit.lake.writing import join_all
from cdc_assets_tests.unit.publish.registry import Registry
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def test_topics_hold_what_the_lake_holds(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    """Snapshot, changes, tombstones, schema changes, transactions; over a compaction, in small transactions."""
    case = Publishing(server, tmp_path, broker, "all", **{"provide.transaction.metadata": "true"})
    case.write(kafka__transaction__rows="7")
    case.insert(1, 2, 3)
    case.capture("snapshot")
    case.publish()
    case.insert(*range(4, 20))
    case.execute("DELETE FROM dbo.t WHERE id = 2")
    case.execute("UPDATE dbo.t SET id = 90 WHERE id = 3")
    case.execute("UPDATE dbo.t SET note = N'all' WHERE id > 3")
    case.capture()
    tables = TopicTables.of(case.config)
    join_all(tables, case.topic)
    case.publish()
    case.insert(20)
    case.capture()
    case.publish()
    case.publish()
    for topic in (case.topic, "all", "all.transaction"):
        handle = tables.open(topic)
        assert handle is not None
        rows = handle.to_pyarrow_table().sort_by("position").cast(pa.schema(handle.schema().to_arrow()))
        for name in ("key", "value"):
            texts = event_text(rows.schema.field(name), rows[name].combine_chunks(), schema=True, defaults=True)
            expected = [None if text is None else text.encode() for text in texts.to_pylist()]
            assert [getattr(one, name) for one in case.sent(topic)] == expected
    assert len(case.sent()) > 40
    assert dict(case.sent()[0].headers or [])["__debezium.context.connectorLogicalName"] == b"all"


def test_killed_publishers_lose_and_repeat_nothing(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    case = Publishing(server, tmp_path, broker, "killed", **{"kafka.transaction.rows": "3"})
    case.insert(*range(10))
    case.capture("snapshot")
    for turn, step in enumerate([*PUBLISH, ""]):
        case.insert(*range(100 * turn + 100, 100 * turn + 110))
        case.capture()
        done = case.command(crash=step)
        assert done.returncode == (-signal.SIGKILL if step else 0), done.stdout + done.stderr
    assert case.ids() == [*range(10), *(100 * turn + at for turn in range(1, 7) for at in range(10))]


def test_a_publisher_that_was_believed_dead_writes_nothing_more(
    server: StandIn, tmp_path: Path, broker: Broker
) -> None:
    case = Publishing(server, tmp_path, broker, "zombie")
    case.insert(1)
    case.capture("snapshot")
    with case.running() as zombie:
        _wait_for(lambda: case.ids() == [1])
        os.kill(zombie.pid, signal.SIGSTOP)
        case.insert(2, 3)
        case.capture()
        case.publish()
        os.kill(zombie.pid, signal.SIGCONT)
        case.insert(4)
        case.capture()
        _, err = zombie.communicate(timeout=120)
        assert zombie.returncode == 1
        assert "taken over" in err
    assert case.ids() == [1, 2, 3]
    case.publish()
    assert case.ids() == [1, 2, 3, 4]


def test_a_broker_that_is_away_only_delays(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    case = Publishing(server, tmp_path, broker, "away", **{"errors.max.retries": "-1"})
    case.insert(1)
    case.capture("snapshot")
    with case.running() as publisher:
        _wait_for(lambda: case.ids() == [1])
        broker.kill()
        case.insert(2)
        case.capture()
        time.sleep(2)
        broker.start()
        _wait_for(lambda: case.ids() == [1, 2])
        publisher.send_signal(signal.SIGTERM)
        publisher.communicate(timeout=60)


def test_a_record_that_is_too_large_stops_its_topic_alone(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    case = Publishing(server, tmp_path, broker, "large")
    other = "large.SalesDb.dbo.u"
    case.execute("CREATE TABLE dbo.u (id int NOT NULL PRIMARY KEY)")
    case.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'u', @role_name = NULL")
    broker.create(case.topic, 1, max__message__bytes="20000")
    case.insert(1)
    case.capture("snapshot")
    case.execute("INSERT INTO dbo.t VALUES (2, REPLICATE(CAST(N'x' AS nvarchar(max)), 30000))")
    case.insert(3)
    case.execute("INSERT INTO dbo.u VALUES (1)")
    case.capture()
    for _ in range(2):
        done = case.command()
        assert done.returncode == 1
        assert "max.message.bytes" in done.stderr
        assert "0000" in done.stderr, "the position"
        assert case.ids() == [1]
        assert len(case.sent(other)) == 1
    case.execute("INSERT INTO dbo.u VALUES (2)")
    case.capture()
    assert case.command().returncode == 1
    assert len(case.sent(other)) == 2
    larger = ConfigEntry("max.message.bytes", "200000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, case.topic, incremental_configs=[larger])
    broker.admin.incremental_alter_configs([resource])[resource].result(30)
    case.publish()
    assert case.ids() == [1, 2, 3]
    assert len(case.sent(other)) == 2


def test_topics_are_made_as_the_properties_say_and_keys_choose_partitions_as_in_java(
    server: StandIn, tmp_path: Path, broker: Broker
) -> None:
    case = Publishing(
        server,
        tmp_path,
        broker,
        "made",
        **{
            "topic.creation.default.partitions": "4",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.groups": "small",
            "topic.creation.small.include": "made",
            "topic.creation.small.partitions": "1",
            "topic.creation.default.cleanup.policy": "compact",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
        },
    )
    case.insert(*range(30))
    case.capture("snapshot")
    case.publish()
    topics = broker.admin.list_topics(timeout=10).topics
    assert {name: len(topics[name].partitions) for name in (case.topic, "made", "made.__published")} == {
        case.topic: 4,
        "made": 1,
        "made.__published": 1,
    }
    resource = ConfigResource(ConfigResource.Type.TOPIC, case.topic)
    assert broker.admin.describe_configs([resource])[resource].result()["cleanup.policy"].value == "compact"
    sent = case.sent()
    assert all(one.partition == (murmur2(one.key) & 0x7FFFFFFF) % 4 for one in sent)
    assert {one.partition for one in sent} == {0, 1, 2, 3}
    assert sorted(json.loads(one.key)["id"] for one in sent) == list(range(30))


def test_a_late_start_begins_after_an_lsn_and_a_foreign_lake_is_refused(
    server: StandIn, tmp_path: Path, broker: Broker
) -> None:
    case = Publishing(server, tmp_path, broker, "late")
    case.insert(1)
    case.capture("snapshot")
    case.insert(2)
    case.capture()
    rows = TopicTables.of(case.config).open(case.topic).to_pyarrow_table()  # type: ignore[union-attr]
    last = max(rows["position"].to_pylist())
    case.insert(3, 4)
    case.capture()
    case.publish("--from-lsn", last[:22])
    assert case.ids() == [3, 4]
    case.publish()
    assert case.command("--from-lsn", "00000001:00000001:0001").returncode == 2
    assert case.ids() == [3, 4]
    case.lake = tmp_path / "other"
    case.write()
    case.capture("snapshot")
    done = case.command()
    assert done.returncode == 1
    assert "another lake" in done.stderr


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while True:
        with suppress(AssertionError):  # no broker, or an open transaction
            if condition():
                return
        assert time.monotonic() < deadline
        time.sleep(0.3)


def test_avro_read_back_from_topics_is_what_the_lake_holds(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    with Registry() as registry:
        sides = {f"{side}.converter": AVRO for side in ("key", "value")}
        urls = {f"{side}.converter.schema.registry.url": registry.address for side in ("key", "value")}
        case = Publishing(server, tmp_path, broker, "avro", **sides, **urls)
        case.insert(1, 2, 3)
        case.capture("snapshot")
        case.execute("DELETE FROM dbo.t WHERE id = 2")
        case.execute("UPDATE dbo.t SET note = NULL WHERE id = 3")
        case.capture()
        case.publish()
        handle = TopicTables.of(case.config).open(case.topic)
        assert handle is not None
        rows = handle.to_pyarrow_table().sort_by("position").cast(pa.schema(handle.schema().to_arrow()))
        parts = AvroParts(registry.address, "")
        for name in ("key", "value"):
            texts = event_text(rows.schema.field(name), rows[name].combine_chunks(), schema=False, defaults=True)
            sent = [getattr(one, name) for one in case.sent()]
            read = [None if data is None else parts.part(data) for data in sent]
            expected = [None if text is None else json.loads(text) for text in texts.to_pylist()]
            assert [part and part.parsed for part in read] == expected
        registry.away = True
        case.insert(9)
        case.capture()
        done = case.command()
        assert done.returncode == 1
        assert "registry does not answer" in done.stderr
        registry.away = False
        case.publish()
        assert len(case.sent()) == len(rows) + 1
