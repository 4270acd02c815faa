"""Makes the broker that publishes; its libraries are imported once topics are published, and not before."""

import importlib
from typing import Any

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
    made: Broker = _module("producer", settings).KafkaBroker(settings, prefix, replay)
    return made


def check_options(settings: KafkaSettings) -> None:
    """Check the options of the client that writes; no broker is asked.

    Raises:
        ConfigurationError: the extra `kafka` is not installed, or an option is wrong.
    """
    _module("arguments", settings).ProducerOptions.of(settings, "doctor")


def _module(name: str, settings: KafkaSettings) -> Any:
    """One of this package that imports the client."""
    client_library("bootstrap.servers", settings.servers, "aiokafka")
    return importlib.import_module(f"cdc_assets.adapters.kafka.{name}")
