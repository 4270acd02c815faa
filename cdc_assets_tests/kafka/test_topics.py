"""Messages of a real broker arrive once: killed runs, groups that are reset, gaps, transactions, records that are wrong."""

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewPartitions

from cdc_assets.assembly.engine import run_engine
from cdc_assets.config.engine import load_engine_config
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.errors import LakeError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.kafka.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

STEPS = ["files-written", "batch-planned", "table-committed", "table-committed:2", "batch-complete", ""]
AFTER = {"type": "struct", "optional": True, "fields": [{"type": "int32", "optional": False, "field": "id"}]}
SCHEMA = {
    "type": "struct",
    "optional": False,
    "name": "shop.t.Envelope",
    "fields": [AFTER | {"field": "after"}, {"type": "string", "optional": False, "field": "op"}],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka") / "broker") as running:
        yield running


class Reading:
    """A capture of topics, and its lake."""

    def __init__(self, folder: Path, broker: Broker, topics: str, **options: str) -> None:
        self.file, self.lake, self._topics = folder / "capture.json", folder / "lake", topics
        properties = {
            "connector.class": "cdc_assets.KafkaEvents",
            "topic.prefix": "shop",
            "bootstrap.servers": broker.servers,
            "topics.regex": topics,
            "lake.path": str(self.lake),
            "stream.idle.timeout.ms": "3000",
            "engine.batch.rows": "150",
        }
        self.file.write_text(json.dumps(properties | {name.replace("__", "."): text for name, text in options.items()}))

    def run(self) -> int:
        config = load_engine_config(self.file, {})
        tables = TopicTables(Location.of(config.lake), "shop", config.lake)
        return sum(run_engine(config, tables, lambda _: None).rows.values())

    def command(self, crash: str) -> int:
        """A process of its own, which dies at a step."""
        command = [sys.executable, "-m", "cdc_assets.cli.main", "capture", "-c", str(self.file)]
        log = self.file.with_suffix(".log").open("ab")
        with log:
            return subprocess.run(command, env=os.environ | {"CDC_CRASH_AT": crash}, stdout=log, stderr=log).returncode

    def held(self, topic: str) -> list[dict[str, Any]]:
        """Keys and values of a topic's rows in their order."""
        config = load_engine_config(self.file, {})
        handle = TopicTables(Location.of(config.lake), "shop", config.lake).open(topic)
        if handle is None:
            return []
        rows: list[dict[str, Any]] = handle.to_pyarrow_table().sort_by("position").to_pylist()
        return rows

    def troubles(self) -> list[str]:
        """Streams that are told as not read on."""
        return list(EngineOverview(load_engine_config(self.file, {})).state.stopped)

    def ids(self, topic: str) -> list[int]:
        return [row["key"]["id"] for row in self.held(topic)]


def message(number: int, partition: int = 0, *, schemas: bool = True) -> tuple[int, str, str]:
    payload = {"after": {"id": number}, "op": "c"}
    value = {"schema": SCHEMA, "payload": payload} if schemas else payload
    return partition, json.dumps({"id": number, "p": partition}), json.dumps(value)


def test_each_message_arrives_once_whatever_happens(tmp_path: Path, broker: Broker) -> None:
    """Runs die at every step, the group's offsets are reset, partitions and topics are added, another member joins."""
    reading = Reading(tmp_path, broker, r"once\..*")
    broker.create("once.a", 3)
    sent: dict[str, list[int]] = defaultdict(list)
    members = []
    for turn, step in enumerate(STEPS):
        if turn == 2:
            broker.create("once.b", 2)
        if turn == 3:
            broker.admin.create_partitions([NewPartitions("once.a", 4)])["once.a"].result(60)
            member = Consumer({"bootstrap.servers": broker.servers, "group.id": "cdc-assets-shop", "log_level": 0})
            member.subscribe(["once.a"])
            member.poll(1)
            members.append(member)
        for topic, partitions in (("once.a", 4 if turn > 2 else 3), ("once.b", 2))[: 1 + (turn > 1)]:
            numbers = range(turn * 1000, turn * 1000 + 400)
            broker.write(topic, [message(number, number % partitions) for number in numbers])
            sent[topic] += numbers
        assert reading.command(step) == (-9 if step else 0), reading.file.with_suffix(".log").read_text()[-3000:]
        if turn == 4:
            for member in members:
                member.close()
            reset = [TopicPartition("once.a", partition, 0) for partition in range(3)]
            request = [ConsumerGroupTopicPartitions("cdc-assets-shop", reset)]
            for done in broker.admin.alter_consumer_group_offsets(request).values():
                done.result(60)
    for topic, numbers in sent.items():
        rows = reading.held(topic)
        assert sorted(row["key"]["id"] for row in rows) == sorted(numbers)
        for partition in range(4):
            own = [row["key"]["id"] for row in rows if row["key"]["p"] == partition]
            assert own == sorted(own), "a partition's messages are in their order"
    assert all(row["headers"] == [("h", "1")] for row in reading.held("once.a"))


def test_messages_of_transactions_that_are_not_committed_are_not_there(tmp_path: Path, broker: Broker) -> None:
    reading = Reading(tmp_path, broker, "transactions")
    broker.create("transactions", 1)
    send = partial(broker.transaction, topic="transactions")
    with send("one", messages=[message(1), message(2)]) as producer:
        producer.commit_transaction(60)
    with send("two", messages=[message(3)]) as producer:
        producer.abort_transaction(60)
    broker.write("transactions", [message(4)])
    with send("three", messages=[message(5), message(6)]) as open_one:
        reading.run()
        assert reading.ids("transactions") == [1, 2, 4]
        broker.write("transactions", [message(7)])
        reading.run()
        assert reading.ids("transactions") == [1, 2, 4]
        open_one.commit_transaction(60)
    with send("four", messages=[message(8)]) as producer:
        producer.abort_transaction(60)
    reading.run()
    assert reading.run() == 0
    assert reading.ids("transactions") == [1, 2, 4, 5, 6, 7]


def test_numbers_that_compaction_left_out_are_no_gap(tmp_path: Path, broker: Broker) -> None:
    reading = Reading(tmp_path, broker, "compacted")
    options = {"cleanup__policy": "compact", "segment__ms": "200", "min__cleanable__dirty__ratio": "0.001"}
    broker.create("compacted", 1, **options, max__compaction__lag__ms="300")
    broker.write("compacted", [message(number) for number in range(20)])
    reading.run()
    for value in range(10):
        broker.write("compacted", [message(number % 3) for number in range(30)])
        broker.write("compacted", [(0, message(100 + value)[1], None)])
        time.sleep(0.3)
    deadline = time.monotonic() + 120
    while (left := consumed(broker, "compacted")) and len(left) > 120:
        assert time.monotonic() < deadline, "nothing was compacted"
        broker.write("compacted", [message(99)])
        time.sleep(1)
    expected = [offset for offset in consumed(broker, "compacted") if offset >= 20]
    assert expected != list(range(expected[0], expected[-1] + 1))
    reading.run()
    assert len(reading.held("compacted")) == 20 + len(expected)
    assert reading.run() == 0


def consumed(broker: Broker, topic: str) -> list[int]:
    """Offsets that a consumer from the beginning finds."""
    options = {"bootstrap.servers": broker.servers, "group.id": "x", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer(options)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while not (event := consumer.poll(30)).error():
        found.append(event.offset())
    consumer.close()
    return found


def test_events_that_were_removed_before_they_were_read_are_told(tmp_path: Path, broker: Broker) -> None:
    reading = Reading(tmp_path, broker, r"removed\..*")
    for topic in ("removed.a", "removed.b"):
        broker.create(topic, 1)
        broker.write(topic, [message(number) for number in range(10)])
    reading.run()
    broker.write("removed.a", [message(number) for number in range(10, 20)])
    broker.write("removed.b", [message(number) for number in range(10, 20)])
    for done in broker.admin.delete_records([TopicPartition("removed.a", 0, 15)]).values():
        done.result(60)
    for _ in range(2):
        with pytest.raises(LakeError, match=r"removed\.a partition 0: offsets 10 to 14 were removed before"):
            reading.run()
    assert reading.ids("removed.b") == list(range(20))
    assert reading.ids("removed.a") == list(range(10))
    onward = Reading(tmp_path, broker, r"removed\..*", consumer__override__auto__offset__reset="earliest")
    with pytest.raises(
        LakeError, match=r"removed\.a partition 0: offsets 10 to 14 are not in the lake; it continues at 15"
    ):
        onward.run()
    assert onward.ids("removed.a") == [*range(10), *range(15, 20)]
    assert onward.troubles() == ["removed.a:0"]
    assert onward.run() == 0
    assert not onward.troubles()


def test_a_topic_that_was_made_anew_is_told_and_then_read_from_its_beginning(tmp_path: Path, broker: Broker) -> None:
    """It has as many messages as were read of the one before, so its offsets alone show nothing."""
    reading = Reading(tmp_path, broker, r"anew\..*")
    for topic in ("anew.a", "anew.b"):
        broker.create(topic, 1)
        broker.write(topic, [message(number) for number in range(10)])
    reading.run()
    broker.admin.delete_topics(["anew.a"])["anew.a"].result(60)
    time.sleep(1)
    with pytest.raises(LakeError, match=r"anew\.a partition 0: it was read before and no longer exists"):
        reading.run()
    broker.create("anew.a", 1)
    broker.write("anew.a", [message(number) for number in range(100, 115)])
    broker.write("anew.b", [message(number) for number in range(10, 20)])
    for _ in range(2):
        with pytest.raises(LakeError, match=r"anew\.a partition 0: it was recreated after it was read to offset 10"):
            reading.run()
    assert reading.ids("anew.a") == list(range(10))
    assert reading.ids("anew.b") == list(range(20))
    assert reading.troubles() == ["anew.a:0"]
    onward = Reading(tmp_path, broker, r"anew\..*", consumer__override__auto__offset__reset="earliest")
    onward.run()
    assert onward.run() == 0
    assert onward.ids("anew.a") == [*range(10), *range(100, 115)]
    assert reading.run() == 0
    assert not reading.troubles()


def test_a_topic_that_is_made_anew_while_it_is_read_is_told(tmp_path: Path, broker: Broker) -> None:
    reading = Reading(tmp_path, broker, "again", stream__idle__timeout__ms="20000")
    broker.create("again", 1)
    broker.write("again", [message(number) for number in range(10)])
    reading.run()
    found: list[Exception] = []

    def follow() -> None:
        try:
            reading.run()
        except LakeError as error:
            found.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    time.sleep(5)
    broker.admin.delete_topics(["again"])["again"].result(60)
    broker.create("again", 1)
    broker.write("again", [message(number) for number in range(100, 120)])
    thread.join(120)
    assert "recreated" in str(found)
    assert reading.troubles() == ["again:0"]


def test_a_record_that_cannot_be_read_stops_its_partition_alone(tmp_path: Path, broker: Broker) -> None:
    reading = Reading(tmp_path, broker, r"poison\..*")
    for topic in ("poison.a", "poison.b"):
        broker.create(topic, 2)
        broker.write(topic, [message(number, number % 2) for number in range(10)])
    broker.write("poison.a", [(0, json.dumps({"id": 1, "p": 0}), "{broken")])
    for topic in ("poison.a", "poison.b"):
        broker.write(topic, [message(number, number % 2) for number in range(10, 20)])
    for _ in range(2):
        with pytest.raises(LakeError, match=r"poison\.a partition 0 offset 5: the value: it is no JSON"):
            reading.run()
        assert sorted(reading.ids("poison.b")) == list(range(20))
        assert sorted(reading.ids("poison.a")) == [*range(10), *range(11, 20, 2)]
    tolerant = Reading(tmp_path, broker, r"poison\..*", errors__tolerance="all")
    tolerant.run()
    assert sorted(tolerant.ids("poison.a")) == list(range(20))
    [row] = tolerant.held("shop.rejected")
    assert (row["value"]["place"], row["value"]["value"]) == ("poison.a partition 0 offset 5", "{broken")


AVRO = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.t",
    "connect.name": "shop.t.Envelope",
    "fields": [
        {
            "name": "after",
            "default": None,
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Value",
                    "fields": [{"name": "id", "type": "int"}],
                    "connect.name": "shop.t.Value",
                },
            ],
        },
        {"name": "op", "type": "string"},
    ],
}
AVRO_KEY = {"type": "record", "name": "Key", "namespace": "shop.t", "fields": [{"name": "id", "type": "int"}]}


def test_avro_with_a_registry(tmp_path: Path, broker: Broker) -> None:
    asked = []

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            schema = {"/schemas/ids/7": AVRO, "/schemas/ids/8": AVRO_KEY}.get(self.path)
            self.send_response(200 if schema else 404)
            self.end_headers()
            if schema:
                self.wfile.write(json.dumps({"schema": json.dumps(schema)}).encode())

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        converter = "io.confluent.connect.avro.AvroConverter"
        sides = {f"{side}__converter": converter for side in ("key", "value")}
        urls = {f"{side}__converter__schema__registry__url": address for side in ("key", "value")}
        reading = Reading(tmp_path, broker, "avro", **sides, **urls)
        broker.create("avro", 1)
        events = [
            (0, packed(8, AVRO_KEY, {"id": n}), packed(7, AVRO, {"after": {"id": n}, "op": "c"})) for n in range(50)
        ]
        broker.write("avro", [*events, (0, packed(8, AVRO_KEY, {"id": 1}), None)])
        reading.run()
        rows = reading.held("avro")
        assert [row["key"]["id"] for row in rows] == [*range(50), 1]
        assert [row["value"] for row in rows] == [*({"after": {"id": n}, "op": "c"} for n in range(50)), None]
        assert sorted(asked) == ["/schemas/ids/7", "/schemas/ids/8"]
        broker.write("avro", [(0, None, b"\x00\x00\x00\x00\x09x")])
        with pytest.raises(LakeError, match="avro partition 0 offset 51: the value: the registry has no schema 9"):
            reading.run()
    finally:
        server.shutdown()
        server.server_close()


def packed(number: int, schema: dict[str, Any], value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return b"\x00" + number.to_bytes(4, "big") + stream.getvalue()
