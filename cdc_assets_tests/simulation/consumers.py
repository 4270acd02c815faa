"""Kafka topics of others, and a reader of them with a lake of its own.

- Each event is held at most once, those of a partition in their order.
- Whatever the broker still has is held, unless the last run tells that its partition is not read on; that is so only where events were
  removed.

Partitions are added, events are compacted away or removed as too old, leaders go away.
"""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import pytest

from cdc_assets.adapters.kafka import source
from cdc_assets.errors import LakeError
from cdc_assets_tests.simulation.surroundings import Surroundings
from cdc_assets_tests.unit.connectors.reader.trial import Trial

NAMES: Final = ("read.t0", "read.t1")
_LONG_MS: Final = "3600000"
Own = tuple[str, int]


class ClientError(Exception):
    """confluent_kafka's KafkaException."""


class Codes:
    """confluent_kafka's KafkaError."""

    _PARTITION_EOF, _AUTO_OFFSET_RESET, _UNKNOWN_PARTITION, UNKNOWN_TOPIC_OR_PART = -191, -140, -190, 3
    _TIMED_OUT, _TRANSPORT = -185, -195


class Place:
    """confluent_kafka's TopicPartition."""

    def __init__(self, topic: str, partition: int, offset: int = -1001) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset


class Told:
    """What a consumer gets: a record, or why there is none."""

    def __init__(self, own: Own, code: int = 0, offset: int = 0, number: int = 0) -> None:
        self._own, self._code, self._offset, self._number = own, code, offset, number

    def error(self) -> "Told | None":
        return self if self._code else None

    def code(self) -> int:
        return self._code

    def fatal(self) -> bool:
        return False

    def topic(self) -> str:
        return self._own[0]

    def partition(self) -> int:
        return self._own[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return json.dumps({"k": self._number % 3}).encode()

    def value(self) -> bytes:
        return json.dumps({"id": self._number}).encode()

    def headers(self) -> None:
        """None."""

    def str(self) -> str:
        return f"error {self._code}"


@dataclass
class Partition:
    """Numbers of events by offset."""

    events: dict[int, int] = field(default_factory=dict)
    low: int = 0
    high: int = 0
    is_trimmed: bool = False
    """Whether events were ever removed as too old."""


class Topics:
    """What the broker has."""

    def __init__(self) -> None:
        self.partitions: dict[Own, Partition] = {(name, 0): Partition() for name in NAMES}
        self.leaderless = set[Own]()
        self.sent = 0

    def send(self, own: Own) -> None:
        """One event more."""
        partition, self.sent = self.partitions[own], self.sent + 1
        partition.events[partition.high] = self.sent
        partition.high += 1

    def compact(self, own: Own) -> None:
        """Only the newest event of each key stays, and what was sent last."""
        partition = self.partitions[own]
        newest = {number % 3: offset for offset, number in partition.events.items()}
        kept = {*newest.values(), partition.high - 1}
        partition.events = {offset: number for offset, number in partition.events.items() if offset in kept}

    def trim(self, own: Own, low: int) -> None:
        """Events before an offset are too old."""
        partition = self.partitions[own]
        partition.low, partition.is_trimmed = max(low, partition.low), True
        partition.events = {offset: number for offset, number in partition.events.items() if offset >= partition.low}


class Consumer:
    """confluent_kafka's Consumer of one process, and its AdminClient."""

    def __init__(self, topics: Topics, rng: random.Random, pause: Callable[[str], None]) -> None:
        self._topics, self._rng, self._pause = topics, rng, pause
        self._positions: dict[Own, int] = {}
        self._ended = set[Own]()

    def list_topics(self, timeout: float) -> Any:
        del timeout
        self._pause("kafka.list_topics")
        found: dict[str, dict[int, Any]] = {}
        for name, number in self._topics.partitions:
            leader = -1 if (name, number) in self._topics.leaderless else 1
            found.setdefault(name, {})[number] = SimpleNamespace(leader=leader)
        return SimpleNamespace(topics={name: SimpleNamespace(partitions=own) for name, own in found.items()})

    def describe_topics(self, names: Sequence[str], request_timeout: float) -> Mapping[str, Any]:
        del request_timeout
        return {name: SimpleNamespace(result=lambda *_: SimpleNamespace(topic_id="first")) for name in names}

    def get_watermark_offsets(self, place: Place, timeout: float) -> tuple[int, int]:
        del timeout
        self._pause("kafka.get_watermark_offsets")
        partition = self._topics.partitions[place.topic, place.partition]
        return partition.low, partition.high

    def incremental_assign(self, places: Sequence[Place]) -> None:
        self._positions |= {(place.topic, place.partition): place.offset for place in places}

    def incremental_unassign(self, places: Sequence[Place]) -> None:
        for place in places:
            self._positions.pop((place.topic, place.partition))

    def consume(self, most: int, timeout: float) -> list[Told]:
        del most, timeout
        self._pause("kafka.consume")
        return [told for own in list(self._positions) if self._rng.random() < 0.7 for told in self._next(own)]

    def _next(self, own: Own) -> list[Told]:
        partition, position = self._topics.partitions[own], self._positions[own]
        if own in self._topics.leaderless:
            return []
        if position < partition.low:
            return [Told(own, Codes._AUTO_OFFSET_RESET)]
        there = sorted(offset for offset in partition.events if offset >= position)[: self._rng.choice([1, 2, 5])]
        if not there:
            self._positions[own], is_new = partition.high, own not in self._ended
            self._ended.add(own)
            return [Told(own, Codes._PARTITION_EOF)] if is_new else []
        self._ended.discard(own)
        self._positions[own] = there[-1] + 1
        return [Told(own, offset=offset, number=partition.events[offset]) for offset in there]

    def commit(self, offsets: Sequence[Place], *, asynchronous: bool) -> None:
        """Nothing depends on it."""

    def close(self) -> None:
        """Nothing is open."""


class Consumers(Surroundings):
    """Runs the reader, and holds its lake against the topics."""

    def prepare_consumers(self, patch: pytest.MonkeyPatch) -> None:
        """Topics, and a client library of them."""
        self.topics_read, self.reset = Topics(), self.rng.choice(["", "earliest"])
        folder = self.folder / "consumed"
        folder.mkdir()
        options = {"consumer.override.auto.offset.reset": self.reset} if self.reset else {}
        self.consumed = Trial(folder, engine__batch__ms=_LONG_MS, engine__batch__rows=str(self.rng.choice([2, 5])))
        self.consumed.properties |= {
            "connector.class": "cdc_assets.KafkaEvents",
            "topic.prefix": "read",
            "topics": ",".join(NAMES),
            "bootstrap.servers": "broker:1",
            **options,
        }
        del self.consumed.properties["files.path"]
        self.consumed.configure()
        rng = random.Random(f"consumers {self.seed}")  # noqa: S311 - a history that can be repeated

        def client(*_: object, **__: object) -> Consumer:
            return Consumer(self.topics_read, rng, self.scheduler.pause)

        library = SimpleNamespace(
            Consumer=client, TopicPartition=Place, TopicCollection=list, KafkaException=ClientError, KafkaError=Codes,
            admin=SimpleNamespace(AdminClient=client),
        )  # fmt: skip
        patch.setattr(source, "client_library", lambda *_: library)
        patch.setattr(source, "_REFRESH_EVERY_S", 0.0)
        self.not_read_on = ""
        """What the last run has told."""

    def consumer(self) -> None:
        """Topics are read to their ends."""
        self.not_read_on = ""
        try:
            self.consumed.run()
        except LakeError as error:
            self.not_read_on = str(error)
            raise

    def _one_of(self) -> Own:
        return self.rng.choice(sorted(self.topics_read.partitions))

    def send_events(self) -> None:
        """Somebody writes into a topic."""
        own = self._one_of()
        for _ in range(self.rng.randrange(1, 6)):
            self.topics_read.send(own)

    def compact_topic(self) -> None:
        """The broker removes events of which newer ones have the key."""
        self.topics_read.compact(self._one_of())

    def trim_topic(self) -> None:
        """The broker removes old events, perhaps before they were read."""
        own = self._one_of()
        low, high = self.topics_read.partitions[own].low, self.topics_read.partitions[own].high
        self.topics_read.trim(own, self.rng.randrange(low, high + 1))
        self.say(f"{own} begins at {self.topics_read.partitions[own].low}")

    def add_partition(self) -> None:
        """A topic gets one more."""
        if len(self.topics_read.partitions) < 5:
            name = self.rng.choice(NAMES)
            self.topics_read.partitions[name, sum(own[0] == name for own in self.topics_read.partitions)] = Partition()

    def move_leader(self) -> None:
        """A partition has no leader, or has one again."""
        self.topics_read.leaderless ^= {self._one_of()}

    def end_surroundings(self) -> None:
        super().end_surroundings()
        self.topics_read.leaderless.clear()

    def check_consumed(self) -> None:
        """Each event is there once."""
        for name in NAMES:
            held = [event["value"]["id"] for event in self.consumed.held(name)]
            self.say(f"{name} holds {len(held)} events")
            assert len(set(held)) == len(held), f"{name} holds events twice: {held}"
            for (topic, number), partition in self.topics_read.partitions.items():
                if topic != name:
                    continue
                is_told = re.search(rf"{re.escape(name)} partition {number}\b", self.not_read_on)
                assert partition.is_trimmed or not is_told, f"nothing is gone, and it is told: {self.not_read_on}"
                there = [event for _, event in sorted(partition.events.items())]
                lacking = sorted(set(there).difference(held))
                assert is_told or not lacking, f"{name} partition {number} lacks {lacking[:5]}; {self.not_read_on}"
                own = [event for event in held if event in set(there)]
                assert own == sorted(own), f"{name} partition {number} is in another order: {own}"
