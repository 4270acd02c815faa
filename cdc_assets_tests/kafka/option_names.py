"""Which options there are, by the client itself."""

from functools import cache

from confluent_kafka import KafkaException, Producer

from cdc_assets.adapters.kafka.options import JAVA, is_of_java_alone


@cache
def is_option(name: str) -> bool:
    """Whether it is an option of Java's producer or of librdkafka that can be set here."""
    if name in JAVA or name == "sasl.jaas.config" or is_of_java_alone(name):
        return True
    try:
        Producer({name: "?", "log_level": 0})
    except KafkaException as error:
        return "No such configuration property" not in str(error)
    return True
