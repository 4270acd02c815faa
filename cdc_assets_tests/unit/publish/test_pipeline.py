"""Batches that are sent again by a producer with several requests on their way; no broker is needed."""

import asyncio
from itertools import permutations
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.producer.message_accumulator import MessageBatch

from cdc_assets.adapters.kafka import pipeline
from cdc_assets.adapters.kafka.pipeline import PipelinedProducer
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
                one.get_data_buffer()
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

    monkeypatch.setattr(pipeline, "SendProduceReqHandler", Handler)
    asyncio.run(send())
    assert requests == [[1], *([count] for count in range(1, len(behind) + 2))]
