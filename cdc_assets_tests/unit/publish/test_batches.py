"""Record batches out of columns are what Kafka's own clients read back."""

import asyncio
import random

import pyarrow as pa
import pytest
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.structs import TopicPartition

from cdc_assets.adapters.kafka.batches import Batch, batches
from cdc_assets.adapters.kafka.columns import Columns
from cdc_assets.adapters.kafka.compression import Compression
from cdc_assets.adapters.kafka.partitions import by_partition
from cdc_assets.publish.run import Headers, Run
from cdc_assets_tests.kafka.publishing import murmur2
from cdc_assets_tests.unit.publish.records import EXAMPLES, NOW, Fields, some


def read(batch: Batch, base_sequence: int = 0) -> list[Fields]:
    batch._set_producer_state(7, 2, base_sequence)
    found = DefaultRecordBatch(bytearray().join(batch.parts()))
    assert found.validate_crc()
    assert found.is_transactional
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (7, 2, base_sequence)
    records = list(found)
    assert [record.offset for record in records] == list(range(batch.record_count()))
    return [(record.key, record.value, list(record.headers), record.timestamp) for record in records]


@pytest.mark.parametrize("compression", ["", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_sent_is_read_back_and_no_batch_exceeds_its_limit(compression: str) -> None:
    chance = random.Random(f"batches {compression}")  # noqa: S311 - records that can be made again
    for _ in range(EXAMPLES):
        runs, expected = zip(*(some(chance) for _ in range(chance.randint(1, 3))), strict=True)
        most = chance.choice([300, 20_000, 45_000, 10**6])
        found = list(batches(Columns.joined([Columns.of(run) for run in runs]), NOW, most, Compression(compression)))
        assert [record for batch in found for record in read(batch, 5)] == [one for own in expected for one in own]
        assert all(
            sum(map(len, batch.parts())) <= min(most, batch.size()) or batch.record_count() == 1 for batch in found
        )


def test_no_records_are_no_batch() -> None:
    run, _ = some(random.Random(2))  # noqa: S311 - one that is always the same
    assert not list(batches(Columns.of(run.slice(0, 0)), NOW, 1000, Compression()))


def test_numbers_begin_anew_after_the_last_one() -> None:
    """A broker takes no number below 0; aiokafka goes on at the least one that Java has."""

    async def made() -> TransactionManager:
        return TransactionManager("id", 1000)

    numbers, partition, written = asyncio.run(made()), TopicPartition("t", 0), 0
    run, _ = some(random.Random(1))  # noqa: S311 - one that is always the same
    for count in [2**31 - 6, 3, 3, 4, 2**31 - 5, 1, 2, 2**31 - 1, 7]:
        [batch] = batches(Columns.of(run), NOW, 10**7, Compression())
        batch._set_producer_state(7, 2, numbers.sequence_number(partition))
        assert DefaultRecordBatch(bytearray().join(batch.parts())).base_sequence == written % 2**31
        numbers.increment_sequence_number(partition, count)
        written += count


def test_a_batch_takes_as_many_records_as_fit_compressed_and_is_parted_where_they_differ() -> None:
    chance = random.Random("parted")  # noqa: S311 - records that can be made again
    values = [b"alike" * 40] * 3000 + [chance.randbytes(200) for _ in range(3000)]
    lz4, most = Compression("lz4"), 20_000

    def made(part: list[bytes]) -> list[Batch]:
        data = pa.array(part, pa.large_binary())
        return list(batches(Columns.of(Run(1, pa.array(map(str, range(len(part)))), data, data)), NOW, most, lz4))

    first, *others = [batch for at in range(0, 6000, 1000) for batch in made(values[at : at + 1000])]
    assert first.record_count() < 50, "nothing is known of the first one's compression"
    assert max(batch.record_count() for batch in others) == 1000
    assert [value for batch in [first, *others] for _, value, *_ in read(batch)] == values
    assert all(sum(map(len, batch.parts())) <= most for batch in [first, *others])


def test_headers_count_in_the_limit_of_a_batch() -> None:
    headers: Headers = [(f"n{number}", b"v" * 60) for number in range(20)]
    values = pa.array([b"x"] * 10, pa.large_binary())
    run = Run(1, pa.array(map(str, range(10))), values, values, [headers] * 10)
    assert [batch.record_count() for batch in batches(Columns.of(run), NOW, 3000, Compression())] == [2] * 5


def test_partitions_are_those_of_javas_producer_and_keep_the_order() -> None:
    chance, drawn = random.Random("partitions"), set()  # noqa: S311 - keys that can be made again
    for _ in range(EXAMPLES):
        count = chance.choice([1, 2, 7, 60])
        keys = [chance.choice([None, chance.randbytes(chance.randint(0, 70))]) for _ in range(40)]
        chosen = chance.choice([None, [chance.choice([None, -1, 0, count - 1]) for _ in keys]])
        other = chance.choice([-1, 0])
        run = Run(
            1,
            pa.array(map(str, range(40))),
            pa.array(keys, pa.large_binary()),
            pa.array([b"%d" % number for number in range(40)], pa.large_binary()),
            partition=other,
            partitions=None if chosen is None else pa.array(chosen, pa.int32()),
        )
        found: dict[int, int] = {}
        for partition, records in by_partition(Columns.of(run), count):
            own = [int(value) for value in records.values.to_pylist()]
            assert own == sorted(own)
            assert [keys[number] for number in own] == records.keys.to_pylist()
            found |= dict.fromkeys(own, partition)
        assert len(found) == 40
        for number, key in enumerate(keys):
            given = other if chosen is None or chosen[number] is None else chosen[number]
            if given is not None and given >= 0:
                assert found[number] == given
            elif key is not None:
                assert found[number] == (murmur2(key) & 0x7FFFFFFF) % count
            elif count == 60:
                drawn.add(found[number])
    assert len(drawn) > 20, "records without a key go to partitions at random"
