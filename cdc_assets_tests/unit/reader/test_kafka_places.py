"""Where a reader of Kafka begins, with a client in memory."""

from types import SimpleNamespace
from typing import Any

import pytest

from cdc_assets.adapters.kafka import source as kafka
from cdc_assets.adapters.kafka.source import KafkaSource
from cdc_assets.config.reader import KAFKA, Converter, ReaderSettings
from cdc_assets.engine.feed import Chunk, Offsets
from cdc_assets.reader.encode import Encoder
from cdc_assets.reader.feed import Reader


class Place:
    """confluent_kafka's TopicPartition."""

    def __init__(self, topic: str, partition: int, offset: int = -1001) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset


class Topics:
    """A broker: messages of partitions, as many as there are numbers."""

    def __init__(self, **sizes: list[int]) -> None:
        self.sizes = sizes
        self.assigned: dict[tuple[str, int], int] = {}

    def __call__(self, *_: object, **__: object) -> "Topics":
        return self

    def list_topics(self, timeout: float) -> Any:
        del timeout
        return SimpleNamespace(
            topics={name: SimpleNamespace(partitions=range(len(sizes))) for name, sizes in self.sizes.items()}
        )

    def get_watermark_offsets(self, place: Place, timeout: float) -> tuple[int, int]:
        del timeout
        return 0, self.sizes[place.topic][place.partition]

    def incremental_assign(self, places: list[Place]) -> None:
        self.assigned |= {(place.topic, place.partition): place.offset for place in places}

    def consume(self, most: int, timeout: float) -> list[Any]:
        del most, timeout
        return []

    def close(self) -> None:
        pass


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Topics:
    """A topic of two partitions with 5 and 7 messages."""
    broker = Topics(events=[5, 7])
    library = SimpleNamespace(Consumer=broker, TopicPartition=Place, KafkaException=RuntimeError)
    monkeypatch.setattr(kafka, "client_library", lambda *_: library)
    monkeypatch.setattr(kafka, "_LOOK_EVERY_S", 0.0)
    return broker


def reader(reset: str) -> Reader:
    settings = ReaderSettings(
        KAFKA,
        "p",
        Converter(),
        Converter(),
        servers="broker:1",
        topics=("events",),
        options=(("auto.offset.reset", reset),),
    )
    return Reader(
        lambda offsets, stop: KafkaSource(settings, offsets, stop), Encoder({}, lambda _: {}), "p", tolerant=False
    )


def told(chunk: Chunk | None) -> dict[int, int]:
    """Offsets that are recorded with a chunk, by partition."""
    return {} if chunk is None else {dict(found)["partition"]: dict(place)["offset"] for found, place in chunk.offsets}


def recorded(**places: int) -> Offsets:
    return [({"topic": "events", "partition": int(name[1:])}, {"offset": place}) for name, place in places.items()]


@pytest.mark.parametrize(("reset", "places"), [("latest", [5, 7]), ("earliest", [0, 0]), ("", [0, 0])])
def test_the_first_start(broker: Topics, reset: str, places: list[int]) -> None:
    feed = reader(reset)([], [])
    assert list(broker.assigned.values()) == places
    first = feed.next(0)
    assert told(first) == ({0: 5, 1: 7} if reset == "latest" else {})
    assert first is None or (first.rows, list(first.lines)) == (0, [])
    assert feed.next(0) is None


@pytest.mark.parametrize("reset", ["latest", "earliest"])
def test_a_partition_that_appears_later_is_read_from_its_beginning(broker: Topics, reset: str) -> None:
    feed = reader(reset)([], [])
    feed.next(0)
    broker.sizes["events"].append(3)
    assert feed.next(0) is None
    assert broker.assigned["events", 2] == 0


def test_a_partition_that_appears_between_two_runs_is_read_from_its_beginning(broker: Topics) -> None:
    feed = reader("latest")(recorded(p0=4), [])
    assert broker.assigned == {("events", 0): 4, ("events", 1): 0}
    assert feed.next(0) is None


def test_a_topic_that_is_made_after_the_first_start(broker: Topics) -> None:
    sizes = broker.sizes.pop("events")
    feed = reader("latest")([], [])
    assert feed.next(0) is None
    broker.sizes["events"] = sizes
    feed.next(0)
    assert list(broker.assigned.values()) == [0, 0]
