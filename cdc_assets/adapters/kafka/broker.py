"""Makes the broker that publishes; its libraries are imported once topics are published, and not before."""

import importlib

from cdc_assets.adapters.kafka.client import client_library
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.publish.ports import Broker


def kafka_broker(settings: KafkaSettings, prefix: str, replay: str = "") -> Broker:
    """A broker.

    Args:
        settings: brokers, options of the client, and how topics are made.
        prefix: topic prefix.
        replay: prefix that a replay writes; empty for the publisher of everything.

    Raises:
        ConfigurationError: the extra `kafka` is not installed, or an option is wrong.
    """
    client_library("bootstrap.servers", "(given)", "aiokafka")
    made: Broker = importlib.import_module("cdc_assets.adapters.kafka.producer").KafkaBroker(settings, prefix, replay)
    return made
