"""Record batches beside Java's own: the same bytes without compression, and with it what Java reads back."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.structs import TopicPartition
from py4j.java_gateway import JavaGateway

from cdc_assets.adapters.kafka.batches import Batch, batches
from cdc_assets.adapters.kafka.columns import Columns
from cdc_assets.adapters.kafka.compression import Compression
from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.publish.run import Run
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import listed, read_committed
from cdc_assets_tests.unit.publish.records import EXAMPLES, NOW, Fields, some

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

PRODUCER = 2**40 + 7, 32_766
"""Its number and its epoch."""


def written(java: JavaGateway, records: Sequence[Fields], sequence: int) -> bytes:
    """The batch that Java's client makes."""
    common = java.jvm.org.apache.kafka.common
    none, kind = common.compress.Compression.NONE, common.record.TimestampType.CREATE_TIME
    builder = common.record.MemoryRecords.builder(
        java.jvm.java.nio.ByteBuffer.allocate(1000), 2, none, kind, 0, -1, *PRODUCER, sequence, True, -1
    )
    for key, value, headers, time in records:
        own = java.new_array(common.header.Header, len(headers))
        for number, header in enumerate(headers):
            own[number] = common.header.internals.RecordHeader(*header)
        builder.append(time, key, value, own)
    return bytes(common.utils.Utils.toArray(builder.build().buffer()))


def read(java: JavaGateway, data: bytes) -> Any:
    """The batch as Java's client reads it, checked."""
    common = java.jvm.org.apache.kafka.common
    [batch] = listed(common.record.MemoryRecords.readableRecords(java.jvm.java.nio.ByteBuffer.wrap(data)).batches())
    batch.ensureValid()
    return batch


def records_of(java: JavaGateway, batch: Any) -> list[Fields]:
    bytes_of = java.jvm.org.apache.kafka.common.utils.Utils.toNullableArray
    return [
        (
            bytes_of(record.key()),
            bytes_of(record.value()),
            [(header.key(), header.value()) for header in record.headers()],
            record.timestamp(),
        )
        for record in listed(batch)
    ]


def built(batch: Batch, sequence: int) -> bytes:
    batch._set_producer_state(*PRODUCER, sequence)
    return b"".join(batch.parts())


def test_java_writes_the_same_bytes(java: JavaGateway) -> None:
    chance = random.Random("java writes")  # noqa: S311 - records that can be made again
    for _ in range(EXAMPLES):
        run, expected = some(chance)
        sequence = chance.choice([0, 5, 2**31 - 3])
        for batch in batches(Columns.of(run), NOW, chance.choice([300, 20_000, 10**6]), Compression()):
            own, expected = expected[: batch.record_count()], expected[batch.record_count() :]
            assert built(batch, sequence) == written(java, own, sequence)
        assert not expected


@pytest.mark.parametrize("size", [2**21 - 20, 2**21])
def test_java_writes_the_same_bytes_of_large_and_of_many_records(java: JavaGateway, size: int) -> None:
    values = pa.array([b"x" * size] + [b""] * 10_000, pa.large_binary())
    run = Run(1, pa.array(np.arange(len(values)).astype(str)), pa.nulls(len(values), pa.large_binary()), values)
    [batch] = batches(Columns.of(run), NOW, 2**30, Compression())
    records: list[Fields] = [(None, value, [], NOW) for value in values.to_pylist()]
    assert built(batch, 0) == written(java, records, 0)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_java_reads_what_is_compressed(java: JavaGateway, compression: str) -> None:
    chance = random.Random(f"java reads {compression}")  # noqa: S311 - records that can be made again
    compressed = 0
    for _ in range(EXAMPLES):
        run, expected = some(chance)
        for batch in batches(Columns.of(run), NOW, chance.choice([300, 20_000, 10**6]), Compression(compression)):
            own, expected = expected[: batch.record_count()], expected[batch.record_count() :]
            found = read(java, built(batch, 2**31 - 3))
            compressed += found.isCompressed()
            assert records_of(java, found) == own
            assert found.maxTimestamp() == max(time for *_, time in own)
            assert (found.isTransactional(), found.isControlBatch()) == (True, False)
            assert (found.producerId(), found.producerEpoch(), found.baseSequence()) == (*PRODUCER, 2**31 - 3)
            assert found.lastSequence() == (2**31 - 3 + len(own) - 1) % 2**31
    assert compressed


def test_the_number_after_the_last_one_is_javas(java: JavaGateway) -> None:
    """aiokafka goes on at the least number that Java has, which the broker refuses."""
    after = java.jvm.org.apache.kafka.common.record.DefaultRecordBatch.incrementSequence
    run, _ = some(random.Random(1))  # noqa: S311 - one that is always the same
    for last, count in ((2**31 - 1, 1), (2**31 - 4, 4), (2**31 - 4, 10)):
        [batch] = batches(Columns.of(run), NOW, 10**7, Compression())
        found = read(java, built(batch, last + count - 2**32))
        assert found.baseSequence() == after(last, count)


def test_a_broker_takes_records_after_the_last_number(broker: Broker) -> None:
    broker.create("anew", 1)
    ours = KafkaBroker(KafkaSettings(servers=broker.servers), "anew")
    ours.open()
    ours._own._producer._txn_manager._sequence_numbers[TopicPartition("anew", 0)] = 2**31 - 5
    for count in (3, 4, 5):
        values = pa.array([b"v"] * count, pa.large_binary())
        ours.begin()
        assert ours.send("anew", Run(1, pa.array(np.arange(count).astype(str)), values, values)) == (count, "")
        assert not ours.commit("marker")
    ours.close()
    assert len(list(read_committed(broker, "anew"))) == 12
