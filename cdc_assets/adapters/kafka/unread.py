"""What topics hold after the offsets that a reader has recorded, through librdkafka (extra `kafka`).

A partition's end is no measure: marks of transactions, and records that were aborted or removed, have offsets too, and are never read. So
where the end is ahead of a recorded offset, the next record is read, if there is any. An offset counts only with
the topic's id: of another topic with that name nothing was read, however many records it has.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from cdc_assets.adapters.kafka.client import client_library, made
from cdc_assets.adapters.kafka.options import of_connections
from cdc_assets.adapters.kafka.partitions import (
    ANYWHERE,
    AT_THE_END,
    MISSING,
    is_first_start,
    lost_span,
    partition_name,
    was_recreated,
)
from cdc_assets.adapters.kafka.topic_ids import TopicIds
from cdc_assets.config.reader import ReaderSettings
from cdc_assets.connectors.engine.feed import Offsets
from cdc_assets.connectors.engine.unread import Unread
from cdc_assets.errors import ConnectionLostError

_REQUEST_TIMEOUT_S: Final = 5.0
_PREFIX: Final = "consumer.override"
SEE: Final = (
    "see whether bootstrap.servers is the right cluster, and whether the user has DESCRIBE and READ on these topics"
)


def unread(settings: ReaderSettings, offsets: Offsets) -> Unread:
    """What waits.

    Args:
        settings: topics, brokers and options of the client.
        offsets: where partitions were read to.

    Raises:
        ConfigurationError: the extra `kafka` is not installed, or its client does not accept an option.
        ConnectionLostError: a broker does not answer.
    """
    kafka = client_library("connector.class", settings.kind)
    own = {"group.id": f"cdc-assets-{settings.prefix}", "enable.auto.commit": False, "enable.partition.eof": True}
    isolation = {name: text for name, text in settings.options if name == "isolation.level"}
    options = {
        **of_connections(settings.servers, settings.options, _PREFIX),
        **own,
        **isolation,
        "auto.offset.reset": "earliest",
    }
    consumer = made(kafka, kafka.Consumer, options, settings.options, _PREFIX)
    try:
        return _asked(kafka, consumer, settings, offsets)
    except kafka.KafkaException as error:
        raise ConnectionLostError(
            f"Kafka at {settings.servers} cannot be queried for unread messages: {error.args[0].str()}. Next: check bootstrap.servers."
        ) from None
    finally:
        consumer.end()


def _asked(kafka: Any, consumer: Any, settings: ReaderSettings, offsets: Offsets) -> Unread:
    topics = consumer.list_topics(timeout=_REQUEST_TIMEOUT_S).topics
    failed = {name: topic.error for name, topic in topics.items() if topic.error is not None}
    if refused := next((name for name in failed if settings.takes(name)), None):
        raise ConnectionLostError(f"Kafka says nothing about topic {refused}: {failed[refused].str()}. Next: {SEE}.")
    wanted = sorted(name for name in topics if settings.takes(name))
    absent = tuple(sorted(set(settings.topics) - set(topics)))
    if not wanted:
        named = settings.pattern or ", ".join(settings.topics)
        return Unread(missing=f"the broker shows no topic of {named}. Next: {SEE}", absent=absent)
    recorded = {(place["topic"], place["partition"]): at["offset"] for place, at in offsets if "partition" in place}
    there = {(name, number) for name in wanted for number in topics[name].partitions}
    lost = [
        f"{partition_name(*own)}: {MISSING}" for own in sorted(recorded) if settings.takes(own[0]) and own not in there
    ]
    reset, ahead = dict(settings.options).get("auto.offset.reset"), []
    recreated = _recreated(kafka, settings, offsets, wanted)
    for place in (kafka.TopicPartition(*own) for own in sorted(there)):
        low, high = consumer.get_watermark_offsets(place, timeout=_REQUEST_TIMEOUT_S)
        first = high if is_first_start(offsets) and reset in AT_THE_END else low
        at = recorded.get((place.topic, place.partition), first)
        if (place.topic, place.partition) in recreated:
            if reset not in ANYWHERE:
                lost.append(f"{partition_name(place.topic, place.partition)}: {was_recreated(at)}")
            at = low
        elif not low <= at <= high:
            lost.append(f"{partition_name(place.topic, place.partition)}: {lost_span(at, low, high)}")
        place.offset = max(low, at)
        if place.offset < high:
            ahead.append((place, high))
    times = _oldest(kafka, consumer, [place for place, _ in ahead])
    max_records = sum(high - place.offset for place, high in ahead if (place.topic, place.partition) in times)
    return Unread(
        min(times.values(), default=None),
        f"up to {max_records:,} records of {len(times)} partitions" if times else "",
        "; ".join(lost),
        len(wanted),
        absent,
    )


def _recreated(
    kafka: Any, settings: ReaderSettings, offsets: Offsets, wanted: Sequence[str]
) -> frozenset[tuple[str, int]]:
    """Partitions whose topic has another id than the one that was read; its name is the same."""
    ids_then = {
        (place["topic"], place["partition"]): at.get("topic_id") for place, at in offsets if "partition" in place
    }
    if not any(ids_then.values()):
        return frozenset()
    asked = TopicIds(kafka, settings.servers, settings.options, _REQUEST_TIMEOUT_S)
    try:
        ids = asked.of(wanted)
    finally:
        asked.end()
    return frozenset(own for own, then in ids_then.items() if then and ids.get(own[0], then) != then)


def _oldest(kafka: Any, consumer: Any, places: Sequence[Any]) -> Mapping[tuple[str, int], datetime]:
    """The time of the next record of each partition that has one."""
    left = {(place.topic, place.partition): place for place in places}
    found: dict[tuple[str, int], datetime] = {}
    if places:
        consumer.assign(list(places))
    until = time.monotonic() + _REQUEST_TIMEOUT_S
    while left:
        if time.monotonic() >= until:
            names = ", ".join(f"{topic} partition {number}" for topic, number in sorted(left))
            raise ConnectionLostError(f"Kafka does not say what waits in {names}. Next: {SEE}.")
        message = consumer.poll(0.2)
        if message is None:
            continue
        own, error = (message.topic(), message.partition()), message.error()
        if error is None and own in left:
            found[own] = _time(message.timestamp()[1])
        elif error is not None and error.code() != kafka.KafkaError._PARTITION_EOF:
            raise kafka.KafkaException(error)
        if own in left:
            consumer.incremental_unassign([left.pop(own)])
    return found


def _time(milliseconds: int) -> datetime:
    """When a record was written; now if it has no time, or one that is still to come, as of producers that write microseconds."""
    now = datetime.now(UTC)
    if not 0 <= milliseconds <= now.timestamp() * 1000:
        return now
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
