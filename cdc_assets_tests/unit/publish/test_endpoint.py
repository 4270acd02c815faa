"""A token endpoint that takes connections and answers nothing: no client's end waits for it."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cdc_assets.adapters.kafka.broker import check_options
from cdc_assets.adapters.kafka.marker import KafkaMarker
from cdc_assets.adapters.kafka.preflight import inspect_kafka
from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.adapters.kafka.signals import KafkaSignals
from cdc_assets.adapters.kafka.source import KafkaSource
from cdc_assets.config.reader import KAFKA, Converter, ReaderSettings
from cdc_assets.config.settings import KafkaSettings, SignalSettings
from cdc_assets.core.interruption import Interrupted, limited
from cdc_assets.errors import ConnectionLostError

LIMIT_S = 1.0
SOON_S = 3.0
"""After the limit; the endpoint alone would take 20 s."""


@pytest.fixture
def settings() -> Iterator[KafkaSettings]:
    """Of brokers that are away, and of users whose tokens nobody gives."""
    with socket.create_server(("127.0.0.1", 0)) as endpoint:
        given = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.client.id": "cdc",
            "sasl.oauthbearer.client.secret": "secret",
            "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{endpoint.getsockname()[1]}/token",
        }
        yield KafkaSettings(servers="127.0.0.1:1", producer=tuple(given.items()))


@contextmanager
def soon(after_s: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < after_s + SOON_S


def test_the_options_are_checked(settings: KafkaSettings) -> None:
    with soon(0):
        check_options(settings)


def test_a_look_for_the_marker_ends_at_its_limit(settings: KafkaSettings) -> None:
    with soon(LIMIT_S):
        with pytest.raises(ConnectionLostError) as told:
            KafkaMarker(settings, "shop", LIMIT_S).newest()
        del told


def test_doctor_ends_at_its_limit(settings: KafkaSettings) -> None:
    with soon(5.0):
        assert not any(found.ok for found in inspect_kafka(settings, "shop"))


def test_a_publisher_that_is_asked_to_end(settings: KafkaSettings) -> None:
    broker = KafkaBroker(settings, "shop")
    for wait in (broker.open, broker._start):
        with soon(LIMIT_S):
            with pytest.raises(Interrupted) as told, limited(LIMIT_S):
                wait()
            broker.close()
            del told


def test_a_look_for_signals_that_is_asked_to_end(settings: KafkaSettings) -> None:
    given = SignalSettings(kafka_servers=settings.servers, kafka_consumer=settings.producer)
    signals = KafkaSignals(given, "shop")
    began = time.monotonic()
    with pytest.raises(Interrupted) as told, limited(0.2):
        signals.receive({})
    assert time.monotonic() - began < 2, "no request is waited for"
    with soon(0):
        signals.close()
    del told


def test_a_reader_that_is_asked_to_end(settings: KafkaSettings) -> None:
    own = ReaderSettings(
        KAFKA, "shop", Converter(), Converter(), servers=settings.servers, topics=("t",), options=settings.producer
    )
    with soon(LIMIT_S):
        with pytest.raises(Interrupted) as told, limited(LIMIT_S):
            KafkaSource(own, (), lambda *_: None)
        del told
