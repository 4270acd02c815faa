"""A topic that cannot hold markers is refused, and a marker that is gone publishes nothing a second time, with a real broker."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from cdc_assets.adapters.kafka.marker import replay_topic
from cdc_assets.adapters.kafka.preflight import inspect_kafka
from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings import KafkaSettings
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.publishing import Publishing
from mssql_standin.control import StandIn

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_a_topic_that_cannot_hold_markers_is_refused(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    case = Publishing(server, tmp_path, broker, "unfit")
    case.insert(1)
    case.capture("snapshot")
    marker = f"{case.prefix}.__published"
    broker.create(marker, 1, cleanup__policy="delete")
    done = case.command()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "cleanup.policy=delete, expected compact" in one_line(done.stderr)
    (found,) = [one for one in inspect_kafka(case.config.kafka, case.prefix) if not one.ok]
    assert (found.subject, "cleanup.policy=delete" in found.actual) == (marker, True)
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, marker, incremental_configs=[entry])
    broker.admin.incremental_alter_configs([resource])[resource].result(30)
    case.publish()
    assert case.ids() == [1]
    assert all(one.ok for one in inspect_kafka(case.config.kafka, case.prefix))


def test_one_of_several_partitions_is_refused(server: StandIn, tmp_path: Path, broker: Broker) -> None:
    case = Publishing(server, tmp_path, broker, "several")
    case.insert(1)
    case.capture("snapshot")
    broker.create(f"{case.prefix}.__published", 3, cleanup__policy="compact")
    done = case.command()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "has 3 partitions, expected one" in one_line(done.stderr)


@pytest.mark.parametrize("how", ["topic deleted", "key removed"])
def test_a_deleted_marker_publishes_nothing_again(server: StandIn, tmp_path: Path, broker: Broker, how: str) -> None:
    case = Publishing(server, tmp_path, broker, how.replace(" ", "-"))
    case.insert(1, 2)
    case.capture("snapshot")
    case.publish()
    marker = f"{case.prefix}.__published"
    if how == "topic deleted":
        broker.admin.delete_topics([marker])[marker].result(30)
    else:
        broker.write(marker, [(0, case.prefix, None)])
    done = case.command()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "there is no marker in Kafka" in one_line(done.stderr)
    assert case.ids() == [1, 2]
    case.insert(3)
    case.capture()
    case.publish("--resume")
    assert case.ids() == [1, 2, 3]
    case.publish()
    assert case.ids() == [1, 2, 3]


def test_a_transaction_that_another_one_left_open_hides_no_marker(broker: Broker) -> None:
    """Replays share a topic of markers. One that was killed in its commit leaves what others write behind it unread until it times out."""
    settings = KafkaSettings(servers=broker.servers)
    first, again = (KafkaBroker(settings, "open", "other") for _ in range(2))
    try:
        assert first.open() is None
        killed = Producer(
            {"bootstrap.servers": broker.servers, "transactional.id": "x", "transaction.timeout.ms": 5000}
        )
        killed.init_transactions(30)
        killed.begin_transaction()
        killed.produce(replay_topic("open"), "half", "killed", 0)
        assert not killed.flush(30)
        first.begin()
        assert not first.commit("its marker")
        assert again.open() == "its marker"
    finally:
        for one in (first, again):
            one.close()
