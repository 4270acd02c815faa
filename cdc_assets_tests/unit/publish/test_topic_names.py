"""Names of topics may come from a column: one that Kafka does not have stops its own topic, and no other."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from cdc_assets.adapters.kafka.admin import KafkaTopics
from cdc_assets.config.settings import KafkaSettings

WRONG = ("a\0b", "a b", "é", "", ".", "..", "a" * 250, "a\n")


@pytest.fixture
def servers() -> Iterator[str]:
    """Of a broker that the client library simulates."""
    own = Producer({"bootstrap.servers": "simulated:1", "test.mock.num.brokers": 1, "log_level": 0})
    [broker] = own.list_topics(timeout=10).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del own


def test_what_kafka_does_not_have_is_refused_by_name(servers: str) -> None:
    topics = KafkaTopics(KafkaSettings(servers=servers, creates=False), "shop.__published", 5.0)
    found = topics.prepare([*WRONG, "a" * 249, "._-"])
    assert {name for name, reason in found.items() if "letters, digits" in reason} == set(WRONG)
    assert "'a\\x00b'" in found["a\0b"]
    assert all("topic.creation.enable" in found[name] for name in ("a" * 249, "._-"))
