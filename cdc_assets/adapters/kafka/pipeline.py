"""aiokafka's producer with several requests on their way to a broker at once, where it has one.

With one, each batch waits until the broker has written the one before it, and for the way there and back.

*Why the order stays.* Requests of a connection are answered in their order, and each batch of a partition has a number that follows the
one before it: a broker that has not taken one refuses those behind it. What is to be sent again goes in front of what was not sent
yet, in the order of these numbers, and until it is there nothing else is sent, to no broker, since its partition may have moved. Should
a batch ever come too early nonetheless, the broker refuses it for good: the transaction ends, and is repeated as a whole. So no record is
doubled, left out or moved.
"""

import asyncio
from collections import defaultdict
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from cdc_assets.adapters.kafka.requests import Handler

_MOST: Final = 3
"""Requests that are on their way to a broker at once; brokers remember the numbers of five."""


class PipelinedProducer(AIOKafkaProducer):
    """See `AIOKafkaProducer`; takes batches of `send_batch` alone."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._under_way: dict[int, dict[asyncio.Task[None], Any]] = defaultdict(dict)
        self._put_first = self._message_accumulator.reenqueue
        self._message_accumulator.reenqueue = self._put_back
        self._sender._send_produce_req = self._request

    async def _request(self, node: int, batches: dict[Any, Any]) -> None:
        """Send a request; ends once there is room for another one, whether this one was answered or not."""
        await asyncio.sleep(0)  # requests that have just failed note so
        under_way, requests = self._under_way[node], [one for of in self._under_way.values() for one in of.items()]
        if failed := [task for task, handler in requests if handler._to_reenqueue]:
            await asyncio.wait(failed)
            for batch in batches.values():
                self._put_back(batch)
        else:
            handler = Handler(self._sender, batches)
            request = asyncio.create_task(self._answered(handler, node))
            under_way[request] = handler
            request.add_done_callback(under_way.pop)
            request.add_done_callback(self._sender._fail_all)  # as for an error in the sender's own task
            if len(under_way) >= _MOST:
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0)  # until it is written
        self._sender._in_flight.remove(node)
        self._sender._muted_partitions.difference_update(batches)

    async def _answered(self, handler: Handler, node: int) -> None:
        await handler.do(node)
        if handler._to_reenqueue:  # the sender may have stopped waiting for this request
            self._message_accumulator._wakeup(self._message_accumulator._waiter_future)

    def _put_back(self, batch: Any) -> None:
        """Have a batch sent again, before those with later numbers and those that have none yet."""
        self._put_first(batch)
        waiting = self._message_accumulator._batches[batch.tp]
        ordered = sorted(waiting, key=lambda one: (one._builder.number < 0, one._builder.number))
        waiting.clear()
        waiting.extend(ordered)
