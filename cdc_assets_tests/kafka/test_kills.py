"""A broker that is killed again and again while records are sent: each is there once, in its order.

`CDC_LAW_EXAMPLES` sets how often it is killed.
"""

import logging
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pytest

from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConnectionLostError, FencedError
from cdc_assets.publish.run import Run
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import read_committed
from cdc_assets_tests.patience import Patience

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(3000)]

KILLS = int(os.environ.get("CDC_LAW_EXAMPLES", "3"))
TOPICS = {"kills.a": 1, "kills.b": 3}


def records(numbers: Sequence[int], size: int) -> Run:
    texts = [b"%d" % number for number in numbers]
    keys, values = (pa.array(side, pa.large_binary()) for side in (texts, [text.ljust(size) for text in texts]))
    return Run(1, pa.array(list(map(str, numbers))), keys, values, [[("h", b"v")]] * len(texts))


def transaction(ours: KafkaBroker, begin: int, chance: random.Random) -> int:
    """Send some records to each topic, and commit them with the number that is next."""
    ours.begin()
    for _ in range(chance.randint(1, 4)):
        end = begin + chance.choice([1, 10, 3000])
        for topic in TOPICS:
            assert ours.send(topic, records(range(begin, end), chance.choice([10, 300]))) == (end - begin, "")
        begin = end
    if chance.random() < 0.1:
        ours.abort()
        return -1
    assert not ours.commit(str(begin))
    return begin


def test_each_record_is_there_once_and_in_its_order_whenever_the_broker_is_killed(broker: Broker) -> None:
    chance = random.Random("kills")  # noqa: S311 - moments of kills
    for topic, partitions in TOPICS.items():
        broker.create(topic, partitions)

    def kill() -> None:
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.05, 3))
            broker.kill()
            time.sleep(chance.choice([0, 1]))
            broker.start()

    given = {"delivery.timeout.ms": "15000", "request.timeout.ms": "5000", "transaction.timeout.ms": "30000"}
    ours = KafkaBroker(KafkaSettings(servers=broker.servers, producer=tuple(given.items())), "kills")
    place, lost, last = int(ours.open() or 0), 0, False
    own = random.Random("records")  # noqa: S311 - sizes of transactions
    with ThreadPoolExecutor(1) as pool:
        kills = pool.submit(kill)
        while not last:
            last = kills.done()  # one more transaction is committed behind the last kill
            try:
                found = transaction(ours, place, own)
                place, last = (found, last) if found >= 0 else (place, False)
            except (ConnectionLostError, FencedError):
                lost, last = lost + 1, False
                place = reopened(ours, kills)
        kills.result()
    ours.close()
    log.info("%s kills, %s connections lost, %s records a topic", KILLS, lost, place)
    for topic, partitions in TOPICS.items():
        held: list[list[int]] = [[] for _ in range(partitions)]
        for one in read_committed(broker, topic):
            held[one.partition].append(int(one.key))
        assert all(numbers == sorted(numbers) for numbers in held)
        assert sorted(number for numbers in held for number in numbers) == list(range(place))


def reopened(ours: KafkaBroker, kills: "Future[None]") -> int:
    """The place that the newest marker tells, once the broker is there again."""
    patience = Patience(600)
    while True:
        try:
            return int(ours.open() or 0)
        except (ConnectionLostError, FencedError):
            assert patience
            if kills.done():
                kills.result()  # tells why a broker has not started
            time.sleep(0.2)
