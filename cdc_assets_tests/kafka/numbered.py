"""Numbered records, sent in transactions to a few topics while something happens to their brokers."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.errors import ConnectionLostError, FencedError
from cdc_assets.publish.records import RecordSlice
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import read_committed
from cdc_assets_tests.patience import Patience

QUICK = {"delivery.timeout.ms": "15000", "request.timeout.ms": "5000", "transaction.timeout.ms": "30000"}
"""Options of a producer that gives up soon."""


def records(numbers: Sequence[int], size: int) -> RecordSlice:
    """Records whose keys are the numbers."""
    texts = [b"%d" % number for number in numbers]
    keys, values = (pa.array(side, pa.large_binary()) for side in (texts, [text.ljust(size) for text in texts]))
    return RecordSlice(1, pa.array(list(map(str, numbers))), keys, values, [[("h", b"v")]] * len(texts))


def send_while(
    happens: Callable[[], None], ours: KafkaBroker, topics: Mapping[str, int], chance: random.Random
) -> tuple[int, int]:
    """Send to each of the topics until it has happened; returns how many records, and how often the producer was opened again."""
    place, lost, last = int(ours.open() or 0), 0, False
    with ThreadPoolExecutor(1) as pool:
        happening = pool.submit(happens)
        while not last:
            last = happening.done()  # one more transaction is committed behind the last that happens
            try:
                found = _transaction(ours, topics, place, chance)
                place, last = (found, last) if found >= 0 else (place, False)
            except (ConnectionLostError, FencedError):
                lost, last = lost + 1, False
                place = _reopened(ours, happening)
        happening.result()
    ours.close()
    return place, lost


def check(broker: Broker, topics: Mapping[str, int], count: int) -> None:
    """Each number is in each topic once, and in its order within a partition."""
    for topic, partitions in topics.items():
        held: list[list[int]] = [[] for _ in range(partitions)]
        for one in read_committed(broker, topic):
            held[one.partition].append(int(one.key))
        assert all(numbers == sorted(numbers) for numbers in held)
        assert sorted(number for numbers in held for number in numbers) == list(range(count))


def _transaction(ours: KafkaBroker, topics: Mapping[str, int], begin: int, chance: random.Random) -> int:
    """Send some records to each topic, and commit them with the number that is next."""
    ours.begin()
    for _ in range(chance.randint(1, 4)):
        end = begin + chance.choice([1, 10, 3000])
        for topic in topics:
            assert ours.send(topic, records(range(begin, end), chance.choice([10, 300]))) == (end - begin, "")
        begin = end
    if chance.random() < 0.1:
        ours.abort()
        return -1
    assert not ours.commit(str(begin))
    return begin


def _reopened(ours: KafkaBroker, happening: "Future[None]") -> int:
    """The place that the newest marker tells, once the broker is there again."""
    patience = Patience(600)
    while True:
        try:
            return int(ours.open() or 0)
        except (ConnectionLostError, FencedError):
            assert patience
            if happening.done():
                happening.result()  # tells why a broker has not started
            time.sleep(0.2)
