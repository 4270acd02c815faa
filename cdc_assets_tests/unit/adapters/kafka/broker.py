"""A Kafka of one broker, inside this process."""

import logging
from typing import Any

from confluent_kafka import Producer

from cdc_assets.config.settings import SignalSettings


class Broker:
    """A mock cluster of one broker; topics are made with four partitions when they are first asked for."""

    def __init__(self) -> None:
        quiet = logging.getLogger("mock")
        quiet.setLevel(logging.ERROR)
        self.producer = Producer({"bootstrap.servers": "none:1", "test.mock.num.brokers": 1}, logger=quiet)
        (broker,) = self.producer.list_topics(timeout=10).brokers.values()
        self.address = f"{broker.host}:{broker.port}"

    def send(self, value: str | bytes | None, key: str = "shop", topic: str = "shop-signal", **more: Any) -> None:
        self.producer.produce(topic, key=key, value=value, **more)
        assert self.producer.flush(10) == 0

    def settings(self, **more: Any) -> SignalSettings:
        return SignalSettings(channels=("kafka",), kafka_servers=self.address, **more)
