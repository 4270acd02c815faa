"""Makes the broker that publishes, and checks its options."""

from cdc_assets.adapters.kafka.client import client_library, made
from cdc_assets.adapters.kafka.options import producer_options
from cdc_assets.adapters.kafka.producer import KafkaBroker
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
    return KafkaBroker(settings, prefix, replay)


def check_options(settings: KafkaSettings) -> None:
    """Check the options of the client that writes; no broker is queried.

    Raises:
        ConfigurationError: the extra `kafka` is not installed, or an option is wrong.
    """
    library = client_library("bootstrap.servers", settings.servers)
    options = producer_options(settings, "doctor")
    del options["bootstrap.servers"]
    made(library, library.Producer, options, settings.producer).end()
