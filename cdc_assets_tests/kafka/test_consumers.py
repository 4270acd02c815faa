"""Consumers of others read records of every form, and what is in full batches of each codec: librdkafka, aiokafka, and Java's client."""

import asyncio
import random
import time
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from py4j.java_gateway import JavaGateway

from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.publish.records import RecordSlice
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import listed
from cdc_assets_tests.kafka.records import Fields, some
from cdc_assets_tests.patience import Patience

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

SMALL = 100_000
"""Bytes that a consumer asks for at once, fewer than a batch has."""


def values() -> list[bytes]:
    """Many that are alike, so that a batch of them is large before compression; wide ones; some that do not compress."""
    chance = random.Random("consumers")  # noqa: S311 - values that can be made again
    alike = [b'{"id":%d,"note":"%s"}' % (number, b"a text that repeats " * 40) for number in range(9000)]
    wide = [b"%d" % number + b"wide and alike " * 20_000 for number in range(15)]
    return [*alike, *wide, *(chance.randbytes(5000) for _ in range(300)), *alike[:10]]


@pytest.fixture(scope="module")
def expected() -> list[bytes]:
    return values()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_all_of_it_is_read(broker: Broker, java: JavaGateway, expected: list[bytes], codec: str) -> None:
    topic = f"consumed.{codec}"
    broker.create(topic)
    ours = KafkaBroker(KafkaSettings(servers=broker.servers, producer=(("compression.type", codec),)), topic)
    ours.open()
    ours.begin()
    column = pa.array(expected, pa.large_binary())
    for at in range(0, len(expected), 4000):
        own = column.slice(at, 4000)
        keys = pa.array([b"%d" % number for number in range(at, at + len(own))], pa.large_binary())
        assert ours.send(topic, RecordSlice(1, pa.array(map(str, range(at, at + len(own)))), keys, own)) == (
            len(own),
            "",
        )
    assert not ours.commit("marker")
    ours.close()
    assert max(records_of_batches(java, broker, topic)) > 1000
    for read in (by_librdkafka, by_aiokafka):
        for small in (False, True):
            assert read(broker, topic, len(expected), small) == expected, (read.__name__, small)
    assert by_java(java, broker, topic, len(expected)) == [(at, len(value)) for at, value in enumerate(expected)]


def test_records_of_every_form_are_read_as_they_were_sent(broker: Broker) -> None:
    chance = random.Random("forms")  # noqa: S311 - values that can be made again
    broker.create("forms")
    ours = KafkaBroker(KafkaSettings(servers=broker.servers), "forms")
    ours.open()
    ours.begin()
    expected: list[Fields] = []
    for _ in range(30):
        records, fields = some(chance)
        assert ours.send("forms", records) == (len(records), "")
        expected += fields
    assert not ours.commit("marker")
    ours.close()
    now = time.time() * 1000
    found = asyncio.run(read_by_aiokafka(broker, "forms", len(expected)))
    assert len(found) == len(expected)
    for one, (key, value, headers, moment) in zip(found, expected, strict=True):
        assert (one.key, one.value, list(one.headers)) == (key, value, headers)
        assert one.timestamp == moment or (moment is None and abs(now - one.timestamp) < 600_000)


def by_librdkafka(broker: Broker, topic: str, count: int, small: bool) -> list[bytes]:
    options = {"bootstrap.servers": broker.servers, "group.id": "g", "log_level": 0}
    options |= {"isolation.level": "read_committed", "enable.auto.commit": False}
    limits = {"fetch.message.max.bytes": SMALL, "fetch.max.bytes": SMALL, "message.max.bytes": SMALL} if small else {}
    consumer = Consumer(options | limits)
    consumer.assign([Place(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(1000, 30)
        assert messages, len(found)
        for message in messages:
            assert message.error() is None, message.error()
            found.append(message.value())
    consumer.close()
    return found


def by_aiokafka(broker: Broker, topic: str, count: int, small: bool) -> list[bytes]:
    limits = {"max_partition_fetch_bytes": SMALL, "fetch_max_bytes": SMALL} if small else {}
    return [message.value for message in asyncio.run(read_by_aiokafka(broker, topic, count, **limits))]


async def read_by_aiokafka(broker: Broker, topic: str, count: int, **limits: int) -> list[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.servers, isolation_level="read_committed", enable_auto_commit=False, **limits
    )
    await consumer.start()
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    await consumer.seek_to_beginning(place)
    found: list[Any] = []
    while len(found) < count:
        messages = await consumer.getmany(place, timeout_ms=30_000)
        assert messages, len(found)
        found += messages[place]
    await consumer.stop()
    return found


def by_java(java: JavaGateway, broker: Broker, topic: str, count: int) -> list[tuple[int, int]]:
    """Keys, and lengths of values: these alone, because each call into Java takes a while."""
    properties = java.jvm.java.util.Properties()
    of_bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    options = {"bootstrap.servers": broker.servers, "isolation.level": "read_committed", "enable.auto.commit": "false"}
    options |= {"key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer"}
    options |= {"value.deserializer": of_bytes, "max.poll.records": "5000"}
    for name, text in options.items():
        properties.setProperty(name, text)
    consumer = java.jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
    place = java.jvm.org.apache.kafka.common.TopicPartition(topic, 0)
    consumer.assign(java.jvm.java.util.List.of(place))
    consumer.seekToBeginning(java.jvm.java.util.List.of(place))
    found: list[tuple[int, int]] = []
    until = Patience(60)
    while len(found) < count:
        assert until, len(found)
        records = consumer.poll(java.jvm.java.time.Duration.ofSeconds(5)).records(place)
        found += [(int(record.key()), record.serializedValueSize()) for record in listed(records)]
    consumer.close()
    return found


def records_of_batches(java: JavaGateway, broker: Broker, topic: str) -> list[int]:
    """How many records each batch has in the broker's file.

    It is opened to read alone: to close one that may be written cuts off what the broker has appended meanwhile, such as the commit.
    """
    [file] = (broker.data / f"{topic}-0").glob("*.log")
    opened = java.jvm.org.apache.kafka.common.record.FileRecords.open(java.jvm.java.io.File(str(file)), False)
    found = [batch.countOrNull() for batch in listed(opened.batches()) if not batch.isControlBatch()]
    opened.closeHandlers()
    return found
