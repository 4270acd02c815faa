"""Signals from a Kafka topic, through librdkafka (extra `kafka`).

The manifest records the handled offsets, so the consumer does not join a group: each poll queries the ends of the
partitions and reads the messages in between. The group's offsets are committed only for monitoring of lag, and read
once, as the start when the manifest has none.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cdc_assets.adapters.kafka.client import Client, client_library, made
from cdc_assets.adapters.kafka.options import consumer_options
from cdc_assets.adapters.kafka.waits import repeated
from cdc_assets.config.settings import CaptureConfig, SignalSettings
from cdc_assets.core.interruption import check
from cdc_assets.core.signal import Delivery, Signal, SignalChannel, signal_of
from cdc_assets.errors import ConnectionLostError

log = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 3.0
"""Time limit in seconds of a request to a broker."""
_POLL_S = 10.0
"""Time limit in seconds of one poll; messages that did not arrive are left for the next."""


@contextmanager
def kafka_channels(config: CaptureConfig) -> Iterator[list[SignalChannel]]:
    """The Kafka channel of a capture, if its settings enable it; closed at the end of the block.

    Raises:
        ConfigurationError: the extra `kafka` is not installed, or the client does not accept an option.
    """
    if "kafka" not in config.signals.channels:
        yield []
        return
    channel = KafkaSignals(config.signals, config.events.topic_prefix)
    try:
        yield [channel]
    finally:
        channel.close()


class KafkaSignals:
    """Messages of one topic whose key is the topic prefix.

    Args:
        settings: topic, brokers and options of the client.
        prefix: the capture's topic prefix.

    Raises:
        ConfigurationError: see `kafka_channels`.
    """

    name, lasting = "kafka", True

    def __init__(self, settings: SignalSettings, prefix: str) -> None:
        self._settings, self._prefix = settings, prefix
        self._topic = settings.kafka_topic or f"{prefix}-signal"
        self._kafka = client_library("signal.enabled.channels", "kafka")
        self._consumer = self._open()
        self._problem = ""

    def receive(self, reached: Mapping[str, int]) -> Delivery:
        """See `SignalChannel`."""
        with self._clear_errors():
            known = self._known(reached)
            spans = self._spans(known)
            numbers = {
                self._stream(partition): start for partition, (start, _) in spans.items() if start != known[partition]
            }
            signals: list[Signal] = []
            for message in self._messages({part: span for part, span in spans.items() if span[0] < span[1]}):
                stream = self._stream(message.partition())
                numbers[stream] = _behind(message)
                if signal := self._signal(message, stream):
                    signals.append(signal)
        return Delivery(tuple(signals), numbers)

    def forget(self, delivery: Delivery) -> None:
        """Commit the handled offsets to the broker, for monitoring; it is not waited for, since a group without a coordinator takes 45 s to
        refuse."""
        offsets = [
            self._kafka.TopicPartition(self._topic, int(stream.rpartition(":")[2]), number)
            for stream, number in delivery.reached.items()
        ]
        if not offsets:
            return
        with self._clear_errors():
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def waiting(self, reached: Mapping[str, int]) -> bool:
        """See `SignalChannel`."""
        with self._clear_errors():
            return any(start < end for start, end in self._spans(self._known(reached)).values())

    def close(self) -> None:
        """Close the connections."""
        self._consumer.end()

    def _open(self) -> Client:
        options, prefix = self._settings.kafka_consumer, "signal.consumer"
        given = consumer_options(options, prefix)
        given.pop("auto.offset.reset", None)
        base = {"bootstrap.servers": self._settings.kafka_servers, "group.id": self._settings.kafka_group}
        fixed = {"enable.auto.commit": False, "enable.partition.eof": True}
        return made(self._kafka, self._kafka.Consumer, {**base, **given, **fixed}, options, prefix)

    def _known(self, reached: Mapping[str, int]) -> dict[int, int | None]:
        """Partitions of the topic with their handled offsets."""
        topic = self._asked(lambda step_s: self._consumer.list_topics(self._topic, step_s)).topics[self._topic]
        problem = "" if topic.error is None else str(topic.error.str())
        if problem and problem != self._problem:
            log.warning("Topic %s of signals cannot be read: %s.", self._topic, problem)
        self._problem = problem
        if problem:
            return {}
        return {partition: reached.get(self._stream(partition)) for partition in sorted(topic.partitions)}

    def _spans(self, known: Mapping[int, int | None]) -> dict[int, tuple[int, int]]:
        """By partition: the offset of the first message that was not handled, and the end."""
        return {partition: self._span(partition, offset) for partition, offset in known.items()}

    def _span(self, partition: int, offset: int | None) -> tuple[int, int]:
        assignment = self._kafka.TopicPartition(self._topic, partition)
        low, high = self._asked(lambda step_s: self._consumer.get_watermark_offsets(assignment, step_s))
        if offset is None:
            offset = self._begin(assignment, low, high)
        if offset < low:
            log.warning(
                "Signals %d to %d of %s were removed before they were read.", offset, low - 1, self._stream(partition)
            )
        elif offset > high:
            log.warning(
                "Topic %s was re-created: partition %d ends at %d, before the recorded %d.",
                self._topic,
                partition,
                high,
                offset,
            )
        return (offset if low <= offset <= high else low), high

    def _begin(self, partition: Any, low: int, high: int) -> int:
        committed: int = self._asked(lambda step_s: self._consumer.committed([partition], step_s))[0].offset
        if committed >= 0:
            return committed
        reset = dict(self._settings.kafka_consumer).get("auto.offset.reset", "earliest")
        return high if reset in ("latest", "largest", "end") else low

    def _asked(self, request: Callable[[float], Any]) -> Any:
        """The answer to a request; the run may be interrupted meanwhile."""
        return repeated(self._kafka, request, _REQUEST_TIMEOUT_S)

    def _messages(self, spans: Mapping[int, tuple[int, int]]) -> Iterator[Any]:
        """Messages of the spans, and an empty one at the end of a partition, because the last offsets may have no
        message."""
        if not spans:
            return
        assignments = [
            self._kafka.TopicPartition(self._topic, partition, start) for partition, (start, _) in spans.items()
        ]
        self._consumer.assign(assignments)
        missing, until = set(spans), time.monotonic() + _POLL_S
        try:
            while missing and time.monotonic() < until:
                check()
                left = max(0.0, until - time.monotonic())
                message = self._consumer.poll(min(self._settings.kafka_timeout_s, left))
                if message is None:
                    continue
                if message.error() and message.error().code() != self._kafka.KafkaError._PARTITION_EOF:
                    raise self._kafka.KafkaException(message.error())
                yield message
                if _behind(message) >= spans[message.partition()][1]:
                    missing.discard(message.partition())
        finally:
            self._consumer.unassign()

    def _signal(self, message: Any, stream: str) -> Signal | None:
        if message.error():
            return None
        if message.key() != self._prefix.encode():
            log.info(
                "A message of %s has a key other than %s, so it is not a signal for this capture.", stream, self._prefix
            )
            return None
        return signal_of(message.value(), f"{stream}:{message.offset()}") if message.value() else None

    def _stream(self, partition: int) -> str:
        return f"{self.name}:{self._topic}:{partition}"

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        try:
            yield
        except self._kafka.KafkaException as error:
            raise ConnectionLostError(
                f"Topic {self._topic} at {self._settings.kafka_servers} cannot be polled for signals: "
                f"{error.args[0].str()}. Next: check signal.kafka.bootstrap.servers and signal.consumer options."
            ) from None


def _behind(message: Any) -> int:
    """Offset after a message, or the end of a partition."""
    number: int = message.offset()
    return number if message.error() else number + 1
