"""Connections that break while records are sent: each is there once, in its order, whatever is on its way."""

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings.kafka import KafkaSettings
from cdc_assets.errors import ConnectionLostError
from cdc_assets.publish.records import RecordSlice
from cdc_assets_tests.beside import beside
from cdc_assets_tests.contract.source.proxy import Proxy, proxy
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import read_committed

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

BATCHES, RECORDS = 60, 10


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Proxy]]:
    """A broker that its clients reach through a proxy alone."""
    broker = Broker(tmp_path_factory.mktemp("remote") / "broker")
    host, port = broker.servers.split(":")
    with proxy((host, int(port))) as link:
        broker.options["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{link.port}"
        with broker:
            yield broker, link


def values(number: int) -> pa.Array:
    return pa.array([b"%d" % (number * RECORDS + at) for at in range(RECORDS)], pa.large_binary())


def publish(broker: Broker, topic: str, begun: Callable[[], None] = lambda: None) -> list[int]:
    """Batches of one transaction, which is repeated until it is committed; what a consumer reads then."""
    broker.create(topic)
    ours = KafkaBroker(
        KafkaSettings(servers=broker.servers, producer=(("retry.backoff.ms", "50"), ("linger.ms", "1"))), topic
    )
    for _ in range(10):
        try:
            ours.open()
            ours.begin()
            begun()
            for number in range(BATCHES):
                own = values(number)
                ours.send(topic, RecordSlice(1, pa.array(np.arange(RECORDS).astype(str)), own, own))
                time.sleep(0.005)  # so that they are many batches
            assert not ours.commit("marker")
            break
        except ConnectionLostError:
            continue
    ours.close()
    return [int(message.value) for message in read_committed(broker, topic)]


@pytest.mark.parametrize("seconds", [0.13, 0.21, 0.34])
def test_connections_that_break_cost_no_record_and_no_order(remote: tuple[Broker, Proxy], seconds: float) -> None:
    broker, link = remote

    begun = threading.Event()

    def cut(over: threading.Event) -> None:
        begun.wait(60)
        for _ in range(4):
            over.wait(seconds)
            link.cut()

    link.pause_s = 0.02  # so that requests are on their way
    try:
        with beside(cut):
            assert publish(broker, f"cut{seconds}", begun.set) == list(range(BATCHES * RECORDS))
    finally:
        link.pause_s = 0.0
