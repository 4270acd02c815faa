"""Brokers of a cluster that are killed or stand still, so that others lead: each record is there once, in its order.

`CDC_LAW_EXAMPLES` sets how often.
"""

import logging
import os
import random
import time
from collections.abc import Iterator

import pytest

from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings import KafkaSettings
from cdc_assets_tests.kafka.cluster import Cluster
from cdc_assets_tests.kafka.numbered import QUICK, check, send_while

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(3000)]

PLUGS = int(os.environ.get("CDC_LAW_EXAMPLES", "4"))
KINDS = ("killed", "stands still", "stands still for long")
TOPICS = {"moves.a": 1, "moves.b": 4}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_each_record_is_there_once_and_in_its_order_whichever_broker_leads(cluster: Cluster) -> None:
    chance = random.Random("plugs")  # noqa: S311 - moments of plugs
    for topic, partitions in TOPICS.items():
        cluster.create(topic, partitions)
    pulled = []

    def pull() -> None:
        for number in range(PLUGS):
            time.sleep(chance.uniform(0.05, 3))
            broker, plug = chance.choice(cluster.brokers), KINDS[number % len(KINDS)]
            pulled.append(plug)
            if plug == "killed":
                broker.kill()
                time.sleep(chance.choice([0, 1, 5]))
                broker.start()
            else:
                with broker.standing_still():
                    time.sleep(chance.uniform(0.5, 3) if plug == "stands still" else 8)
            time.sleep(3)  # until it has a copy of everything, and leads again

    settings = KafkaSettings(servers=cluster.servers, producer=tuple(QUICK.items()))
    own = random.Random("records")  # noqa: S311 - sizes of transactions
    count, lost = send_while(pull, KafkaBroker(settings, "moves"), TOPICS, own)
    log.info("%s, %s connections lost, %s records a topic", pulled, lost, count)
    check(cluster.brokers[0], TOPICS, count)
