"""Transactions of aiokafka's producer, whose loop runs in a thread of its own.

*Nothing is committed that is not there.* aiokafka commits also if a batch has failed; so a commit waits for every batch first, and
one that failed ends the transaction. A producer whose batch has failed counts its sequence numbers on; such a one is never used
again, and a new one has numbers of its own.

*Order.* Batches of a partition are handed over one after the other, each once the one before it is on its way (`pipeline`).
*Memory.* A sender waits while more than `_MOST_BYTES` are not acknowledged.

*Waits* end after a time limit, and soon after the run was asked to end; then the producer is good for closing alone.
"""

import asyncio
import logging
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from aiokafka import errors as kafka_errors

from cdc_assets.adapters.kafka.batches import Batch
from cdc_assets.adapters.kafka.client import ThreadLog
from cdc_assets.adapters.kafka.pipeline import PipelinedProducer
from cdc_assets.core.interruption import Interrupted, check

log = logging.getLogger(__name__)

THREAD: Final = "kafka-producer"
_MOST_BYTES: Final = 16_000_000
"""Bytes that are on their way at most."""
_LOOK_S: Final = 0.25
"""Seconds between two looks whether the run was asked to end."""
_PATIENCE_S: Final = 3.0
"""Seconds that an answer is waited for nonetheless if the run was asked to end: most come at once, and then it is known what is there."""
_END_S: Final = 1.0
"""Seconds that each step of closing may take."""
_ROUNDS: Final = 3
"""Rounds of the loop in which a connection that was ended leaves it: that of TLS, and that beneath."""

T = TypeVar("T")


class InvalidRecordError(kafka_errors.BrokerResponseError):
    """The broker refuses a record, such as one without a key in a compacted topic."""

    errno, message, description = 87, "INVALID_RECORD", "This record has failed the validation on broker"


class NewerProducerError(kafka_errors.BrokerResponseError):
    """Another producer has taken over; newer versions of requests are answered so."""

    errno, message, description = 90, "PRODUCER_FENCED", "There is a newer producer with the same transactional id"


for _unknown in (InvalidRecordError, NewerProducerError):  # which the library knows by their numbers alone
    kafka_errors.kafka_errors.setdefault(_unknown.errno, _unknown)

_LOG: Final = ThreadLog(THREAD)
for _name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in ("aiokafka", "asyncio")]:
    logging.getLogger(_name).addFilter(_LOG)


class Failure(NamedTuple):
    """What has failed, and of which topic."""

    topic: str
    error: BaseException


class FailedError(Exception):
    """A batch of the transaction was not taken."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        super().__init__(str(failures[0].error))
        self.failures = failures


class Loop(asyncio.SelectorEventLoop):
    """An event loop that ends its connections.

    The client closes them politely, which lasts until the other side has read what is left, or has said good-bye (TLS); a broker that
    is away does neither.
    """

    def __init__(self) -> None:
        super().__init__()
        self._connections: weakref.WeakSet[asyncio.BaseTransport] = weakref.WeakSet()

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        """See `asyncio.AbstractEventLoop`."""
        found = await super().create_connection(*args, **options)
        self._connections.add(found[0])
        return found

    async def end_connections(self) -> None:
        """End those that are left at once."""
        for one in list(self._connections):
            if isinstance(one, asyncio.WriteTransport):
                one.abort()
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)


class Transactions:
    """One producer, from its start to its end.

    Args:
        options: of `AIOKafkaProducer`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._loop = Loop()
        self._loop.set_exception_handler(lambda _, context: log.debug("%s", context.get("message")))
        self._producer: Any = None
        self._order: dict[tuple[str, int], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sending: set[asyncio.Task[None]] = set()
        self._failures: list[Failure] = []
        self._counts: dict[str, int] = {}
        """Partitions of topics, as of this transaction."""
        self._bytes, self._room = 0, threading.Condition()
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self._thread.start()

    def start(self, limit_s: float) -> None:
        """Fence older producers of the same transactional id, and end their open transaction."""

        async def work() -> None:
            while True:
                self._producer = PipelinedProducer(**self._options)
                try:
                    await self._producer.start()
                except AssertionError:  # a broker that has just started does not know itself yet
                    await self._producer.stop()
                    await asyncio.sleep(_LOOK_S)
                else:
                    return

        self._wait(work(), limit_s, 0.0)

    def begin(self, limit_s: float) -> None:
        """Begin a transaction."""
        self._counts.clear()
        self._wait(self._producer.begin_transaction(), limit_s)

    def partitions(self, topic: str, limit_s: float, wanted: int = 0) -> int:
        """Number of a topic's partitions, as far as the client knows it; asked for once in a transaction, since the loop is at work.

        Args:
            wanted: a partition of which the broker is asked anew unless it is known.
        """

        if self._counts.get(topic, 0) > wanted:
            return self._counts[topic]

        async def work() -> int:
            found = await self._producer.partitions_for(topic)
            if wanted not in found:
                await self._producer.client.force_metadata_update()
                found = await self._producer.partitions_for(topic)
            return len(found)

        self._counts[topic] = self._wait(work(), limit_s)
        return self._counts[topic]

    def send(self, topic: str, partition: int, batch: Batch, limit_s: float) -> None:
        """Hand over a batch, once there is room.

        Raises:
            FailedError: an earlier batch has failed.
            TimeoutError: there is no room within the time limit.
        """
        until = time.monotonic() + limit_s
        with self._room:
            while self._bytes and self._bytes + batch.bytes > _MOST_BYTES and not self._failures:
                if time.monotonic() > until:
                    raise TimeoutError
                check()
                self._room.wait(_LOOK_S)
            failed = bool(self._failures)
            self._bytes += 0 if failed else batch.bytes
        if failed:
            self._wait(self._check(), limit_s)
        self._loop.call_soon_threadsafe(self._accept, topic, partition, batch)

    def commit(self, limit_s: float) -> None:
        """Commit once every batch is taken.

        Raises:
            FailedError: a batch has failed; nothing is committed.
        """

        async def work() -> None:
            if self._sending:
                await asyncio.wait(self._sending, return_when=asyncio.FIRST_EXCEPTION)
            await self._check()
            await self._producer.commit_transaction()

        self._wait(work(), limit_s)

    def abort(self, limit_s: float) -> None:
        """End the transaction without a trace; batches that are not on their way never will be."""

        async def work() -> None:
            for task in self._sending:
                task.cancel()
            await self._producer.abort_transaction()

        self._wait(work(), limit_s)

    def close(self) -> None:
        """End the connections and the thread; quick also if the broker is away."""
        with suppress(RuntimeError):  # it is closed already
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S * 4)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._end())
        finally:
            self._loop.close()

    def _accept(self, topic: str, partition: int, batch: Batch) -> None:
        task = self._loop.create_task(self._hand_over(topic, partition, batch))
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: "asyncio.Task[None]") -> None:
        self._sending.discard(task)
        if not task.cancelled():
            task.exception()  # is among the failures

    async def _check(self) -> None:
        """Raise what has failed, with what else fails at the same time: topics that are refused as well."""
        if self._failures:
            if self._sending:
                await asyncio.wait(self._sending, timeout=_END_S)
            raise FailedError(self._failures)

    async def _hand_over(self, topic: str, partition: int, batch: Batch) -> None:
        size = batch.bytes
        try:
            async with self._order[topic, partition]:
                if self._failures:
                    return
                taken = await self._producer.send_batch(batch, topic, partition=partition)
            await taken
        except Exception as error:
            self._failures.append(Failure(topic, error))
            raise
        finally:
            with self._room:
                self._bytes -= size
                self._room.notify_all()

    async def _end(self) -> None:
        await self._cancel_all()
        if self._producer is not None:
            with suppress(Exception):
                await asyncio.wait_for(self._producer.stop(), _END_S)
            await self._cancel_all()
        await self._loop.end_connections()

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=_END_S)

    def _wait(self, work: Coroutine[Any, Any, T], limit_s: float, patience_s: float = _PATIENCE_S) -> T:
        """The outcome of work in the loop.

        Raises:
            TimeoutError: it takes too long.
            Interrupted: the run was asked to end.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        until, asked = time.monotonic() + limit_s, 0.0
        while True:
            try:
                return future.result(min(_LOOK_S, limit_s))
            except TimeoutError:
                if future.done():
                    raise
            try:
                check()
            except Interrupted:
                asked = asked or time.monotonic()
                if time.monotonic() - asked >= patience_s:
                    future.cancel()
                    raise
            if time.monotonic() > until:
                future.cancel()
                raise TimeoutError
