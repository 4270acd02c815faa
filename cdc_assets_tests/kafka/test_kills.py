"""A broker that is killed again and again while records are sent: each is there once, in its order.

`CDC_LAW_EXAMPLES` sets how often it is killed.
"""

import logging
import os
import random
import time

import pytest

from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings import KafkaSettings
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.numbered import QUICK, check, send_while

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(3000)]

KILLS = int(os.environ.get("CDC_LAW_EXAMPLES", "3"))
TOPICS = {"kills.a": 1, "kills.b": 3}


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

    ours = KafkaBroker(KafkaSettings(servers=broker.servers, producer=tuple(QUICK.items())), "kills")
    own = random.Random("records")  # noqa: S311 - sizes of transactions
    count, lost = send_while(kill, ours, TOPICS, own)
    log.info("%s kills, %s connections lost, %s records a topic", KILLS, lost, count)
    check(broker, TOPICS, count)
