"""Writes records into Kafka in transactions, through librdkafka (extra `kafka`).

Partitions are chosen as by Java's producer: murmur2 of the serialised key, a random one for a record without a key. The transactional id
is of the capture's topic prefix, so of two producers the newer fences the older; starting it waits until the older one's open transaction
has ended, so the newest committed marker is final.

*Sizes.* The broker refuses a batch that is larger than its topic allows, and the client then fails all of its records. So a
topic's limit is queried, and a record beyond it is refused before it is sent. A topic whose limit is below the client's batches is
flushed before a batch could exceed it. A record that fits its topic only if it is compressed is sent by itself, so the answer is about it.

*Partitions.* One that a transform has chosen and the topic does not have is refused as well: no client can wait for it.

*A topic of which a partition takes no records now* (`offline`) is refused, too, as far as that is known when a transaction begins. So is one
whose records were not taken in time, if those of others were.

*Another producer after a transaction that was not committed.* It fences whoever came in between; whether one did that has
written a marker is checked before anything is written.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cdc_assets.adapters.kafka.admin import KafkaTopics
from cdc_assets.adapters.kafka.client import client_library
from cdc_assets.adapters.kafka.errors import Translation
from cdc_assets.adapters.kafka.marker import KafkaMarker
from cdc_assets.adapters.kafka.options import producer_options, whole
from cdc_assets.adapters.kafka.sizes import DEFAULT_BYTES, HEAD_BYTES, Limits, record_sizes
from cdc_assets.adapters.kafka.transactions import Transactions
from cdc_assets.adapters.kafka.waits import STEP_S, Wait
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.core.interruption import sleep
from cdc_assets.errors import ConnectionLostError
from cdc_assets.publish.records import Numbers, RecordSlice

_REQUEST_TIMEOUT_S: Final = 30.0
"""Time limit of a request to a broker."""
_ABORT_S: Final = 5.0
"""Seconds that an abort may take; the next producer ends what is left of a transaction."""
_OFFLINE_S: Final = 5.0
"""Seconds after which it is asked again which topics take no records."""
_ELECTION_S: Final = 10.0
"""Seconds that the election of a leader may take, or a new topic until its leader is known."""
_OUTCOME_S: Final = 120.0
"""Time limit of a commit, in which the client repeats what fails, unless `delivery.timeout.ms` says another."""

_WAITS: Final = (
    "the transaction of before does not end, perhaps because a partition that has records of it cannot be written ({}); the broker ends it "
    "once that partition can be written, or its topic is deleted"
)
_UNTAKEN: Final = (
    "its records were not taken in time (producer.delivery.timeout.ms), though those of other topics were: see whether the brokers that lead its "
    "partitions can be reached from here"
)


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
        self._kafka = client_library("bootstrap.servers", settings.servers)
        self._marker = KafkaMarker(settings, prefix, _REQUEST_TIMEOUT_S, replay)
        self._topics = KafkaTopics(settings, self._marker.topic, _REQUEST_TIMEOUT_S)
        name = f"cdc-assets-{prefix}-replay-{replay}" if replay else f"cdc-assets-{prefix}"
        self._options = producer_options(settings, name)
        self._errors = Translation(self._kafka, settings.servers, prefix, name, self._marker.topic)
        record = whole(self._options, "message.max.bytes", DEFAULT_BYTES)
        batch = min(record, whole(self._options, "batch.size", DEFAULT_BYTES))
        is_compressed = self._options.get("compression.type", "none") != "none"
        self._limits = Limits(self._topics.limits, record, batch, compressed=is_compressed)
        self._outcome_s = max(
            _REQUEST_TIMEOUT_S, whole(self._options, "message.timeout.ms", int(_OUTCOME_S * 1000)) / 1000
        )
        self._transactions: Transactions | None = None
        self._newest: str | None = None
        self._unflushed: dict[str, int] = {}
        """Bytes of topics with a low limit that are perhaps in one batch."""
        self._counts: dict[str, int] = {}
        """Partitions of topics, as of this transaction."""
        self._sent: set[str] = set()
        """Topics of this transaction, of which the client was given records."""
        self._offline, self._offline_at = dict[str, str](), 0.0
        """Topics that take no records, with the reason, and when that was asked last."""

    def open(self) -> str | None:
        """See `Broker`."""
        self.close()
        if trouble := self.prepare([self._marker.topic]):
            raise ConnectionLostError(
                f"Topic {self._marker.topic} cannot be created: {trouble[self._marker.topic]}. "
                "Next: check topic.creation.default.replication.factor, or make it: one partition, cleanup.policy=compact."
            )
        self._start()
        self._newest = self.newest()
        return self._newest

    def newest(self, *, final: bool = True) -> str | None:
        """See `Broker`."""
        return self._marker.newest(final=final)

    def prepare(self, topics: Sequence[str]) -> Mapping[str, str]:
        """See `Broker`."""
        self._offline_at = 0.0  # what is new is not known of
        return self._topics.prepare(topics)

    def begin(self) -> None:
        """See `Broker`."""
        for known in (self._unflushed, self._counts, self._sent):
            known.clear()
        if self._transactions is None:
            self._start()
            if self.newest() != self._newest:
                raise self._errors.fenced("the newest marker is not of this one")
        with self._translated():
            if not self._offline_at or monotonic() - self._offline_at >= _OFFLINE_S:
                self._note_offline()
            self._open_transactions.begin()

    def send(self, topic: str, records: RecordSlice) -> tuple[int, str]:
        """See `Broker`."""
        if self._open_transactions.is_over:  # nothing of this transaction will be committed, and the commit says why
            return len(records), ""
        if reason := self._offline.get(topic):
            return 0, reason
        sizes = record_sizes(records)
        taken, why = min(
            self._limits.too_large(topic, sizes), self._invalid_partition(topic, records), _invalid_timestamp(records)
        )
        if not taken:
            return taken, why
        self._sent.add(topic)
        with self._translated():
            sent, refused = self._hand_over(topic, records.slice(0, taken), sizes[:taken])
        return (sent, refused) if refused else (taken, why)

    def commit(self, marker: str) -> Mapping[str, str]:
        """See `Broker`."""
        own, refused = self._open_transactions, dict[str, str]()
        with self._translated():
            try:
                if not own.send(self._marker.topic, _one(self._marker.key, marker.encode()), self._outcome_s):
                    raise self._errors.marker_refused(self._limits.beyond_client(len(marker.encode())))
                own.commit(self._outcome_s)
            except self._kafka.KafkaException as error:
                if error.args[0].fatal():  # another one may have taken over: what it refused before is its to find out
                    raise
                refused = self._refused(error.args[0]) or self._untaken()
                if not refused:
                    raise
        if why := refused.get(self._marker.topic):
            raise self._errors.marker_refused(why)
        if not refused:
            self._newest = marker
        return refused

    def abort(self) -> None:
        """See `Broker`."""
        if self._transactions is not None:
            with suppress(self._kafka.KafkaException, TimeoutError):  # the next producer ends what it left
                self._transactions.abort(_ABORT_S)
        self.close()

    def close(self) -> None:
        """See `Broker`."""
        if self._transactions is not None:
            self._transactions.close()
        self._transactions = None

    def _start(self) -> None:
        own = self._transactions = Transactions(self._kafka, self._options, self._settings)
        with self._translated():
            try:
                own.start(_REQUEST_TIMEOUT_S)
            except TimeoutError:
                with suppress(self._kafka.KafkaException):
                    if offline := own.offline(self._topics.in_sync, _REQUEST_TIMEOUT_S):
                        raise TimeoutError(
                            _WAITS.format(", ".join(f"{name}: {why}" for name, why in offline.items()))
                        ) from None
                raise

    def _note_offline(self) -> None:
        """Note which topics take no records; one that was not known is given the time that its leader's election may take."""
        wait = Wait(_ELECTION_S)
        while (
            not (found := self._open_transactions.offline(self._topics.in_sync, _REQUEST_TIMEOUT_S)).keys()
            <= self._offline.keys()
        ):
            try:
                wait.go_on()
            except TimeoutError:
                break
            sleep(STEP_S)
        self._offline, self._offline_at = found, monotonic()

    @property
    def _open_transactions(self) -> Transactions:
        if self._transactions is None:
            raise ConnectionLostError(f"Kafka at {self._settings.servers} is not connected. Next: open it again.")
        return self._transactions

    def _hand_over(self, topic: str, records: RecordSlice, sizes: Numbers) -> tuple[int, str]:
        """Hand over records; how many come before the first that is refused, and why; all of them, and nothing, if none is."""
        for start, stop in self._parts(topic, sizes):
            if self._open_transactions.is_over:  # by an earlier record
                break
            count = self._open_transactions.send(topic, records.slice(start, stop), self._outcome_s)
            if count < stop - start:
                return start + count, self._limits.beyond_client(int(sizes[start + count]))
            if int(sizes[start]) + HEAD_BYTES > self._limits.of(topic):  # it is sent by itself
                self._flush()
                if self._errors.refusals(self._open_transactions.failed).get(topic):
                    return start, self._limits.beyond(topic, int(sizes[start]) + HEAD_BYTES)
        return len(sizes), ""

    def _parts(self, topic: str, sizes: Numbers) -> Iterator[tuple[int, int]]:
        """Begin and end of what can be handed over at once; all of it, unless the topic's limit is low."""
        ends, limit, start = np.cumsum(sizes), self._limits.of(topic) - HEAD_BYTES, 0
        is_bounded = self._limits.is_low(topic) or int(sizes.max(initial=0)) > limit
        while start < len(sizes):
            stop, before = len(sizes), int(ends[start - 1]) if start else 0
            if is_bounded:
                room = limit - self._unflushed.get(topic, 0)
                stop = int(np.searchsorted(ends, before + room, "right"))
                if stop <= start and topic in self._unflushed:
                    self._flush()
                    continue
                stop = max(stop, start + 1)
            self._unflushed[topic] = self._unflushed.get(topic, 0) + int(ends[stop - 1]) - before
            yield start, stop
            start = stop

    def _flush(self) -> None:
        self._open_transactions.flush(self._outcome_s)
        self._unflushed.clear()

    def _invalid_partition(self, topic: str, records: RecordSlice) -> tuple[int, str]:
        """How many records come before the first whose chosen partition does not exist, and what is reported of it."""
        if records.partitions is None:
            return len(records), ""
        chosen = records.partitions.fill_null(0).to_numpy(zero_copy_only=False)
        if int(chosen.max(initial=0)) >= self._counts.get(topic, 1) or int(chosen.min(initial=0)) < 0:
            with self._translated():
                self._counts[topic] = self._open_transactions.partitions(topic, _REQUEST_TIMEOUT_S)
        count = self._counts.get(topic, 1)
        wrong = (chosen < 0) | (chosen >= count)
        if not wrong.any() or not count:  # which the client reports
            return len(records), ""
        at = int(np.argmax(wrong))
        return at, (
            f"it is for partition {chosen[at]}, which a transform has chosen, and {topic} has {count} (0 to {count - 1}): "
            "it needs more partitions, or another value in the column"
        )

    def _refused(self, error: Any) -> dict[str, str]:
        """Topics that are the reason why a transaction is not committed, if the reason does not pass."""
        found = self._errors.refusals(self._open_transactions.failed)
        if (
            not found and error.code() == self._kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
        ):  # which of them, it does not say
            found = dict(self._topics.unwritable_topics([*self._sent, self._marker.topic]))
        return found

    def _untaken(self) -> dict[str, str]:
        """Topics whose records were not taken in time though those of others were, and the brokers were there all the time."""
        late = {
            topic for topic, code in self._open_transactions.failed if code == self._kafka.KafkaError._MSG_TIMED_OUT
        }
        if self._marker.topic in late or not self._sent - late or self._open_transactions.was_away:
            return {}
        try:  # records that were given to the client later may only wait still
            self._open_transactions.offline(self._topics.in_sync, _REQUEST_TIMEOUT_S)
        except self._kafka.KafkaException:
            return {}
        return dict.fromkeys(sorted(late), _UNTAKEN)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._kafka.KafkaException as error:
            own = self._transactions
            first, failed = (error.args[0], []) if own is None else (own.explained(error.args[0]), own.failed.values())
            raise self._errors.error([first, *failed], self._connection_error()) from None
        except TimeoutError as error:
            raise self._errors.lost(self._connection_error() or str(error)) from None

    def _connection_error(self) -> str:
        return "" if self._transactions is None else self._transactions.connection_error


def _one(key: bytes, value: bytes) -> RecordSlice:
    """A marker, for the first partition."""
    return RecordSlice(
        -1, pa.array([""]), pa.array([key], pa.large_binary()), pa.array([value], pa.large_binary()), partition=0
    )


def _invalid_timestamp(records: RecordSlice) -> tuple[int, str]:
    """How many records come before the first whose time Kafka does not have, and what is reported of it."""
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
