"""Change events from Kafka topics, through librdkafka (extra `kafka`).

*Why nothing is lost or doubled.* Partitions are assigned by hand at the offsets that the lake has recorded, never by a
group, so no rebalance moves them; the group's offsets are written for monitoring of lag only. Two runs at once cannot
both write: the second takes over the record of batches, and the first one's next commit is refused.

*What the broker does not have any more.* Numbers that compaction or aborted transactions left out are no gap: the next
message that there is follows. But if a partition begins behind the recorded offset, or ends before it, events were
removed before they were read: the partition is not read on, unless `consumer.override.auto.offset.reset` says where to continue;
then the run reports what is missing, and fails at its end.

*Another topic of the same name* has other messages at the same offsets. So the topic's id is recorded with each offset, and
compared at the start and every few seconds. A topic that was recreated is not read on; with `auto.offset.reset` the next run
reads it from its beginning.

*When all is read.* The broker reports when a partition is read to its end. A run is not idle before that. One that is not
there any more, has no leader, may not be read, or gives no answer is not read on, and that is reported: silence alone proves nothing.
One that loses its leader after it was read to its end is waited for, because nobody can write to it either.

*Where a partition begins that was never read.* `auto.offset.reset=latest` means the ends at the first start. They are recorded
with the first batch, also if nothing was read, so that a restart continues there; and if there is no partition, that the first
start has been. A partition that appears later is read from its beginning, whatever the option says: what
is in it was written since.

Messages of transactions are read when these are committed (`isolation.level`, which may be set otherwise).
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from typing import Any, Final

from cdc_assets.adapters.kafka.client import Client, client_library, made
from cdc_assets.adapters.kafka.options import consumer_options
from cdc_assets.adapters.kafka.partitions import (
    ANYWHERE,
    AT_THE_END,
    MISSING,
    READ_AGAIN,
    STARTED,
    is_first_start,
    jumped_span,
    lost_span,
    partition_name,
    partition_of,
    stream_name,
    was_recreated,
)
from cdc_assets.adapters.kafka.rights import NOT_AUTHORIZED, grant_hint
from cdc_assets.adapters.kafka.topic_ids import TopicIds
from cdc_assets.adapters.kafka.waits import repeated
from cdc_assets.config.reader import Converter, ReaderSettings
from cdc_assets.connectors.engine.feed import Offsets
from cdc_assets.connectors.reader.avro import AvroParts
from cdc_assets.connectors.reader.event_lines import checked_topic
from cdc_assets.connectors.reader.feed import Item
from cdc_assets.connectors.reader.messages import (
    BadRecordError,
    JsonDecoder,
    Message,
    Part,
    Unreadable,
    header_text,
    one_line,
)
from cdc_assets.errors import ConnectionLostError

log = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S: Final = 30.0
_MAX_MESSAGES: Final = 20_000
_REFRESH_EVERY_S: Final = 10.0
_STARTED: Final = ""
"""The stream that stands for the first start."""
_FIXED: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}


class KafkaSource:
    """Reads the partitions of topics.

    Args:
        settings: topics, brokers and options of the client.
        offsets: where partitions were read to.
        report: called with the reason why a partition is not read on.

    Raises:
        ConfigurationError: the extra `kafka` is not installed, or its client does not accept an option.
        ConnectionLostError: no broker answers.
    """

    def __init__(self, settings: ReaderSettings, offsets: Offsets, report: Callable[[str, str], None]) -> None:
        self._settings, self._report = settings, report
        self._kafka = client_library("connector.class", "cdc_assets.KafkaEvents")
        self._reset = dict(settings.options).get("auto.offset.reset", "")
        self._recorded: dict[tuple[str, int], tuple[int, str]] = {
            (found["topic"], found["partition"]): (offset["offset"], offset.get("topic_id", ""))
            for found, offset in offsets
            if "partition" in found
        }
        self._parts: dict[tuple[str, str], Callable[[bytes], Part | None]] = {}
        self._assigned: dict[tuple[str, int], Any] = {}
        self._stopped: set[tuple[str, int]] = set()
        self._ended: set[tuple[str, int]] = set()
        """Partitions that were read to their ends once."""
        self._silent_s = 0.0
        """For how long nothing has come."""
        self._leaderless: dict[tuple[str, int], float] = {}
        """Since when partitions that were not read to their ends have had no leader."""
        self._ids: dict[str, str] = {}
        """Of the topics that are read, as far as the broker reports them, since the start."""
        self._recreated: set[str] = set()
        """Topics that have had another id since: none of their partitions is read before the next run."""
        self._warned: set[str] = set()
        self._refreshed_at = float("-inf")
        self._is_first = is_first_start(offsets)
        """Whether these are the partitions of the first start."""
        self._begun: dict[str, int] = {}
        """Places at which partitions begin, until they were given away."""
        self._clients = ExitStack()
        try:
            self._consumer = self._clients.enter_context(self._open())
            self._topic_ids = TopicIds(self._kafka, settings.servers, settings.options, _REQUEST_TIMEOUT_S)
            self._clients.callback(self._topic_ids.end)
            self._refresh_partitions()
        except BaseException:
            self.close()
            raise

    def read(self, timeout_s: float) -> Sequence[Item]:
        """See `Source`."""
        if time.monotonic() - self._refreshed_at >= _REFRESH_EVERY_S:
            self._refresh_partitions()
        try:
            found = self._consumer.consume(_MAX_MESSAGES, timeout_s)
        except self._kafka.KafkaException as error:
            raise self._lost(error) from None
        items, ended = [], len(self._ended)
        for message in found:
            if message.error():
                self._trouble(message)
            elif (message.topic(), message.partition()) not in self._stopped:
                items.append(self._item(message))
        self._silent_s = 0.0 if items or len(self._ended) > ended else self._silent_s + timeout_s
        if self._silent_s >= _REQUEST_TIMEOUT_S:
            self._give_up_silent()
        return items

    @property
    def caught_up(self) -> bool:
        """See `Source`."""
        return not self._leaderless and self._assigned.keys() <= self._ended

    def _give_up_silent(self) -> None:
        """Stop partitions from which nothing has come, not even that they were read to their ends."""
        for own in sorted(self._assigned.keys() - self._ended):
            self._give_up(*own, f"nothing has come from its broker for {self._silent_s:.0f} s")

    def begun(self) -> Mapping[str, int]:
        """See `Source`."""
        begun, self._begun = self._begun, {}
        return begun

    def offset(self, stream: str, next_offset: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """See `Source`."""
        if stream == _STARTED:
            return STARTED
        topic, partition = partition_of(stream)
        id_ = self._ids.get(topic)
        return {"topic": topic, "partition": partition}, {"offset": next_offset} | ({"topic_id": id_} if id_ else {})

    def stop(self, stream: str) -> None:
        """See `Source`."""
        own = partition_of(stream)
        self._stopped.add(own)
        if own in self._assigned:
            self._consumer.incremental_unassign([self._assigned.pop(own)])

    def waits(self, stream: str, stopped: str) -> bool:
        """See `Source`: partitions have no order among them."""
        return stream == stopped

    def committed(self, next_offsets: Mapping[str, int]) -> None:
        """Write the group's offsets, for monitoring; nothing depends on them."""
        places = [(partition_of(stream), place) for stream, place in next_offsets.items() if stream != _STARTED]
        own = [self._kafka.TopicPartition(*partition, place) for partition, place in places]
        try:
            if own:
                self._consumer.commit(offsets=own, asynchronous=True)
        except self._kafka.KafkaException as error:
            log.warning("The group's offsets were not written: %s. They are only for monitoring.", error.args[0].str())

    def close(self) -> None:
        """See `Source`."""
        self._clients.close()

    def _open(self) -> Client:
        options, prefix = self._settings.options, "consumer.override"
        base = {"bootstrap.servers": self._settings.servers, "group.id": f"cdc-assets-{self._settings.prefix}"}
        own = {**base, **consumer_options(options, prefix), **_FIXED}
        return made(self._kafka, self._kafka.Consumer, own, options, prefix)

    def _refresh_partitions(self) -> None:
        """Begin to read the partitions that are new, and stop those that are not there any more."""
        since, self._refreshed_at = self._refreshed_at, time.monotonic()
        try:
            topics = self._asked(lambda step_s: self._consumer.list_topics(timeout=step_s)).topics
            wanted = [name for name in topics if self._settings.takes(name)]
            for name in set(self._settings.topics) - set(topics):
                self._warn(name, "there is no such topic yet")
            own = [(name, number) for name in sorted(wanted) for number in sorted(topics[name].partitions)]
            self._stop_others(own, self._topic_ids.of(sorted(wanted)), self._refreshed_at - since)
            self._stop_missing(own)
            self._stop_leaderless({one for one in own if topics[one[0]].partitions[one[1]].leader < 0})
            known = self._assigned.keys() | self._stopped | self._leaderless.keys()
            fresh = [one for one in own if one not in known]
            places = [place for one in fresh if (place := self._start(*one)) is not None]
            if places:
                self._consumer.incremental_assign(places)
                self._assigned |= {(place.topic, place.partition): place for place in places}
            if self._is_first and self._reset in AT_THE_END and not self._begun:
                self._begun[_STARTED] = 0
            self._is_first = False
        except self._kafka.KafkaException as error:
            raise self._lost(error) from None

    def _stop_others(self, there: Sequence[tuple[str, int]], ids: Mapping[str, str], since_s: float) -> None:
        """Stop topics that were recreated since the start, and what only the new ones have: an offset is recorded with the former id."""
        self._recreated |= {name for name, id_ in ids.items() if self._ids.setdefault(name, id_) != id_}
        for own in sorted(self._assigned.keys() | there):
            if own[0] in self._recreated:
                text = f"it was deleted and recreated: what was read of it in the last {since_s:.0f} s may be the new topic's"
                self._give_up(*own, f"{text}; {READ_AGAIN}")

    def _stop_missing(self, there: Sequence[tuple[str, int]]) -> None:
        """Stop partitions that were read and that the broker does not show."""
        known = self._recorded.keys() | self._assigned.keys()
        for own in sorted(known - set(there) - self._stopped):
            if self._settings.takes(own[0]):
                self._give_up(*own, MISSING)

    def _stop_leaderless(self, found: AbstractSet[tuple[str, int]]) -> None:
        """Stop partitions that have no leader for longer than an election takes, from which nothing comes."""
        since = self._leaderless
        self._leaderless = {own: since.get(own, self._refreshed_at) for own in found - self._ended - self._stopped}
        for own, at in sorted(self._leaderless.items()):
            if (lasts := self._refreshed_at - at) >= _REQUEST_TIMEOUT_S:
                del self._leaderless[own]
                self._give_up(*own, f"it has had no leader for {lasts:.0f} s; see which of its brokers are away")

    def _start(self, topic: str, partition: int) -> Any:
        """Where to begin a partition; None if it cannot be read on."""
        try:
            checked_topic(topic, self._settings.prefix)
        except BadRecordError as error:
            self._give_up(topic, partition, str(error))
            return None
        own = self._kafka.TopicPartition(topic, partition)
        low, high = self._asked(lambda step_s: self._consumer.get_watermark_offsets(own, timeout=step_s))
        recorded, id_then = self._recorded.get((topic, partition)) or (None, "")
        id_ = self._ids.get(topic, "")
        if recorded is None:
            own.offset = low
            if self._is_first and self._reset in AT_THE_END:
                own.offset = self._begun[stream_name(topic, partition)] = high
        elif id_ and id_then and id_ != id_then:
            if self._reset not in ANYWHERE:
                self._give_up(topic, partition, was_recreated(recorded))
                return None
            own.offset = self._begun[stream_name(topic, partition)] = low
            log.warning("%s was recreated: it is read from its beginning.", partition_name(topic, partition))
        elif low <= recorded <= high:
            own.offset = recorded
            if id_ and not id_then:
                self._begun[stream_name(topic, partition)] = recorded
        elif self._reset in ANYWHERE:
            stream, own.offset = stream_name(topic, partition), high if self._reset in AT_THE_END else low
            self._begun[stream] = own.offset
            span = jumped_span(recorded, low, own.offset, self._reset)
            self._report(stream, f"{partition_name(topic, partition)}: {span}")
        else:
            self._give_up(topic, partition, lost_span(recorded, low, high))
            return None
        return own

    def _asked(self, request: Callable[[float], Any]) -> Any:
        """The answer to a request; the run may be interrupted meanwhile."""
        return repeated(self._kafka, request, _REQUEST_TIMEOUT_S)

    def _give_up(self, topic: str, partition: int, reason: str) -> None:
        if (topic, partition) not in self._stopped:
            self.stop(stream_name(topic, partition))
            self._report(stream_name(topic, partition), f"{partition_name(topic, partition)}: {reason}")

    def _trouble(self, message: Any) -> None:
        error, own, codes = message.error(), (message.topic(), message.partition()), self._kafka.KafkaError
        if error.code() == codes._PARTITION_EOF:
            self._ended.add(own)
        elif error.code() == codes._AUTO_OFFSET_RESET:
            self._give_up(*own, f"its offset no longer exists ({error.str()})")
        elif error.code() in NOT_AUTHORIZED and own in self._assigned:
            self._give_up(*own, f"the user may not read it: it needs {grant_hint(['READ'], 'topic', own[0])}")
        elif error.code() in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_PARTITION) and own in self._assigned:
            self._give_up(*own, MISSING)
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
        stream, place = stream_name(topic, partition), f"{partition_name(topic, partition)} offset {offset}"
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


def _text(value: bytes | None) -> str | None:
    """A header's text; bytes that are none, as tracers write them, as escapes."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _parts_of(converter: Converter) -> Callable[[bytes], Part | None]:
    """How keys or values of one topic are taken apart."""
    if converter.format == "avro":
        return AvroParts(converter.registry, converter.credentials).part
    if converter.format == "string":
        return lambda data: Part(_STRING, one_line(text := data.decode()), text)
    parts = JsonDecoder(converter.schemas)
    return lambda data: parts.decode(data.decode())


_STRING: Final[Mapping[str, Any]] = {"type": "string", "optional": False}
