"""However a client of a real broker ends, it leaves no connection, thread or file to the collector."""

import gc
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.adapters.kafka.marker import KafkaMarker
from cdc_assets.adapters.kafka.producer import KafkaBroker
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConnectionLostError, FencedError
from cdc_assets.publish.records import RecordSlice
from cdc_assets_tests.kafka.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


@contextmanager
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if a connection was left to the collector, or is still there."""
    found: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", found.append)
    gc.collect()
    files, threads = open_sockets(), threading.active_count()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        yield
        gc.collect()
    assert not found
    until = time.monotonic() + 20  # librdkafka's threads end after their client
    while (open_sockets() > files or threading.active_count() > threads) and time.monotonic() < until:
        time.sleep(0.1)
    assert (open_sockets(), threading.active_count()) == (files, threads)


def open_sockets() -> int:
    found = 0
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += str(file.readlink()).startswith("socket:")
    return found


def records(count: int, size: int) -> RecordSlice:
    column = pa.array([b"x" * size] * count, pa.large_binary())
    return RecordSlice(1, pa.array(list(map(str, range(count)))), column, column)


def ours(broker: Broker, prefix: str) -> KafkaBroker:
    given = {"delivery.timeout.ms": "3000", "request.timeout.ms": "2000"}
    return KafkaBroker(KafkaSettings(servers=broker.servers, producer=tuple(given.items())), prefix)


@pytest.fixture(scope="module", autouse=True)
def warm(broker: Broker) -> None:
    """Threads and files that stay in the process."""
    one = ours(broker, "warm")
    one.open()
    one.close()


def test_after_a_transaction(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create("closed.t")
    with nothing_left(monkeypatch):
        one = ours(broker, "closed")
        one.open()
        one.begin()
        one.send("closed.t", records(10, 10))
        assert not one.commit("marker")
        one.begin()
        one.send("closed.t", records(3, 400_000))
        one.abort()
        one.begin()
        one.close()
        KafkaMarker(KafkaSettings(servers=broker.servers), "closed").newest()
        del one


def test_after_a_fence(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create("fenced.t")
    with nothing_left(monkeypatch):
        older, newer = ours(broker, "fenced"), ours(broker, "fenced")
        older.open()
        older.begin()
        newer.open()
        older.send("fenced.t", records(10, 10))
        with pytest.raises(FencedError):
            older.commit("older")
        older.close()
        newer.close()
        del older, newer


@pytest.mark.parametrize("how", ["stands still", "is killed"])
def test_after_a_broker_that_is_away(broker: Broker, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    name = how.replace(" ", "")
    broker.create(f"{name}.t")
    with nothing_left(monkeypatch):
        one = ours(broker, name)
        one.open()
        one.begin()
        one.send(f"{name}.t", records(1, 10))
        assert not one.commit("marker")
        one.begin()
        if how == "is killed":
            broker.kill()
            fail(one, f"{name}.t")
            broker.start()
        else:
            with broker.standing_still():
                fail(one, f"{name}.t")
        del one


def fail(one: KafkaBroker, topic: str) -> None:
    with pytest.raises(ConnectionLostError):
        publish(one, topic)
    one.close()
    with pytest.raises(ConnectionLostError):
        one._start()
    one.close()


def publish(one: KafkaBroker, topic: str) -> None:
    one.send(topic, records(20, 400_000))
    one.commit("never")
