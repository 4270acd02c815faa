"""Writes records into Kafka in transactions, through aiokafka (extra `kafka`).

Partitions are chosen as by Java's producer. The transactional id is of the capture's topic prefix, so of two producers the newer fences
the older; starting it waits until the older one's open transaction has ended, so the newest committed marker is final.

*Batches.* Records wait until they fill a batch, or until the commit; what waits is bounded.

*Sizes.* The broker refuses a batch that is larger than the topic allows, and all of its records with it. So a topic's limit is asked
for, a record beyond it is refused before it is sent, and no batch exceeds it.

*Partitions.* One that a transform has chosen and the topic does not have is refused as well: no client can wait for it.

*Another producer after a transaction that was not committed.* It fences whoever came in between; that nobody did, who has
written a marker, is asked for before anything is written.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import numpy as np
import pyarrow as pa

from cdc_assets.adapters.kafka.admin import KafkaTopics
from cdc_assets.adapters.kafka.arguments import ProducerOptions
from cdc_assets.adapters.kafka.batches import batches
from cdc_assets.adapters.kafka.columns import Columns
from cdc_assets.adapters.kafka.compression import Compression
from cdc_assets.adapters.kafka.limits import DEFAULT_BYTES, Limits
from cdc_assets.adapters.kafka.marker import KafkaMarker
from cdc_assets.adapters.kafka.partitions import by_partition
from cdc_assets.adapters.kafka.refusals import CLIENT, REFUSALS, Translation, reason, refusals
from cdc_assets.adapters.kafka.transactions import FailedError, Failure, Transactions
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.errors import ConnectionLostError
from cdc_assets.publish.run import Run

log = logging.getLogger(__name__)

_ANSWER_S: Final = 30.0
"""Time limit of a request to a broker."""
_OUTCOME_S: Final = 120.0
"""Time limit of a commit, in which the client repeats what fails, unless `delivery.timeout.ms` says another."""
_WAITING_BYTES: Final = 16_000_000
"""Bytes of all topics that wait for full batches."""


class _Waiting:
    """Records of a topic that wait."""

    def __init__(self) -> None:
        self.parts: list[Columns] = []
        self.bytes = 0


class KafkaBroker:
    """See `Broker` of the room `publish`.

    Args:
        settings: brokers, options of the client, and how topics are made.
        prefix: topic prefix.
        replay: prefix that a replay writes; empty for the publisher of everything.

    Raises:
        ConfigurationError: the extra `kafka` is not installed, or an option is wrong.
    """

    def __init__(self, settings: KafkaSettings, prefix: str, replay: str = "") -> None:
        self._settings = settings
        self._marker = KafkaMarker(settings, prefix, _ANSWER_S, replay)
        self._topics = KafkaTopics(settings, self._marker.topic, _ANSWER_S)
        name = f"cdc-assets-{prefix}-replay-{replay}" if replay else f"cdc-assets-{prefix}"
        self._options = ProducerOptions.of(settings, name)
        self._errors = Translation(settings.servers, prefix, name, self._marker.topic)
        self._limits = Limits(self._topics.limits, self._options.most_bytes or DEFAULT_BYTES, self._options.compression)
        self._outcome_s = self._options.delivery_s or _OUTCOME_S
        self._transactions: Transactions | None = None
        self._newest: str | None = None
        self._compressions: dict[str, Compression] = defaultdict(lambda: Compression(*self._options.compression))
        self._waiting: dict[str, _Waiting] = {}
        self._waiting_bytes = 0
        self._refused: dict[str, str] = {}

    def open(self) -> str | None:
        """See `Broker`."""
        self.close()
        if trouble := self.prepare([self._marker.topic]):
            raise ConnectionLostError(
                f"Topic {self._marker.topic} cannot be made: {trouble[self._marker.topic]}. "
                "Next: check topic.creation.default.replication.factor, or make it: one partition, cleanup.policy=compact."
            )
        self._start()
        self._newest = self.newest()
        return self._newest

    def newest(self) -> str | None:
        """See `Broker`."""
        return self._marker.newest(exists=True)

    def prepare(self, topics: Sequence[str]) -> Mapping[str, str]:
        """See `Broker`."""
        return self._topics.prepare(topics)

    def begin(self) -> None:
        """See `Broker`."""
        self._refused.clear()
        if self._transactions is None:
            self._start()
            if self.newest() != self._newest:
                raise self._errors.fenced()
        with self._translated():
            self._own.begin(_ANSWER_S)

    def send(self, topic: str, records: Run) -> tuple[int, str]:
        """See `Broker`."""
        columns = Columns.of(records)
        taken, why = min(self._limits.too_large(topic, columns), self._elsewhere(topic, records), _untimely(records))
        if why:
            columns = Columns.of(records.slice(0, taken))
        if taken:
            size = int(columns.sizes().sum())
            waiting = self._waiting.setdefault(topic, _Waiting())
            waiting.parts.append(columns)
            waiting.bytes += size
            self._waiting_bytes += size
            with self._translated():
                try:
                    self._send_full(topic)
                except FailedError as error:  # which the commit tells
                    self._note_refused(error)
        return taken, why

    def commit(self, marker: str) -> Mapping[str, str]:
        """See `Broker`."""
        with self._translated():
            try:
                for topic in list(self._waiting):
                    self._hand_over(topic)
                if not self._refused:
                    self._hand_over_marker(marker)
                    self._own.commit(self._outcome_s)
            except FailedError as error:
                self._note_refused(error)
        if not self._refused:
            self._newest = marker
        return dict(self._refused)

    def abort(self) -> None:
        """See `Broker`."""
        if self._transactions is not None:
            with self._translated():
                self._transactions.abort(_ANSWER_S)
        self._end()

    def close(self) -> None:
        """See `Broker`."""
        with suppress(Exception):
            if self._transactions is not None:
                self._transactions.abort(2.0)
        self._end()

    def _end(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._transactions is not None:
            self._transactions.close()
        self._transactions = None

    def _start(self) -> None:
        self._transactions = Transactions(self._options.arguments)
        with self._translated():
            self._transactions.start(_ANSWER_S)

    @property
    def _own(self) -> Transactions:
        if self._transactions is None:
            raise ConnectionLostError(f"Kafka at {self._settings.servers} is not connected. Next: open it again.")
        return self._transactions

    def _elsewhere(self, topic: str, records: Run) -> tuple[int, str]:
        """How many records come before the first whose chosen partition does not exist, and what is told of it."""
        if records.partitions is None:
            return len(records), ""
        chosen = records.partitions.fill_null(0).to_numpy(zero_copy_only=False)
        count = 1
        if (most := int(chosen.max(initial=0))) > 0:
            with self._translated():
                try:
                    count = self._own.partitions(topic, _ANSWER_S, most)
                except REFUSALS as error:
                    return 0, reason(topic, error)
        wrong = (chosen < 0) | (chosen >= count)
        if not wrong.any():
            return len(records), ""
        at = int(np.argmax(wrong))
        return at, (
            f"it is for partition {chosen[at]}, which a transform has chosen, and {topic} has {count} (0 to {count - 1}): "
            "it needs more partitions, or another value in the column"
        )

    def _send_full(self, topic: str) -> None:
        """Hand over what fills a batch, and everything if too much waits."""
        if self._waiting[topic].bytes >= self._compressions[topic].room(self._limits.of_batch(topic)):
            self._hand_over(topic)
        if self._waiting_bytes >= _WAITING_BYTES:
            for other in list(self._waiting):
                self._hand_over(other)

    def _note_refused(self, error: FailedError) -> None:
        """Note topics that are refused; raise the error if none is."""
        found = refusals(error.failures)
        if not found:
            raise error
        if why := found.get(self._marker.topic):
            raise self._errors.marker_refused(why)
        self._refused |= found

    def _hand_over(self, topic: str) -> None:
        waiting = self._waiting.pop(topic)
        self._waiting_bytes -= waiting.bytes
        if self._refused:  # nothing of this transaction will be committed
            return
        try:
            count = self._own.partitions(topic, _ANSWER_S)
        except REFUSALS as error:
            raise FailedError([Failure(topic, error)]) from None
        now, most = int(time.time() * 1000), self._limits.of_batch(topic)
        for partition, records in by_partition(Columns.joined(waiting.parts), count):
            for batch in batches(records, now, most, self._compressions[topic]):
                self._own.send(topic, partition, batch, self._outcome_s)

    def _hand_over_marker(self, marker: str) -> None:
        key, value = (pa.array([data], pa.large_binary()) for data in (self._marker.key, marker.encode()))
        records = Columns(key, value, pa.array([b"\0"], pa.large_binary()), None, None)
        for batch in batches(records, int(time.time() * 1000), DEFAULT_BYTES, Compression()):
            self._own.send(self._marker.topic, 0, batch, self._outcome_s)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except FailedError as error:
            raise self._errors.error([one.error for one in error.failures]) from None
        except CLIENT as error:
            raise self._errors.error([error]) from None


def _untimely(records: Run) -> tuple[int, str]:
    """How many records come before the first whose time Kafka does not have, and what is told of it."""
    if records.timestamps is None:
        return len(records), ""
    times = records.timestamps.fill_null(0).to_numpy(zero_copy_only=False)
    if not (wrong := times < 0).any():
        return len(records), ""
    at = int(np.argmax(wrong))
    return (
        at,
        f"its time, which a transform has chosen, is before 1970 ({times[at]} ms): it needs another value in the column",
    )
