"""Transactions of the client that writes, with a client in place of aiokafka's; no broker is needed."""

import asyncio
import gc
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka import errors as kafka_errors

from cdc_assets.adapters.kafka import transactions
from cdc_assets.adapters.kafka.batches import Batch
from cdc_assets.adapters.kafka.transactions import FailedError, Transactions
from cdc_assets.core.interruption import Interrupted
from cdc_assets_tests.certificates import self_signed
from cdc_assets_tests.unit.publish.records import batch


class Client:
    """Takes batches after a moment, the first of a partition last; refuses those of some topics."""

    def __init__(self, **options: Any) -> None:
        self.called: list[object] = []
        self.most, self.waiting = 0, 0
        self.hangs = options.get("hangs", "")

    async def start(self) -> None:
        if self.hangs == "start":
            await asyncio.sleep(600)

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> "asyncio.Future[None]":
        await asyncio.sleep(0.02 if not self.called else 0.001)
        self.called.append((topic, partition, batch.record_count()))
        self.waiting += batch.bytes
        self.most = max(self.most, self.waiting)
        taken = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.005, self._taken, taken, topic, batch.bytes)
        return taken

    def _taken(self, taken: "asyncio.Future[None]", topic: str, size: int) -> None:
        self.waiting -= size
        if taken.done():
            return
        if "refused" in topic:
            taken.set_exception(kafka_errors.MessageSizeTooLargeError(topic))
        else:
            taken.set_result(None)

    async def commit_transaction(self) -> None:
        self.called.append("commit")

    async def stop(self) -> None:
        pass


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Transactions, Client]]:
    client = Client()
    monkeypatch.setattr(transactions, "PipelinedProducer", lambda **_: client)
    running = Transactions({})
    running.start(10)
    yield running, client
    running.close()


def test_batches_of_a_partition_keep_their_order_and_come_before_the_commit(own: tuple[Transactions, Client]) -> None:
    running, client = own
    for number in range(1, 30):
        running.send("t", number % 2, batch(number), 10)
    running.commit(60)
    *sent, last = client.called
    assert last == "commit"
    for partition in (0, 1):
        own_sent = [one[2] for one in sent if isinstance(one, tuple) and one[1] == partition]
        assert own_sent == [number for number in range(1, 30) if number % 2 == partition]


def test_nothing_is_committed_if_a_batch_was_refused(own: tuple[Transactions, Client]) -> None:
    running, client = own
    for topic in ("refused", "t", "refused too"):
        running.send(topic, 0, batch(1), 10)
    with pytest.raises(FailedError) as told:
        running.commit(60)
    assert {one.topic for one in told.value.failures} == {"refused", "refused too"}
    assert "commit" not in client.called
    with pytest.raises(FailedError):
        running.send("t", 0, batch(1), 10)


def test_a_slow_broker_delays_the_sender(own: tuple[Transactions, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    running, client = own
    monkeypatch.setattr(transactions, "_MOST_BYTES", 250_000)
    for number in range(20):
        running.send("t", number, batch(10, 5000), 60)
    running.commit(60)
    assert len(client.called) == 21
    assert client.most <= 250_000


def test_a_broker_that_takes_nothing_ends_the_wait_for_room(
    own: tuple[Transactions, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, client = own
    monkeypatch.setattr(transactions, "_MOST_BYTES", 1)
    monkeypatch.setattr(client, "_taken", lambda *_: None)
    running.send("t", 0, batch(1), 10)
    with pytest.raises(TimeoutError):
        running.send("t", 0, batch(1), 0.1)


def test_a_request_to_end_ends_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> None:
        raise Interrupted

    monkeypatch.setattr(transactions, "PipelinedProducer", lambda **_: Client(hangs="start"))
    monkeypatch.setattr(transactions, "check", asked)
    running = Transactions({})
    with pytest.raises(Interrupted):
        running.start(600)
    running.close()
    assert not running._thread.is_alive()


def test_a_broker_that_is_away_is_told_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        running = Transactions({"bootstrap_servers": ["127.0.0.1:1"], "transactional_id": "x"})
        with pytest.raises(kafka_errors.KafkaConnectionError):
            running.start(60)
        begun = time.monotonic()
        running.close()
        assert time.monotonic() - begun < 20
    assert [record.levelno for record in caplog.records if "127.0.0.1" in record.getMessage()] == [logging.ERROR]


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize("answers", ["nothing", "an end", "rubbish", "TLS alone"])
def test_no_connection_is_left_to_the_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, answers: str
) -> None:
    left: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", left.append)
    options: dict[str, Any] = {"transactional_id": "x", "security_protocol": protocol, "request_timeout_ms": 1000}
    certificate, key = self_signed(tmp_path)
    if protocol == "SSL":
        options["ssl_context"] = ssl.create_default_context(cafile=str(certificate))
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as server:
        taker = threading.Thread(target=_take, args=(server, answers, own))
        taker.start()
        running = Transactions(options | {"bootstrap_servers": [f"127.0.0.1:{server.getsockname()[1]}"]})
        with pytest.raises((TimeoutError, kafka_errors.KafkaError, OSError)):
            running.start(0.7)
        running.close()
        assert not running._thread.is_alive()
        del running
        gc.collect()
        server.shutdown(socket.SHUT_RDWR)
        taker.join()
    assert not left


def _take(server: socket.socket, answers: str, own: ssl.SSLContext) -> None:
    """Take connections, and answer nothing that a broker would."""
    held = []
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            if answers == "TLS alone":
                with suppress(OSError):
                    connection = own.wrap_socket(connection, server_side=True)
            held.append(connection)
            if answers == "rubbish":
                connection.sendall(b"\0\0\0\x08rubbish!")
            elif answers == "an end":
                connection.close()
    for connection in held:
        connection.close()
