"""Change events from Kafka topics, through librdkafka (extra `kafka`).

*Why nothing is lost or doubled.* Partitions are assigned by hand at the offsets that the lake has recorded, never by a
group, so no rebalance moves them; the group's offsets are written for monitoring of lag alone. Two runs at once cannot
both write: the second takes over the record of batches, and the first one's next commit is refused.

*What the broker does not have any more.* Numbers that compaction or aborted transactions left out are no gap: the next
message that there is follows. But if a partition begins behind the recorded offset, or ends before it, events were
removed before they were read, or the topic is another one of the same name: the partition is not read on, unless
`consumer.override.auto.offset.reset` says where to go on.

*Where a partition begins that was never read.* `auto.offset.reset=latest` means the ends at the first start. They are recorded
with the first batch, also if nothing was read, so that a restart goes on there. A partition that appears later is read
from its beginning, whatever the option says: what is in it was written since.

Messages of transactions are read when these are committed (`isolation.level`, which may be set otherwise).
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from cdc_assets.adapters.kafka.client import ClientLog, client_library
from cdc_assets.config.java_patterns import matches_name
from cdc_assets.config.reader import Converter, ReaderSettings
from cdc_assets.engine.feed import Offsets
from cdc_assets.errors import ConfigurationError, ConnectionLostError
from cdc_assets.reader.avro import AvroParts
from cdc_assets.reader.event_lines import checked_topic
from cdc_assets.reader.feed import Item
from cdc_assets.reader.messages import BadRecordError, JsonParts, Message, Part, Unreadable, header_text, one_line

log = logging.getLogger(__name__)

_ANSWER_S: Final = 30.0
_MOST_MESSAGES: Final = 20_000
_LOOK_EVERY_S: Final = 10.0
_OF_THE_JVM: Final = frozenset({"key.deserializer", "value.deserializer"})
_FIXED: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
}


class KafkaSource:
    """Reads the partitions of topics.

    Args:
        settings: topics, brokers and options of the client.
        offsets: where partitions were read to.
        report: told why a partition is not read on.

    Raises:
        ConfigurationError: the extra `kafka` is not installed, or its client does not accept an option.
        ConnectionLostError: no broker answers.
    """

    def __init__(self, settings: ReaderSettings, offsets: Offsets, report: Callable[[str, str], None]) -> None:
        self._settings, self._report = settings, report
        self._kafka = client_library("connector.class", "cdc_assets.KafkaEvents")
        self._reset = dict(settings.options).get("auto.offset.reset", "")
        self._recorded = {
            (found["topic"], found["partition"]): offset["offset"] for found, offset in offsets if "partition" in found
        }
        self._parts: dict[tuple[str, str], Callable[[bytes], Part | None]] = {}
        self._assigned: dict[tuple[str, int], Any] = {}
        self._stopped: set[tuple[str, int]] = set()
        self._warned: set[str] = set()
        self._looked = float("-inf")
        self._is_first = not self._recorded
        """Whether these are the partitions of the first start."""
        self._begun: dict[str, int] = {}
        """Ends at which partitions begin, until they were given away."""
        self._consumer = self._open()
        try:
            self._look()
        except BaseException:
            self._consumer.close()
            raise

    def read(self, timeout_s: float) -> Sequence[Item]:
        """See `Source`."""
        if time.monotonic() - self._looked >= _LOOK_EVERY_S:
            self._look()
        try:
            found = self._consumer.consume(_MOST_MESSAGES, timeout_s)
        except self._kafka.KafkaException as error:
            raise self._lost(error) from None
        items = []
        for message in found:
            if message.error():
                self._trouble(message)
            elif (message.topic(), message.partition()) not in self._stopped:
                items.append(self._item(message))
        return items

    def begun(self) -> Mapping[str, int]:
        """See `Source`."""
        begun, self._begun = self._begun, {}
        return begun

    def offset(self, stream: str, behind: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """See `Source`."""
        topic, partition = _named(stream)
        return {"topic": topic, "partition": partition}, {"offset": behind}

    def stop(self, stream: str) -> None:
        """See `Source`."""
        own = _named(stream)
        self._stopped.add(own)
        if own in self._assigned:
            self._consumer.incremental_unassign([self._assigned.pop(own)])

    def waits(self, stream: str, behind: str) -> bool:
        """See `Source`: partitions have no order among them."""
        return stream == behind

    def committed(self, behind: Mapping[str, int]) -> None:
        """Write the group's offsets, for monitoring; nothing depends on them."""
        own = [self._kafka.TopicPartition(*_named(stream), place) for stream, place in behind.items()]
        try:
            if own:
                self._consumer.commit(offsets=own, asynchronous=True)
        except self._kafka.KafkaException as error:
            log.warning("The group's offsets were not written: %s. They are for monitoring alone.", error.args[0].str())

    def close(self) -> None:
        """See `Source`."""
        self._consumer.close()

    def _open(self) -> Any:
        given = {name: text for name, text in self._settings.options if name not in _OF_THE_JVM}
        base = {"bootstrap.servers": self._settings.servers, "group.id": f"cdc-assets-{self._settings.prefix}"}
        try:
            return self._kafka.Consumer({**base, **given, **_FIXED}, logger=ClientLog())
        except self._kafka.KafkaException as error:
            raise ConfigurationError(
                "consumer.override options",
                ", ".join(given) or "(none)",
                f"options of librdkafka ({error.args[0].str()})",
                "use librdkafka's names, such as sasl.username and sasl.password in place of sasl.jaas.config",
            ) from None

    def _look(self) -> None:
        """Begin to read the partitions that are new."""
        self._looked = time.monotonic()
        try:
            topics = self._consumer.list_topics(timeout=_ANSWER_S).topics
            wanted = [name for name in topics if self._is_wanted(name)]
            for name in set(self._settings.topics) - set(topics):
                self._warn(name, "there is no such topic yet")
            own = [(name, number) for name in sorted(wanted) for number in sorted(topics[name].partitions)]
            fresh = [one for one in own if one not in self._assigned and one not in self._stopped]
            places = [place for one in fresh if (place := self._start(*one)) is not None]
            if places:
                self._consumer.incremental_assign(places)
                self._assigned |= {(place.topic, place.partition): place for place in places}
            self._is_first = False
        except self._kafka.KafkaException as error:
            raise self._lost(error) from None

    def _is_wanted(self, name: str) -> bool:
        if not self._settings.pattern:
            return name in self._settings.topics
        return not name.startswith("__") and matches_name("topics.regex", self._settings.pattern, name)

    def _start(self, topic: str, partition: int) -> Any:
        """Where to begin a partition; None if it cannot be read on."""
        try:
            checked_topic(topic, self._settings.prefix)
        except BadRecordError as error:
            self._give_up(topic, partition, str(error))
            return None
        own = self._kafka.TopicPartition(topic, partition)
        low, high = self._consumer.get_watermark_offsets(own, timeout=_ANSWER_S)
        recorded = self._recorded.get((topic, partition))
        if recorded is None:
            own.offset = low
            if self._is_first and self._reset in _AT_THE_END:
                own.offset = self._begun[_stream(topic, partition)] = high
        elif low <= recorded <= high:
            own.offset = recorded
        elif self._reset in (*_AT_THE_END, *_AT_THE_BEGINNING):
            own.offset = high if self._reset in _AT_THE_END else low
            log.warning("%s goes on at %d instead of %d.", _place(topic, partition), own.offset, recorded)
        else:
            self._give_up(topic, partition, _lost_span(recorded, low, high))
            return None
        return own

    def _give_up(self, topic: str, partition: int, reason: str) -> None:
        self._stopped.add((topic, partition))
        self._report(_stream(topic, partition), f"{_place(topic, partition)}: {reason}")

    def _trouble(self, message: Any) -> None:
        error = message.error()
        if error.code() == self._kafka.KafkaError._AUTO_OFFSET_RESET:
            own = message.topic(), message.partition()
            if own not in self._stopped:
                self.stop(_stream(*own))
                self._give_up(*own, f"its offset is not there any more ({error.str()})")
        elif error.fatal():
            raise self._lost(self._kafka.KafkaException(error))
        else:
            self._warn(message.topic() or "a topic", error.str())

    def _warn(self, topic: str, text: str) -> None:
        if (said := f"{topic}: {text}") not in self._warned:
            self._warned.add(said)
            log.warning("%s.", said)

    def _item(self, message: Any) -> Item:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        stream, place = _stream(topic, partition), f"{_place(topic, partition)} offset {offset}"
        raw = message.value()
        try:
            key, value = (
                None if data is None else self._part(topic, side, data)
                for side, data in (("key", message.key()), ("value", raw))
            )
            headers = tuple((name, header_text(_text(inner))) for name, inner in message.headers() or ())
        except (BadRecordError, UnicodeDecodeError) as error:
            text = "" if raw is None else raw.decode("utf-8", "backslashreplace")
            return Unreadable(stream, offset + 1, place, topic, str(error), text)
        return Message(stream, offset + 1, place, topic, key, value, headers)

    def _part(self, topic: str, side: str, data: bytes) -> Part | None:
        taken = self._parts.get((topic, side))
        if taken is None:
            taken = _parts_of(self._settings.key if side == "key" else self._settings.value)
            self._parts[topic, side] = taken
        try:
            return taken(data)
        except (BadRecordError, UnicodeDecodeError) as error:
            raise BadRecordError(f"the {side}: {error}") from None

    def _lost(self, error: Any) -> ConnectionLostError:
        return ConnectionLostError(
            f"Kafka at {self._settings.servers} cannot be read: {error.args[0].str()}. "
            "Next: check bootstrap.servers and the consumer.override options."
        )


_AT_THE_END: Final = ("latest", "largest", "end")
_AT_THE_BEGINNING: Final = ("earliest", "smallest", "beginning")


def _lost_span(recorded: int, low: int, high: int) -> str:
    hint = "consumer.override.auto.offset.reset=earliest goes on with what there is"
    if recorded < low:
        return f"offsets {recorded} to {low - 1} were removed before they were read; {hint}"
    return f"it ends at {high}, before the recorded offset {recorded}: it was made anew; {hint}"


def _stream(topic: str, partition: int) -> str:
    return f"{topic}:{partition}"


def _named(stream: str) -> tuple[str, int]:
    topic, _, partition = stream.rpartition(":")
    return topic, int(partition)


def _place(topic: str, partition: int) -> str:
    return f"{topic} partition {partition}"


def _text(value: bytes | None) -> str | None:
    """A header's text; bytes that are none, as tracers write them, as escapes."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _parts_of(converter: Converter) -> Callable[[bytes], Part | None]:
    """How keys or values of one topic are taken apart."""
    if converter.format == "avro":
        return AvroParts(converter.registry, converter.credentials).part
    if converter.format == "string":
        return lambda data: Part(_STRING, one_line(text := data.decode()), text)
    parts = JsonParts(converter.schemas)
    return lambda data: parts.whole(data.decode())


_STRING: Final[Mapping[str, Any]] = {"type": "string", "optional": False}
