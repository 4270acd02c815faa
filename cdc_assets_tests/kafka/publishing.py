"""A captured table and its topics in Kafka, as tests use them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition

from cdc_assets.config.load import load_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of, run
from mssql_standin.control import StandIn

_NOT_YET = (
    confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
    confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
    confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
)
"""Of a topic that is being made."""


@dataclass
class Sent:
    """A record as a consumer sees it."""

    partition: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes]] | None
    timestamp: int = field(default=0, compare=False)


class Publishing:
    """A server with one table, its lake and its topics.

    Args:
        prefix: of the topics; of its own for each test, because they share the broker.
    """

    def __init__(self, server: StandIn, folder: Path, broker: Broker, prefix: str, **options: str) -> None:
        self.server, self.broker, self.prefix = server, broker, prefix
        self.file, self.lake = folder / "capture.json", folder / "lake"
        self.topic = f"{prefix}.{DATABASE}.dbo.t"
        self.options = {"bootstrap.servers": broker.servers, "errors.max.retries": "3"} | options
        self.options.setdefault("retriable.restart.connector.wait.ms", "300")
        self.write()
        self.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, note nvarchar(max))")
        self.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL")

    def write(self, **options: str) -> None:
        """(Re)write the configuration; options with two underscores for each dot."""
        self.options |= {name.replace("__", "."): text for name, text in options.items()}
        properties = {
            "topic.prefix": self.prefix,
            "database.hostname": "127.0.0.1",
            "database.port": str(self.server.port),
            "database.user": "sa",
            "database.password": "${env:NOBODY_SETS_THIS}",
            "database.names": DATABASE,
            "lake.path": str(self.lake),
        }
        self.file.write_text(json.dumps(properties | self.options))

    @property
    def config(self) -> CaptureConfig:
        """Of the capture, with small windows."""
        given = load_config(self.file, {"NOBODY_SETS_THIS": "x"})
        own = config_of(self.server.port, self.server.password, str(self.lake))
        events = replace(given.events, transaction_metadata=given.events.transaction_metadata)
        return replace(own, events=events, kafka=given.kafka, heartbeat=given.heartbeat)

    def execute(self, statement: str) -> None:
        """Run a statement on the server."""
        self.server.execute(statement, database=DATABASE)

    def insert(self, *numbers: int) -> None:
        """One transaction for each number."""
        for number in numbers:
            self.execute(f"INSERT INTO dbo.t VALUES ({number}, N'note {number}')")

    def capture(self, what: str = "stream") -> None:
        """Snapshot or stream."""
        self.server.agent.drain()
        run(self.config, what)

    def command(self, *arguments: str, crash: str = "") -> "subprocess.CompletedProcess[str]":
        """`cdc-assets publish` in a process of its own, which dies at a step."""
        done = self.start(*arguments, crash=crash)
        out, err = done.communicate(timeout=180)
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def start(self, *arguments: str, crash: str = "") -> "subprocess.Popen[str]":
        """The same, without waiting."""
        command = [sys.executable, "-m", "cdc_assets.cli.main", "publish", "-c", str(self.file), *arguments]
        environment = os.environ | {"CDC_CRASH_AT": crash}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @contextmanager
    def running(self, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
        """The same, ended with the block."""
        process = self.start("--follow", *arguments)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def publish(self, *arguments: str) -> None:
        """Publish what there is."""
        done = self.command(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr

    def sent(self, topic: str = "") -> list[Sent]:
        """What a consumer of committed records sees, partition by partition."""
        return list(read_committed(self.broker, topic or self.topic))

    def ids(self) -> list[int]:
        """Keys of the table's events that have a value, in their order in each partition."""
        return [json.loads(one.key)["payload"]["id"] for one in self.sent() if one.value is not None]


def publish_all(file: Path) -> None:
    """`cdc-assets publish` of what there is."""
    command = [sys.executable, "-m", "cdc_assets.cli.main", "publish", "-c", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def read_committed(broker: Broker, topic: str) -> Iterator[Sent]:
    """All committed records of a topic."""
    options = {"bootstrap.servers": broker.servers, "group.id": "test", "log_level": 0, "enable.partition.eof": True}
    consumer = Consumer(options | {"isolation.level": "read_committed", "enable.auto.commit": False})
    found = consumer.list_topics(topic, timeout=30).topics[topic]
    for number in sorted(found.partitions):
        consumer.assign([TopicPartition(topic, number, 0)])
        while True:
            message = consumer.poll(30)
            assert message is not None, "the topic has no end: a transaction is open"
            if message.error():
                assert message.error().code() in (
                    confluent_kafka.KafkaError._PARTITION_EOF,
                    confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
                ), message.error()
                break
            yield Sent(number, message.key(), message.value(), message.headers(), message.timestamp()[1])
    consumer.close()


def count(broker: Broker, topic: str) -> int:
    """Records of a topic that nobody writes in transactions; none while it is being made."""
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "count", "log_level": 0})
    try:
        found = consumer.list_topics(topic, timeout=30).topics[topic]
        own = [TopicPartition(topic, number) for number in found.partitions]
        return sum(consumer.get_watermark_offsets(one, timeout=30)[1] for one in own)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() not in _NOT_YET:
            raise
        return 0
    finally:
        consumer.close()


def listed(iterable: Any) -> Iterator[Any]:
    """What one of Java's holds."""
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def murmur2(data: bytes) -> int:
    """Java's `Utils.murmur2`, as unsigned."""
    length, m, mask = len(data), 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ length
    for at in range(0, length - length % 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    tail = data[length - length % 4 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15
