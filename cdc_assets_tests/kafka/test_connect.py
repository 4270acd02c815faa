"""Our topics beside those of the real connector in a real Kafka Connect worker: same server, same broker, byte by byte.

Both have the same topic prefix, which is in the records; Connect's own transform gives the connector's topics other names.
`CDC_KAFKA_SEED` and `CDC_KAFKA_TRANSACTIONS` choose another workload or a longer one.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyodbc
import pytest
from confluent_kafka.admin import ConfigResource

from cdc_assets.config.settings.kafka import AVRO, JSON
from cdc_assets_tests.conformance.ours import Ours
from cdc_assets_tests.conformance.workload import Workload
from cdc_assets_tests.kafka.alike import Alike, AvroMask, masked
from cdc_assets_tests.kafka.apicurio import Apicurio
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.connect import ROUTE, THEIRS, Worker, of_server, source, wait_until
from cdc_assets_tests.kafka.publishing import Sent, count, publish_all, read_committed
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

SEED = int(os.environ.get("CDC_KAFKA_SEED", "1"))
TRANSACTIONS = int(os.environ.get("CDC_KAFKA_TRANSACTIONS", "300"))
TOPICS = ("", ".transaction", *(f".TestDB.dbo.{name}" for name in ("all_types", "two_keys", "keyless")))
"""Without their prefix."""
CREATION = {
    "topic.creation.default.partitions": "3",
    "topic.creation.default.replication.factor": "1",
    "topic.creation.groups": "compacted,single",
    "topic.creation.compacted.include": r".*two_keys",
    "topic.creation.compacted.partitions": "5",
    "topic.creation.compacted.cleanup.policy": "compact",
    "topic.creation.single.include": r".*keyless",
    "topic.creation.single.partitions": "1",
    "topic.creation.single.retention.ms": "-1",
}
CASES = {
    "schemas": {},
    "plain": {
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "header.converter": JSON,
        "header.converter.schemas.enable": "false",
    },
    "strings-and-headers-with-schemas": {
        "header.converter": JSON,
        "decimal.handling.mode": "string",
        "time.precision.mode": "connect",
        "binary.handling.mode": "hex",
    },
}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=("TestDB",)) as server:
        yield server


@pytest.mark.parametrize("case", CASES)
def test_records_and_topics_are_the_connectors(server: StandIn, tmp_path: Path, broker: Broker, case: str) -> None:
    converters = {"key.converter": JSON, "value.converter": JSON} | CASES[case]
    alike = capture_by_both(server, tmp_path, broker, case, converters)
    print(alike)  # noqa: T201 - the counts are the result


def test_avro_with_a_registry_is_the_connectors(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    """Both register their schemas in one real registry, which gives equal schemas one number."""
    with Apicurio(tmp_path) as registry:
        converters = {f"{side}.converter": AVRO for side in ("key", "value")}
        converters |= {f"{side}.converter.schema.registry.url": registry.address for side in ("key", "value")}
        mask = AvroMask(lambda number: registry.asked(f"/schemas/ids/{number}"))
        print(capture_by_both(server, tmp_path, broker, "avro", converters, mask))  # noqa: T201
        subjects = [f"avro{name}-{side}" for name in TOPICS for side in ("key", "value")]
        subjects.remove("avro.TestDB.dbo.keyless-key")
        for subject in subjects:
            assert registry.schemas(THEIRS + subject) == registry.schemas(subject), subject


def capture_by_both(
    server: StandIn,
    folder: Path,
    broker: Broker,
    prefix: str,
    converters: dict[str, str],
    mask: Callable[[str, bytes], bytes] = masked,
) -> Alike:
    """Run the workload, publish it by both, and compare."""
    connection = pyodbc.connect(server.connection_string("TestDB"), autocommit=True)
    workload, topics = Workload(SEED), [prefix + name for name in TOPICS]
    for statement in [*workload.setup(), *workload.transactions(TRANSACTIONS // 10)]:
        connection.execute(statement)
    properties = {
        **of_server(server, "TestDB", prefix),
        "table.include.list": r"dbo\.(all_types|two_keys|keyless)",
        "provide.transaction.metadata": "true",
        **converters,
        **CREATION,
    }
    (folder / "ours").mkdir()
    ours = Ours(folder / "ours", **properties, **{"bootstrap.servers": broker.servers})
    ours.catch_up()
    rows = sum(len(keys) for keys in workload.rows.values())
    connectors = {"shop": source(folder, **properties, **ROUTE)}
    with Worker(folder / "connect", broker.servers, connectors) as worker:
        wait_until(lambda: sum(count(broker, THEIRS + name) for name in topics[2:]) == rows, worker, "the snapshot")
        for statement in workload.transactions(TRANSACTIONS):
            connection.execute(statement)
        server.agent.drain()
        ours.catch_up()
        publish_all(ours.path)
        sent = {name: list(read_committed(broker, name)) for name in topics}
        wait_until(
            lambda: all(count(broker, THEIRS + name) >= len(found) for name, found in sent.items()),
            worker,
            "as many records as ours",
        )
    connection.close()
    alike = Alike(mask)
    for name, found in sent.items():
        theirs = list(read_committed(broker, THEIRS + name))
        compare(alike, name, theirs, found)
        assert shape(broker, THEIRS + name) == shape(broker, name), name
    return alike


def compare(alike: Alike, topic: str, theirs: Sequence[Sent], ours: Sequence[Sent]) -> None:
    """Record by record, partition by partition."""
    partitions = [Counter((sent.partition, sent.key, sent.value is None) for sent in side) for side in (theirs, ours)]
    assert partitions[0] - partitions[1] == partitions[1] - partitions[0] == Counter(), topic
    for one, other in zip(theirs, ours, strict=True):
        alike.check(topic, one, other)


def shape(broker: Broker, topic: str) -> tuple[int, dict[str, str]]:
    """Partitions of a topic, and its own options."""
    found = broker.admin.list_topics(topic, timeout=30).topics[topic]
    [asked] = broker.admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    options = asked.result(30)
    return len(found.partitions), {name: options[name].value for name in ("cleanup.policy", "retention.ms")}
