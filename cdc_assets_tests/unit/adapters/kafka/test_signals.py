"""Signals from Kafka: the real client against librdkafka's own mock cluster."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from cdc_assets.adapters.kafka import signals
from cdc_assets.adapters.kafka.signals import KafkaSignals, kafka_channels
from cdc_assets.config.load import load_config
from cdc_assets.config.settings import SignalSettings
from cdc_assets.errors import ConfigurationError, ConnectionLostError
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.adapters.kafka.broker import Broker
from cdc_assets_tests.unit.signals.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def channel(broker: Broker) -> Iterator[KafkaSignals]:
    channel = KafkaSignals(broker.settings(), "shop")
    yield channel
    channel.close()


def signal(kind: str, **entry: object) -> str:
    return json.dumps({"type": kind, **entry})


def test_messages_with_the_capture_as_key_are_signals(broker: Broker, channel: KafkaSignals) -> None:
    broker.send(signal("log", data={"message": "old"}))
    broker.send(signal("log", id="mine", data='{"message": "text"}'))
    broker.send(signal("log"), key="another", partition=0)
    broker.send(None)
    broker.send("nonsense")
    assert channel.waiting({})
    delivery = channel.receive({})
    first, second, third = delivery.signals
    assert (first.id.startswith("kafka:shop-signal:"), first.data) == (True, '{"message": "old"}')
    assert (second.id, second.data) == ("mine", '{"message": "text"}')
    assert third.type == "nonsense"
    assert sum(delivery.reached.values()) == 5
    assert not channel.waiting(delivery.reached)
    assert channel.receive(delivery.reached).reached == {}
    channel.forget(delivery)
    broker.send(signal("pause-snapshot"))
    assert [one.type for one in channel.receive(delivery.reached).signals] == ["pause-snapshot"]


def test_the_group_counts_only_where_nothing_is_recorded(broker: Broker, channel: KafkaSignals) -> None:
    broker.send(signal("log"))
    delivery = channel.receive({})
    channel.forget(delivery)
    broker.send(signal("pause-snapshot"))
    assert [one.type for one in channel.receive({}).signals] == ["pause-snapshot"]
    again = channel.receive(dict.fromkeys(delivery.reached, 0))
    assert [one.type for one in again.signals] == ["log", "pause-snapshot"]


def test_a_new_capture_may_leave_old_messages_out(broker: Broker) -> None:
    broker.send(signal("log"))
    options = (("auto.offset.reset", "latest"), ("key.deserializer", "of.the.jvm"))
    channel = KafkaSignals(broker.settings(kafka_consumer=options), "shop")
    delivery = channel.receive({})
    assert delivery.signals == ()
    broker.send(signal("pause-snapshot"))
    assert [one.type for one in channel.receive(delivery.reached).signals] == ["pause-snapshot"]
    channel.close()


def test_a_topic_that_was_made_anew_is_read_from_its_start(broker: Broker, channel: KafkaSignals) -> None:
    broker.send(signal("log"))
    assert len(channel.receive({f"kafka:shop-signal:{number}": 99 for number in range(4)}).signals) == 1


def test_properties_of_the_channel(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop.json"
    texts = {
        "topic.prefix": "shop",
        "database.hostname": "db",
        "database.user": "reader",
        "database.names": DATABASE,
        "signal.enabled.channels": "kafka",
        "signal.kafka.bootstrap.servers": broker.address,
        "signal.kafka.topic": "orders-please",
        "signal.kafka.groupId": "people-who-watch",
        "signal.kafka.poll.timeout.ms": "50",
        "signal.consumer.client.id": "shop-capture",
    }
    path.write_text(json.dumps(texts))
    broker.send(signal("log"), topic="orders-please", partition=0)
    with kafka_channels(load_config(path, {})) as (channel,):
        assert isinstance(channel, KafkaSignals)
        poll, waits = channel._consumer.poll, list[float]()
        monkeypatch.setattr(channel._consumer, "poll", lambda seconds: waits.append(seconds) or poll(seconds))
        delivery = channel.receive({})
        channel.forget(delivery)
    assert [one.type for one in delivery.signals] == ["log"]
    assert set(waits) == {0.05}
    group = Consumer({"bootstrap.servers": broker.address, "group.id": "people-who-watch"})
    [place] = group.committed([TopicPartition("orders-please", 0)], timeout=10)
    group.close()
    assert place.offset == 1


def test_clear_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_REQUEST_TIMEOUT_S", 0.3)
    settings = SignalSettings(channels=("kafka",), kafka_servers="127.0.0.1:1")
    with pytest.raises(ConfigurationError, match=r"signal\.consumer\.own\.token") as refused:
        KafkaSignals(replace(settings, kafka_consumer=(("own.token", "secret"),)), "shop")
    assert "secret" not in str(refused.value)
    channel = KafkaSignals(settings, "shop")
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1"):
        channel.receive({})
    channel.close()
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigurationError, match=r"cdc-assets\[kafka\]"):
        KafkaSignals(settings, "shop")


@pytest.mark.parametrize("cut", [1, 2])
def test_each_message_acts_once_whatever_dies(broker: Broker, tmp_path: Path, cut: int) -> None:
    with StandIn(databases=(DATABASE,)) as server:
        server.agent.start()
        world = World(server, str(tmp_path), channels=("kafka",), kafka_servers=broker.address)
        table = world.make("orders", "id int PRIMARY KEY, version int")
        world.sql("INSERT INTO dbo.orders VALUES (1, 1)")
        server.agent.drain()
        world.run("snapshot")
        broker.send(signal("execute-snapshot", data={"data-collections": [f"{DATABASE}.dbo.orders"]}))
        with cut_at("signals-recorded", cut):
            try:
                world.run()
            except PowerCutError:
                server.agent.drain()
        world.run()
        world.run()
        assert [row["id"] for row in world.reads(table)] == [1]
        assert [kind for kind, _ in world.notes()].count("STARTED") <= 1


@pytest.mark.long
def test_a_topic_that_was_made_anew_is_read_once_though_a_database_has_left_the_capture(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with StandIn(databases=(DATABASE, "Other")) as server:
        server.agent.start()
        world = World(server, str(tmp_path), channels=("kafka",), kafka_servers=broker.address)
        alone = world.config.connection
        world.config = replace(world.config, connection=replace(alone, databases=(DATABASE, "Other")))
        world.make("orders", "id int PRIMARY KEY, version int")
        world.make("orders", "id int PRIMARY KEY, version int", "Other")
        world.run("snapshot")
        for _ in range(3):
            broker.send(signal("log", data={"message": "of the former topic"}), partition=0)
        world.run()
        anew = Broker()
        anew.send(signal("log", data={"message": "of the topic made anew"}), partition=0)
        settings = replace(world.config.signals, kafka_servers=anew.address)
        world.config = replace(world.config, connection=alone, signals=settings)
        caplog.set_level("INFO")
        world.run()
        world.run()
    assert caplog.messages.count("of the topic made anew") == 1


def test_a_broker_that_is_away_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_REQUEST_TIMEOUT_S", 0.3)
    with StandIn(databases=(DATABASE,)) as server:
        server.agent.start()
        world = World(server, str(tmp_path), channels=("kafka",), kafka_servers="127.0.0.1:1")
        table = world.make("orders", "id int PRIMARY KEY, version int")
        world.run("snapshot")
        world.sql("INSERT INTO dbo.orders VALUES (1, 1)")
        server.agent.drain()
        world.run()
        assert len(world.events(table)) == 1


def test_a_broker_that_goes_away_before_the_group_is_told_holds_nothing_up() -> None:
    broker = Broker()
    channel = KafkaSignals(broker.settings(), "shop")
    broker.send(signal("log"))
    delivery = channel.receive({})
    assert delivery.signals
    del broker.producer
    began = time.monotonic()
    channel.forget(delivery)
    channel.close()
    assert time.monotonic() - began < 5, "librdkafka waits for 45 s"


def test_without_the_channel_no_client_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with StandIn(databases=(DATABASE,)) as server:
        config = World(server, str(tmp_path)).config
    with kafka_channels(config) as channels:
        assert channels == []
