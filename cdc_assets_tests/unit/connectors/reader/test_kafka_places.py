"""Where a reader of Kafka begins, with a client in memory."""

from types import SimpleNamespace
from typing import Any

import pytest

from cdc_assets.adapters.kafka import source as kafka
from cdc_assets.adapters.kafka.source import KafkaSource
from cdc_assets.config.reader import KAFKA, Converter, ReaderSettings
from cdc_assets.connectors.engine.feed import Chunk, Offsets
from cdc_assets.connectors.reader.encode import Encoder
from cdc_assets.connectors.reader.feed import Reader


class Place:
    """confluent_kafka's TopicPartition."""

    def __init__(self, topic: str, partition: int, offset: int = -1001) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset


class Codes:
    """confluent_kafka's KafkaError."""

    _PARTITION_EOF, _AUTO_OFFSET_RESET, UNKNOWN_TOPIC_OR_PART, _UNKNOWN_PARTITION = -191, -140, 3, -190


class Told:
    """What a consumer gives beside messages: that a partition is at its end, or why it gives none."""

    def __init__(self, code: int, topic: str = "events", partition: int = 0) -> None:
        self._code, self._topic, self._partition = code, topic, partition

    def error(self) -> "Told":
        return self

    def code(self) -> int:
        return self._code

    def fatal(self) -> bool:
        return False

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def str(self) -> str:
        return f"error {self._code}"


class Topics:
    """A broker: messages of partitions, as many as there are numbers."""

    def __init__(self, **sizes: list[int]) -> None:
        self.sizes = sizes
        self.low = 0
        self.assigned: dict[tuple[str, int], int] = {}
        self.ids = dict.fromkeys(sizes, "first")
        self.told: list[Told] = []
        self.leaderless: set[tuple[str, int]] = set()

    def describe_topics(self, names: list[str], request_timeout: float) -> Any:
        del request_timeout
        return {
            name: SimpleNamespace(result=lambda *_, id_=self.ids[name]: SimpleNamespace(topic_id=id_)) for name in names
        }

    def incremental_unassign(self, places: list[Place]) -> None:
        for place in places:
            self.assigned.pop((place.topic, place.partition))

    def __call__(self, *_: object, **__: object) -> "Topics":
        return self

    def list_topics(self, timeout: float) -> Any:
        del timeout
        return SimpleNamespace(topics={name: self._shown(name, len(sizes)) for name, sizes in self.sizes.items()})

    def _shown(self, name: str, count: int) -> Any:
        leaders = {number: -1 if (name, number) in self.leaderless else 1 for number in range(count)}
        return SimpleNamespace(
            partitions={number: SimpleNamespace(leader=leader) for number, leader in leaders.items()}
        )

    def get_watermark_offsets(self, place: Place, timeout: float) -> tuple[int, int]:
        del timeout
        assert (place.topic, place.partition) not in self.leaderless, "nobody answers"
        return self.low, self.sizes[place.topic][place.partition]

    def incremental_assign(self, places: list[Place]) -> None:
        self.assigned |= {(place.topic, place.partition): place.offset for place in places}

    def consume(self, most: int, timeout: float) -> list[Any]:
        del most, timeout
        told, self.told = self.told, []
        return told

    def close(self) -> None:
        pass


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Topics:
    """A topic of two partitions with 5 and 7 messages."""
    broker = Topics(events=[5, 7])
    library = SimpleNamespace(
        Consumer=broker,
        TopicPartition=Place,
        TopicCollection=list,
        KafkaException=RuntimeError,
        KafkaError=Codes,
        admin=SimpleNamespace(AdminClient=broker),
    )
    monkeypatch.setattr(kafka, "client_library", lambda *_: library)
    monkeypatch.setattr(kafka, "_REFRESH_EVERY_S", 0.0)
    return broker


def reader(reset: str = "") -> Reader:
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
    assert told(feed.next(0)) == {0: 4}


@pytest.mark.parametrize("is_next_run", [False, True])
def test_a_topic_that_is_made_after_the_first_start(broker: Topics, is_next_run: bool) -> None:
    """What is in it was written since."""
    sizes = broker.sizes.pop("events")
    feed = reader("latest")([], [])
    first = feed.next(0)
    assert first is not None
    assert (first.rows, list(first.lines), len(first.offsets)) == (0, [], 1)
    feed.committed(first.number)
    assert feed.next(0) is None, "it is recorded once"
    broker.sizes["events"] = sizes
    if is_next_run:
        feed = reader("latest")(first.offsets, [])
    assert feed.next(0) is None
    assert list(broker.assigned.values()) == [0, 0]


@pytest.mark.parametrize("reset", ["", "earliest"])
def test_a_first_start_without_a_topic_that_begins_anywhere_else_records_nothing(broker: Topics, reset: str) -> None:
    del broker.sizes["events"]
    assert reader(reset)([], []).next(0) is None


def with_id(id_: str, **places: int) -> Offsets:
    return [(partition, {**place, "topic_id": id_}) for partition, place in recorded(**places)]


def ids_told(chunk: Chunk | None) -> set[str]:
    """Ids of topics that are recorded with a chunk."""
    return set() if chunk is None else {dict(place)["topic_id"] for _, place in chunk.offsets}


def test_a_topic_that_was_made_anew_is_not_read_on(broker: Topics) -> None:
    """Though it has at least as many messages as were read of the one before."""
    reading = reader()
    reading(with_id("before", p0=4, p1=7), [])
    assert not broker.assigned
    assert "events partition 0: it was recreated after it was read to offset 4" in reading.stopped["events:0"]
    assert set(reading.stopped) == {"events:0", "events:1"}


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_topic_that_was_made_anew_is_read_from_its_beginning_if_a_reset_is_allowed(
    broker: Topics, reset: str
) -> None:
    reading = reader(reset)
    feed = reading(with_id("before", p0=4, p1=7), [])
    assert list(broker.assigned.values()) == [0, 0]
    first = feed.next(0)
    assert told(first) == {0: 0, 1: 0}
    assert ids_told(first) == {"first"}
    assert not reading.stopped


def test_an_offset_without_an_id_gets_it_at_the_start(broker: Topics) -> None:
    first = reader()(recorded(p0=4, p1=7), []).next(0)
    assert told(first) == {0: 4, 1: 7}
    assert ids_told(first) == {"first"}
    assert reader()(with_id("first", p0=4, p1=7), []).next(0) is None
    assert list(broker.assigned.values()) == [4, 7]


def test_a_topic_that_is_made_anew_while_it_is_read(broker: Topics) -> None:
    reading = reader()
    feed = reading(with_id("first", p0=4, p1=7), [])
    broker.ids["events"] = "second"
    assert feed.next(0) is None
    assert not broker.assigned
    assert "it was deleted and recreated" in reading.stopped["events:0"]


@pytest.mark.parametrize("is_seen_away", [False, True])
@pytest.mark.parametrize("reset", ["", "earliest", "latest"])
def test_a_topic_that_is_recreated_with_more_partitions_while_it_is_read(
    broker: Topics, reset: str, is_seen_away: bool
) -> None:
    """The new partition would be recorded as one of the former topic, and read once more as one of the new."""
    before = with_id("first", p0=5, p1=7)
    reading = reader(reset)
    feed = reading(before, [])
    if is_seen_away:
        sizes = broker.sizes.pop("events")
        assert feed.next(0) is None
        broker.sizes["events"] = sizes
    broker.ids["events"] = "second"
    broker.sizes["events"].append(3)
    for _ in range(2):
        assert feed.next(0) is None
        assert not broker.assigned
    assert set(reading.stopped) == {"events:0", "events:1", "events:2"}
    assert "it was deleted and recreated" in reading.stopped["events:2"]
    if not reset:
        return
    again = reader(reset)
    first = again(before, []).next(0)
    assert broker.assigned == {("events", 0): 0, ("events", 1): 0, ("events", 2): 0}
    assert told(first) == {0: 0, 1: 0}
    assert ids_told(first) == {"second"}
    assert not again.stopped


def test_a_broker_that_knows_no_ids_is_told_of_once(broker: Topics, caplog: pytest.LogCaptureFixture) -> None:
    broker.ids["events"] = "A" * 22
    feed = reader()(recorded(p0=4, p1=7), [])
    assert feed.next(0) is None
    assert caplog.text.count("gives no ids of topics") == 1
    assert list(broker.assigned.values()) == [4, 7]


@pytest.mark.parametrize("gone", ["topic", "partition"])
def test_what_was_read_and_is_not_there_any_more_is_told(broker: Topics, gone: str) -> None:
    """Deleted, hidden from the user, or of another cluster: silence would look as if nothing were new."""
    if gone == "topic":
        del broker.sizes["events"]
    else:
        broker.sizes["events"].pop()
    reading = reader()
    reading(recorded(p0=4, p1=7), [])
    assert set(reading.stopped) == ({"events:0", "events:1"} if gone == "topic" else {"events:1"})
    assert "it was read before and no longer exists" in reading.stopped["events:1"]


def test_a_topic_that_is_named_no_more_is_not_missed(broker: Topics) -> None:
    reading = reader()
    reading([({"topic": "others", "partition": 0}, {"offset": 9})], [])
    assert not reading.stopped


@pytest.mark.parametrize(
    ("code", "reason"),
    [(29, "needs READ on the topic events"), (3, "no longer exists"), (-140, "its offset no longer")],
)
def test_an_answer_that_ends_a_partition_is_told(broker: Topics, code: int, reason: str) -> None:
    reading = reader()
    feed = reading([], [])
    broker.told = [Told(code, partition=1), Told(code, partition=1), Told(-195)]
    assert feed.next(0) is None
    assert set(reading.stopped) == {"events:1"}
    assert reason in reading.stopped["events:1"]
    assert broker.assigned == {("events", 0): 0}


def test_silence_proves_nothing_before_every_partition_was_at_its_end(broker: Topics) -> None:
    reading = reader()
    feed = reading([], [])
    assert not feed.started
    broker.told = [Told(Codes._PARTITION_EOF)]
    assert feed.next(0) is None
    assert not feed.started
    for _ in range(7):
        feed.next(5)
    assert "events partition 1: nothing has come from its broker for 30 s" in reading.stopped["events:1"]
    assert feed.started
    assert broker.assigned == {("events", 0): 0}


@pytest.mark.parametrize("when", ["at the start", "while it is read"])
def test_a_partition_without_a_leader_is_told_beside_a_busy_one(
    broker: Topics, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(kafka.time, "monotonic", lambda: clock[0])
    if when == "at the start":
        broker.leaderless = {("events", 1)}
    reading = reader()
    feed = reading([], [])
    broker.leaderless = {("events", 1)}
    for _ in range(6 if when == "at the start" else 7):
        assert not reading.stopped
        assert not feed.started
        broker.told = [Told(Codes._PARTITION_EOF)]  # the other one goes on
        clock[0] += 5
        feed.next(0)
    assert "events partition 1: it has had no leader for 30 s" in reading.stopped["events:1"]
    assert feed.started
    assert broker.assigned == {("events", 0): 0}


def test_a_partition_whose_leader_comes_back_is_read(broker: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(kafka.time, "monotonic", lambda: clock[0])
    broker.leaderless = {("events", 1)}
    reading = reader()
    feed = reading(recorded(p1=4), [])
    broker.leaderless = set()
    clock[0] += 60
    feed.next(0)
    assert broker.assigned == {("events", 0): 0, ("events", 1): 4}
    broker.told = [Told(Codes._PARTITION_EOF, partition=1)]
    feed.next(0)
    broker.leaderless = {("events", 1)}
    for _ in range(3):
        clock[0] += 60
        feed.next(0)
    assert not reading.stopped, "it was read to its end, and nobody writes to it meanwhile"


@pytest.mark.parametrize(
    ("reset", "begin", "text"), [("earliest", 3, "offsets 1 to 2"), ("latest", 5, "offsets 1 to 4")]
)
def test_where_a_partition_goes_on_behind_what_was_removed_is_told_once(
    broker: Topics, reset: str, begin: int, text: str
) -> None:
    broker.low, reading = 3, reader(reset)
    first = reading(recorded(p0=1, p1=7), []).next(0)
    assert list(broker.assigned.values()) == [begin, 7]
    assert told(first)[0] == begin
    assert text in reading.stopped["events:0"]
    again = reader(reset)
    again(recorded(p0=begin, p1=7), [])
    assert not again.stopped


def test_a_shorter_topic_of_the_same_name_is_told(broker: Topics) -> None:
    reading = reader("earliest")
    reading(recorded(p0=9, p1=7), [])
    assert list(broker.assigned.values()) == [0, 7]
    assert "what it had after offset 9" in reading.stopped["events:0"]
