"""Batches that are sent again by a producer with several requests on their way; no broker is needed."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.producer.message_accumulator import MessageBatch
from aiokafka.protocol.produce import ProduceRequest

from cdc_assets.adapters.kafka import pipeline
from cdc_assets.adapters.kafka.pipeline import PipelinedProducer
from cdc_assets.adapters.kafka.requests import JoinedRequest
from cdc_assets_tests.unit.publish.records import batch


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_what_is_sent_again_goes_first_and_in_its_order(order: tuple[int, ...]) -> None:
    async def put_back() -> list[int]:
        producer = PipelinedProducer(bootstrap_servers="127.0.0.1:1", transactional_id="t")
        accumulator, partition = producer._message_accumulator, TopicPartition("t", 0)
        sent = [MessageBatch(partition, batch(1), 100, 0) for _ in range(4)]
        for number, one in enumerate(sent[:3]):
            one._builder._set_producer_state(1, 0, number)
            one.drain_ready()
        accumulator._batches[partition].append(sent[3])
        accumulator._pending_batches.update(sent[:3])
        for number in order:
            accumulator.reenqueue(sent[number])
        found = [sent.index(one) for one in accumulator._batches[partition]]
        await producer.stop()
        return found

    assert asyncio.run(put_back()) == [0, 1, 2, 3]


@pytest.mark.parametrize("moves", [False, True], ids=["stays", "moves"])
@pytest.mark.parametrize("behind", [[], [0.01], [0.01, 0.03, 0.2], [0.0, 0.0, 0.0]])
def test_a_batch_that_failed_is_sent_again_before_those_behind_it(
    monkeypatch: pytest.MonkeyPatch, behind: list[float], moves: bool
) -> None:
    """Also if its partition has moved to another broker meanwhile."""
    requests: list[list[int]] = []

    class Handler:
        """Has the first request repeated, a moment after it has failed."""

        def __init__(self, sender: Any, batches: dict[Any, MessageBatch]) -> None:
            self._accumulator, self._batches = sender._message_accumulator, list(batches.values())
            self._to_reenqueue: list[MessageBatch] = []

        async def do(self, node: int) -> None:
            for one in self._batches:
                one._builder.parts()
            requests.append([one._builder.record_count() for one in self._batches])
            self._to_reenqueue = self._batches if len(requests) == 1 else []
            await asyncio.sleep(0.05)
            for one in self._batches:
                if self._to_reenqueue:
                    self._accumulator.reenqueue(one)
                else:
                    one.done_noack()

    async def send() -> None:
        producer = PipelinedProducer(bootstrap_servers="127.0.0.1:1", enable_idempotence=True)
        producer._txn_manager.set_pid_and_epoch(1, 0)
        monkeypatch.setattr(producer._metadata, "leader_for_partition", lambda _: int(moves and bool(requests)))
        producer._sender._sender_task = asyncio.create_task(producer._sender._sender_routine())
        taken = []
        for count, wait in enumerate([0.0, *behind], 1):
            await asyncio.sleep(wait)
            taken.append(await producer._message_accumulator.add_batch(batch(count), TopicPartition("t", 0), 5))
        await asyncio.wait_for(asyncio.gather(*taken), 5)
        await producer.stop()

    monkeypatch.setattr(pipeline, "Handler", Handler)
    asyncio.run(send())
    assert requests == [[1], *([count] for count in range(1, len(behind) + 2))]


@pytest.mark.parametrize("version", range(3, 8))
def test_a_request_that_is_joined_once_is_that_of_aiokafka(version: int) -> None:
    versions = {0: (0, version)}
    parts = {
        (topic, partition): (b"h%d" % partition, b"", topic.encode())
        for topic in ("a", "täble")
        for partition in (0, 3)
    }

    def topics(data: Callable[[Sequence[bytes]], Any]) -> list[tuple[str, list[tuple[int, Any]]]]:
        return [(topic, [(at, data(parts[topic, at])) for at in (0, 3)]) for topic in ("a", "täble")]

    ours, theirs = JoinedRequest("id", -1, 40000, topics(list)), ProduceRequest("id", -1, 40000, topics(b"".join))
    built = ours.prepare(versions)
    assert version == built.API_VERSION
    assert built.encode() == theirs.prepare(versions).encode()
    assert built.build_request_header(1, "c").encode() == theirs.prepare(versions).build_request_header(1, "c").encode()
