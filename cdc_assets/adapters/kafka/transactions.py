"""Transactions of librdkafka's producer (extra `kafka`).

*Nothing is committed that is not there.* The client commits only once every record is acknowledged; one that fails ends the
transaction, which then can only be aborted. What has failed is reported by its callback for records that fail; none is called for the others.

*Order.* The producer is idempotent, so records of a partition are written in the order in which they are handed over, also when requests are
repeated. *Memory.* The client takes what its queue holds (`queue.buffering.max.kbytes`, `.messages`); then the sender waits.

*Waits* end after a time limit, and soon after the run was to end (`waits`). A commit whose outcome is unknown then is not asked
for again: the producer is closed, a new one waits for the outcome, and the marker says it.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, Final

from cdc_assets.adapters.kafka.client import made
from cdc_assets.adapters.kafka.offline import offline_topics
from cdc_assets.adapters.kafka.waits import PATIENCE_S, STEP_S, Wait, repeated
from cdc_assets.config.settings import KafkaSettings
from cdc_assets.core.interruption import Interrupted
from cdc_assets.publish.records import RecordSlice, binary

log = logging.getLogger(__name__)

_ROOM_S: Final = 0.1
"""Seconds between two tries to hand over a record for which there is no room."""
_REPORT_S: Final = 1.0
"""Seconds after an error within which the client reports where it comes from: which record has failed, if one has."""
_RECORD_REPORT_S: Final = 10.0
"""The same after an error that only records have."""
_ABORT_S: Final = 0.5
"""Seconds that closing waits for the end of an open transaction."""

_NO_HEADERS: Final[Sequence[Any]] = []
_FIRST_MOMENT: Final = 1
"""In place of 0 (1970), which the client takes for the time of sending."""


class Transactions:
    """One producer, from its start to its end.

    Args:
        kafka: the client library.
        options: of the producer.
        settings: brokers, and options as they were given.

    Raises:
        ConfigurationError: an option is wrong.
    """

    def __init__(self, kafka: Any, options: Mapping[str, Any], settings: KafkaSettings) -> None:
        self._kafka = kafka
        self.failed: dict[tuple[str, int], Any] = {}
        """Errors of records of this transaction, by topic and code: one is the reason, others may only follow from it."""
        self.is_over = False
        """Whether this transaction takes no more records, and cannot be committed."""
        self.connection_error = ""
        """What the client said last of its connections."""
        self.was_away = False
        """Whether no broker could be reached for a while, since the last commit, or the start."""
        self._denied: Any = None
        self._is_open = False
        own = {"on_delivery": self._delivered, "delivery.report.only.error": True, "error_cb": self._note_connection}
        self._producer: Any = made(kafka, kafka.Producer, {**options, **own}, settings.producer)

    def start(self, limit_s: float) -> None:
        """Fence older producers of the same transactional id, and end their open transaction."""
        self._resumed("init_transactions", limit_s, 0.0)
        # what was said until now is of before: one address may never answer, which each new producer tries first
        self._served("poll", 0)
        self.was_away = False

    def begin(self) -> None:
        """Begin a transaction."""
        self.failed.clear()
        self.is_over = False
        self._producer.begin_transaction()
        self._is_open = True

    def offline(self, in_sync: Mapping[str, int], limit_s: float) -> dict[str, str]:
        """Topics of which a partition takes no records now, with the reason.

        Args:
            in_sync: see `offline_topics`.
        """
        found = repeated(self._kafka, lambda step_s: self._producer.list_topics(timeout=step_s), limit_s)
        return offline_topics(found.topics, in_sync)

    def partitions(self, topic: str, limit_s: float) -> int:
        """Number of a topic's partitions; 0 if the broker does not report it."""
        found = repeated(self._kafka, lambda step_s: self._producer.list_topics(topic, step_s), limit_s)
        return len(found.topics[topic].partitions)

    def send(self, topic: str, records: RecordSlice, limit_s: float) -> int:
        """Hand over records, once there is room; they are dropped if this transaction cannot be committed, and the commit says why.

        Returns:
            How many come before the first that is larger than the client takes.

        Raises:
            TimeoutError: there is no room within the time limit.
        """
        produce, number = self._producer.produce, 0
        # the loop is that of every event: nothing in it may be dear. `produce_batch` is a third faster, but takes no headers, which records
        # have by default, and says what failed by entries of its messages: a second way for the rarer case
        try:
            for number, (key, value, partition, at, headers) in enumerate(_columns(records)):  # noqa: B007 - for the error
                try:
                    produce(topic, value, key, partition, None, None, at, headers)
                except BufferError:
                    self._send_later((topic, value, key, partition, None, None, at, headers), limit_s)
        except self._kafka.KafkaException as error:
            if error.args[0].code() == self._kafka.KafkaError.MSG_SIZE_TOO_LARGE:
                return number
            if error.args[0].code() != self._kafka.KafkaError._STATE:
                raise
            self.is_over = True
        finally:
            del produce  # see `_served`
        self._served("poll", 0)
        return len(records)

    def _send_later(self, record: Sequence[Any], limit_s: float) -> None:
        wait = Wait(limit_s)
        while True:
            self._served("poll", _ROOM_S)
            with suppress(BufferError):
                self._producer.produce(*record)
                return
            wait.go_on()

    def flush(self, limit_s: float) -> None:
        """Wait until each record is acknowledged, or has failed."""
        wait = Wait(limit_s)
        while self._served("flush", STEP_S):
            wait.go_on()

    def commit(self, limit_s: float) -> None:
        """Commit once every record is taken.

        Raises:
            KafkaException: a record has failed, or the broker refuses it; nothing is committed.
            TimeoutError, Interrupted: it is unknown whether it is committed; the producer can only be closed.
        """
        try:
            self._resumed("commit_transaction", limit_s, PATIENCE_S)
        except self._kafka.KafkaException as error:
            self._await_records(error.args[0].code())
            raise
        self._is_open = self.was_away = False

    def explained(self, error: Any) -> Any:
        """What has ended the producer for good, where a call says only that something has; the client reports it once, a little later."""
        until = time.monotonic() + _REPORT_S
        while error.code() == self._kafka.KafkaError._FATAL and time.monotonic() < until:
            try:
                self._served("poll", _ROOM_S)
            except self._kafka.KafkaException as cause:
                return cause.args[0]
        return error

    def abort(self, limit_s: float) -> None:
        """End the transaction without a trace."""
        self._resumed("abort_transaction", limit_s, 0.0)
        self._is_open = False

    def close(self) -> None:
        """End the connections, and an open transaction if that is quick."""
        if self._producer is None:
            return
        ends = self._kafka.KafkaException, TimeoutError, Interrupted
        with suppress(*ends):
            if self._is_open:
                self._resumed("abort_transaction", _ABORT_S, _ABORT_S)
        with suppress(*ends):
            self._producer.purge()  # else the client waits for what is on its way
            self._served("flush", 0)
        self._producer.end()
        self._producer = None

    def _await_records(self, code: int) -> None:
        """Wait until the client has reported which record has failed, if one has: it does so after the transaction has failed by it.

        Args:
            code: of the transaction's error; of a record, if it is one that only records have.
        """
        codes = self._kafka.KafkaError
        is_of_record = code in (codes.MSG_SIZE_TOO_LARGE, codes.RECORD_LIST_TOO_LARGE, codes.INVALID_RECORD)
        wait = Wait(_RECORD_REPORT_S if is_of_record else _REPORT_S)
        with suppress(TimeoutError):
            while not self.failed or (is_of_record and code not in {found for _, found in self.failed}):
                self._served("poll", _ROOM_S)
                wait.go_on()

    def _resumed(self, name: str, limit_s: float, patience_s: float) -> None:
        wait = Wait(limit_s, patience_s)
        while True:
            try:
                self._served(name, STEP_S)
                return
            except self._kafka.KafkaException as error:
                if error.args[0].code() != self._kafka.KafkaError._TIMED_OUT:
                    if not error.args[0].retriable():
                        raise
                    self._served("poll", _ROOM_S)
            self._served("poll", 0)
            if self._denied is not None and not self._is_open:  # later, a token that is not renewed may still do
                raise self._kafka.KafkaException(self._denied)
            wait.go_on()

    def _served(self, name: str, seconds: float) -> Any:
        """The outcome of a method of the producer in which the client reports errors.

        It raises a fatal one out of its own callback, and continues with the others, of which Python then thinks that they have failed.
        The method is named, and never kept: an error on its way would keep it, and with it the producer's threads and connections, beyond
        `close`.
        """
        try:
            return getattr(self._producer, name)(seconds)
        except SystemError as error:
            if isinstance(error.__cause__, self._kafka.KafkaException):
                raise error.__cause__ from None
            # a second callback has cleared the error; the producer can do no more, and says so when it is asked again
            return getattr(self._producer, name)(seconds)

    def _delivered(self, error: Any, message: Any) -> None:
        """Note a record that has failed; the client calls this for no other."""
        self.is_over = True
        self.failed.setdefault((message.topic(), error.code()), error)

    def _note_connection(self, error: Any) -> None:
        """Note what the client says of its connections."""
        self.connection_error = error.str()
        self.was_away |= error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN
        if error.code() == self._kafka.KafkaError._AUTHENTICATION:
            self._denied = error


def _columns(records: RecordSlice) -> Iterator[tuple[bytes | None, bytes | None, int, int, Sequence[Any]]]:
    """Key, value, partition, time and headers of each, as the client takes them."""
    keys, values = (binary(side).to_pylist() for side in (records.keys, records.values))
    partitions: Any = repeat(records.partition)
    if records.partitions is not None:
        partitions = records.partitions.fill_null(records.partition).to_pylist()
    times: Any = repeat(0)
    if records.timestamps is not None:
        times = [0 if at is None else at or _FIRST_MOMENT for at in records.timestamps.to_pylist()]
    return zip(keys, values, partitions, times, records.headers or repeat(_NO_HEADERS), strict=False)
