"""Each event is in a broker's committed transactions once and in order, wherever a publisher dies; without a broker."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.adapters.kafka.sizes import DEFAULT_BYTES
from cdc_assets.cli.tail import lines
from cdc_assets.config.kafka import kafka_settings
from cdc_assets.config.settings import KafkaSettings, TextSettings
from cdc_assets.config.settings.kafka import AVRO, JSON
from cdc_assets.core.interruption import Interrupted
from cdc_assets.errors import ConfigurationError, InvalidValueError, LakeError, PreflightError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.snapshot_state import SnapshotRun
from cdc_assets.ledger.state import CaptureState
from cdc_assets.publish import publisher as publishing
from cdc_assets.publish.offset import Published, parse_published
from cdc_assets.publish.records import RecordSlice
from cdc_assets.publish.render import Renderer
from cdc_assets.publish.rows import TopicRows
from cdc_assets.publish.stops import Stops
from cdc_assets_tests.crashes import PowerCutError, ask_to_end, cut_after
from cdc_assets_tests.unit.publish.memory import TOPIC, MemoryBroker
from cdc_assets_tests.unit.publish.world import World, published, publisher
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with StandIn(databases=(DATABASE,)) as server:
        made = World(server, tmp_path_factory.mktemp("publish") / "lake")
        made.execute("INSERT INTO dbo.t VALUES (1, N'a'), (2, N'b'), (3, N'c')")
        made.capture("snapshot")
        for turn in range(3):
            for number in range(4):
                made.execute(f"INSERT INTO dbo.t VALUES ({10 + 4 * turn + number}, N'x')")
            made.execute(f"UPDATE dbo.t SET note = N'turn {turn}'")
            made.execute(f"DELETE FROM dbo.t WHERE id = {10 + turn}")
            made.capture()
            if turn == 1:
                made.compact()
        yield made


@pytest.mark.long
def test_all_events_come_in_the_order_of_their_topics(world: World) -> None:
    broker = MemoryBroker()
    assert not published(world.config, broker)
    tables = TopicTables.of(world.config)
    assert {"shop", TOPIC, "shop.transaction", "__debezium-heartbeat.shop"} == set(broker.topics)
    for topic, records in broker.topics.items():
        handle = tables.open(topic)
        assert handle is not None
        positions = sorted(handle.to_pyarrow_table(columns=["position"])["position"].to_pylist())
        assert [record.position for record in records] == positions
    assert len(broker.topics[TOPIC]) > 40


@pytest.mark.parametrize("most", [1, 5, 10_000])
def test_a_publisher_that_dies_at_any_call_loses_and_repeats_nothing(world: World, most: int) -> None:
    undisturbed, died = MemoryBroker(), MemoryBroker()
    published(world.config, undisturbed, most)
    for calls in (*range(1, 12), 20, 30, 50, 80):
        died.called = cut_after(calls)
        try:
            published(world.config, died, most)
        except PowerCutError:
            continue
    died.called = lambda _: None
    published(world.config, died, most)
    assert died.held() == undisturbed.held()


def test_a_transaction_that_takes_long_is_committed_before_it_is_full(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the broker would end it, again and again."""
    at_once, slowly, calls = MemoryBroker(), MemoryBroker(), list[object]()
    published(world.config, at_once, 10_000)
    monkeypatch.setattr(publishing, "_LONGEST_S", 0.0)
    slowly.called = calls.append
    published(world.config, slowly, 10_000)
    assert calls.count("commit") > 3
    assert slowly.held() == at_once.held()


def test_a_publisher_that_is_to_end_reads_and_sends_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction may take 20 seconds, and the first records of thousands of topics as long."""
    broker, sent, opened, read, asked = MemoryBroker(), list[object](), list[str](), TopicRows.read, ExitStack()

    def slowly(self: TopicRows, *given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        opened.append(self.topic)
        if len(opened) == 1:
            ask_to_end(asked)
        return read(self, *given, **named)

    def called(name: object) -> None:
        sent.extend([name] if name == "send" else [])
        if sent == ["send"]:
            ask_to_end(asked)

    found = publisher(world.config, broker, 10_000)
    found.open()
    with monkeypatch.context() as patch:
        patch.setattr(TopicRows, "read", slowly)
        with asked, pytest.raises(Interrupted):
            found.turn()
    assert len(opened) == 1
    broker.called = called
    with asked, pytest.raises(Interrupted):
        found.turn()
    assert 1 <= len(sent) < 10
    assert not broker.topics
    broker.called = lambda _: None
    assert not published(world.config, broker)
    whole = MemoryBroker()
    published(world.config, whole)
    assert broker.held() == whole.held()


def test_what_is_refused_stops_its_topic_alone_until_it_is_taken(world: World) -> None:
    undisturbed, small = MemoryBroker(), MemoryBroker()
    published(world.config, undisturbed)
    sizes = [len(record.value or b"") for record in undisturbed.topics[TOPIC]]
    small.most_bytes = max(sizes) - 1
    first = sizes.index(max(sizes))
    for _ in range(2):
        stopped = published(world.config, small)
        assert list(stopped) == [TOPIC]
        assert undisturbed.topics[TOPIC][first].position in stopped[TOPIC]
        assert len(small.topics[TOPIC]) == first
        assert len(small.topics["shop.transaction"]) == len(undisturbed.topics["shop.transaction"])
    assert small.marker is not None
    assert list(parse_published(small.marker).stopped) == [TOPIC]
    small.most_bytes = max(sizes)
    assert not published(world.config, small)
    assert small.held() == undisturbed.held()


@pytest.mark.long
def test_a_stopped_topic_keeps_its_place_while_others_go_on(world: World) -> None:
    """In one process, which does not try it again for some minutes."""
    whole, small = MemoryBroker(), MemoryBroker()
    published(world.config, whole)
    longest = max(len(record.value or b"") for record in whole.topics[TOPIC])
    small.most_bytes = longest - 1
    found = publisher(world.config, small)
    found.open()
    for number in (1, 2):
        while found.turn():
            pass
        assert list(found.stopped) == [TOPIC]
        world.execute(f"INSERT INTO dbo.t VALUES ({900 + number}, N'while it is stopped')")
        world.capture()
    small.most_bytes = longest
    assert not published(world.config, small)
    whole = MemoryBroker()
    published(world.config, whole)
    assert small.held() == whole.held()


def test_the_marker_tells_who_wrote_it_and_from_which_lake(world: World) -> None:
    broker = MemoryBroker()
    one, other = publisher(world.config, broker), publisher(world.config, broker)
    one.open()
    assert not one.is_fenced()
    other.open()
    assert one.is_fenced()
    assert broker.marker is not None
    broker.marker = json.dumps(json.loads(broker.marker) | {"lake": "another"})
    with pytest.raises(PreflightError, match="another lake"):
        other.open()
    broker.marker = "{}"
    with pytest.raises(LakeError, match="not a marker"):
        other.open()


def test_an_older_copy_of_the_lake_is_refused_though_the_marker_itself_is_behind(world: World) -> None:
    """A topic whose database was ahead of another one has a place of its own."""
    broker = MemoryBroker()
    published(world.config, broker)
    text = json.loads(broker.marker or "")
    broker.marker = json.dumps(text | {"window": 0, "places": {TOPIC: [text["window"] + 1, "~"]}})
    with pytest.raises(PreflightError, match="from a newer copy of it"):
        publisher(world.config, broker).open()


def test_a_late_start(world: World) -> None:
    whole, late = MemoryBroker(), MemoryBroker()
    published(world.config, whole)
    after = whole.topics[TOPIC][20].position[:22]
    found = publisher(world.config, late, 5, after)
    found.open()
    found.turn()
    published(world.config, late)  # the next start needs no option
    assert [r.position for r in late.topics[TOPIC]] == [
        r.position for r in whole.topics[TOPIC] if r.position[:22] > after
    ]
    with pytest.raises(ConfigurationError, match="published up to window"):
        publisher(world.config, late, 5, "00000001:00000001:0001").open()


def test_what_cannot_be_rendered_before_a_late_start_hides_nothing_behind_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events from before the start and behind it are in one file."""
    whole, late, render = MemoryBroker(), MemoryBroker(), Renderer._slices
    published(world.config, whole)
    bad, after = (whole.topics[TOPIC][number].position for number in (1, 10))

    def broken(self: Renderer, topic: str, batch: pa.RecordBatch) -> Iterator[RecordSlice]:
        if topic == TOPIC and bad in batch.column("position").to_pylist():
            raise InvalidValueError("transform", "value", "another", "correct it")
        return render(self, topic, batch)

    monkeypatch.setattr(Renderer, "_slices", broken)
    found = publisher(world.config, late, 5, after[:22])
    found.open()
    while found.turn():
        pass
    assert not found.stopped
    assert [record.position for record in late.topics[TOPIC]] == [
        record.position for record in whole.topics[TOPIC] if record.position[:22] > after[:22]
    ]


def test_reasons_of_any_length_leave_room_for_the_marker(world: World) -> None:
    """One that the broker does not take would stop all topics."""
    broker = MemoryBroker(at_commit={TOPIC: "it is not compatible: " + "x" * 2_000_000})
    stopped = published(world.config, broker)
    assert list(stopped) == [TOPIC]
    assert len((broker.marker or "").encode()) < DEFAULT_BYTES / 2
    assert "not compatible" in parse_published(broker.marker or "").stopped[TOPIC]


@pytest.mark.long
def test_reasons_of_very_many_topics_leave_room_for_the_marker() -> None:
    many = Stops()
    for number in range(5_000):
        many.add(f"t{number}", "ü" * 300)
    assert len(json.dumps(many.reasons())) < DEFAULT_BYTES / 2


def test_the_number_of_a_snapshot_is_open_until_its_structures_are_written(world: World) -> None:
    state = Manifest(TopicTables.of(world.config), "shop").read()
    assert state.complete_window == state.next_window - 1
    planned = SnapshotRun(state.next_window, DATABASE, (), ())
    began = CaptureState(next_window=state.next_window + 1, snapshots={DATABASE: planned})
    assert began.complete_window == state.next_window - 1
    further = CaptureState(next_window=state.next_window + 1, snapshots={DATABASE: replace(planned, done=1)})
    assert further.complete_window == state.next_window


def test_places_are_written_and_read() -> None:
    known = Published(
        "lake", 7, {"t": (6, "00/1"), "h": (99, "~")}, {"t": "too large"}, {"A": "00000001:00000001:0001"}, "me"
    )
    assert parse_published(known.text()) == known
    assert known.at(8, {"t": (8, "~"), "u": (9, "x")}).places == {"u": (9, "x")}
    assert known.of("other") == (7, "~")
    assert known.of("new", numbered=False) == (-1, "~")


def test_settings_are_those_of_connect() -> None:
    texts = {
        "producer.override.max.request.size": "5000000",
        "producer.key.serializer": "java",
        "producer.compression.type": "zstd",
        "topic.creation.groups": "wide",
        "topic.creation.wide.include": "shop\\..*",
        "topic.creation.wide.partitions": "12",
        "topic.creation.default.replication.factor": "3",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
    }
    found = kafka_settings({}, texts, "debezium")
    assert dict(found.producer) == {"max.request.size": "5000000", "compression.type": "zstd"}
    assert [(rule.partitions, rule.replication) for rule in found.rules] == [(12, 3), (-1, 3)]
    assert found.problem is not None
    assert found.problem[0] == "value.converter.schema.registry.url"
    flat = kafka_settings({}, {"flinkx.split": "true"}, "flinkx")
    assert (flat.flat, flat.paved, flat.split, flat.problem) == (True, True, True, None)
    packed = {"value.converter": AVRO, "value.converter.schema.registry.url": "http://r"}
    assert (kafka_settings({}, packed, "flinkx").problem or [""])[0] == "value.converter"
    assert kafka_settings({}, {}, "debezium") == KafkaSettings()
    headers = {"header.converter": JSON, "header.converter.schemas.enable": "false"}
    shown = kafka_settings({}, headers, "debezium")
    assert (shown.headers, shown.header_schema, shown.problem) == (JSON, False, None)
    with pytest.raises(ConfigurationError, match=r"topic\.creation\.groups"):
        kafka_settings({}, {"topic.creation.other.partitions": "1"}, "debezium")
    with pytest.raises(ConfigurationError, match="number"):
        kafka_settings({}, {"topic.creation.default.partitions": "many"}, "debezium")


@pytest.mark.long
@pytest.mark.parametrize("most", [3, 10_000])
@pytest.mark.parametrize("split", [False, True])
def test_values_as_flat_records(world: World, most: int, split: bool) -> None:
    """The records that `tail` prints, in their order, under the keys of the events; a tombstone only moves the place."""
    flat = replace(world.config.kafka, flat=True, split=split)
    broker, plain = MemoryBroker(), MemoryBroker()
    assert not published(replace(world.config, kafka=flat), broker, most)
    published(world.config, plain)
    handle = TopicTables.of(world.config).open(TOPIC)
    assert handle is not None
    schema = pa.schema(handle.schema().to_arrow())
    rows = handle.to_pyarrow_table().cast(schema).sort_by("position")
    shown = [json.loads(line) for line in lines([rows], TextSettings(format="flinkx", split=split))]
    found = [json.loads(record.value or b"") for record in broker.topics[TOPIC]]
    assert [{**record, "ts": 0} for record in found] == [{**record, "ts": 0} for record in shown]
    numbers = [record["ts"] for record in found]
    assert numbers == sorted(set(numbers))
    keys = {record.position: record.key for record in plain.topics[TOPIC] if record.value is not None}
    assert [record.key for record in broker.topics[TOPIC]] == [keys[record.position] for record in broker.topics[TOPIC]]
    assert {"insert", "delete"} < {record["type"] for record in found}
    assert broker.topics["shop"] == plain.topics["shop"]
    marker = parse_published(broker.marker or "")
    assert (marker.window, marker.places) == (
        parse_published(plain.marker or "").window,
        parse_published(plain.marker or "").places,
    )
    again = len(broker.topics[TOPIC])
    assert not published(replace(world.config, kafka=flat), broker, most)
    assert len(broker.topics[TOPIC]) == again


def test_a_window_of_which_a_topic_has_no_mark_is_published(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks are what a table has at least."""
    broker, tables = MemoryBroker(), TopicTables.of(world.config)
    published(world.config, broker)
    former = Manifest(tables, "shop").read().marks[TOPIC]
    world.execute("INSERT INTO dbo.t VALUES (1000, N'new')")
    world.capture()
    read = Manifest.read
    monkeypatch.setattr(
        Manifest, "read", lambda manifest: replace(state := read(manifest), marks={**state.marks, TOPIC: former})
    )
    published(world.config, broker)
    assert b"1000" in (broker.topics[TOPIC][-1].key or b"")
