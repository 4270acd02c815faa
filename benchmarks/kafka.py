"""From a server to topics in Kafka, ours and the real connector's: `python -m benchmarks kafka [--rows N] [--updates N] [--write]`.

Both write the same events of the same server to the same broker, one after the other. The broker is one process with Kafka's own heap
of 1 GB, which has served a million records before; a table has one partition; records are JSON without schemas unless `--schemas`,
without compression unless `--compression`. Ours is `cdc-assets capture --local`, then `cdc-assets publish`; theirs is a standalone
Kafka Connect worker with the connector and a large queue. *Cold* is from the launch of a process to its last record in the topic; *warm*
is the same work, into other topics, in a process that has done it before. A backlog is captured into a lake, and by a connector with
offsets, that have a snapshot of one row. Processor seconds are those of the contender's process, without the server's and the broker's. Two
passes of ours and one of theirs come first, in which the server encodes the rows; what was written before a contender begins is on the
disk by then, and memory for what it will write has been touched before each pass (`claim_memory`).

*Latency* is from the return of an INSERT to the record at a consumer of committed records, one row at a time, with
`poll.interval.ms` 100 for both.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from benchmarks.connector_passes import FAST
from benchmarks.document import FIGURES, write_table
from benchmarks.main_job import DATABASE, TABLE, connection, server_process, settings
from benchmarks.passes import Times, claim_memory, load_average, run_process, spread
from cdc_assets.adapters.sqlserver.session import connect
from cdc_assets_tests.kafka.broker import Broker
from cdc_assets_tests.kafka.connect import Worker, source

OURS, THEIRS = "cdc-assets `--local`", "connector in Connect"
HEAD = ("| | | Cold: s | events/s | Warm: s | events/s | Processor, µs an event |", "|---|---|---|---|---|---|---|")
LATENCY_HEAD = ("| | Rows | p50 | p99 |", "|---|---|---|---|")
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_LIMIT_S = 1800
_UNMEASURED = 2
"""Passes in which the server encodes rows, one part of them in the first and the rest in the second."""
_NOT_THERE_YET = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
FEW = {
    "snapshot.select.statement.overrides": f"dbo.{TABLE}",
    f"snapshot.select.statement.overrides.dbo.{TABLE}": f"SELECT * FROM dbo.{TABLE} WHERE id <= 1",
}
"""A snapshot of one row."""


@dataclass
class Contest:
    """What both share.

    Args:
        broker: takes the topics.
        folder: for lakes and workers.
        properties: of a capture and of the connector.
        repeats: warm passes.
    """

    broker: Broker
    folder: Path
    properties: dict[str, str]
    repeats: int
    _counter: Consumer = field(init=False)
    _prefixes: Iterator[str] = field(default_factory=lambda: (f"b{number}" for number in range(10**6)))

    def __post_init__(self) -> None:
        """One client counts records; a new one for each look would take time of the contender."""
        self._counter = Consumer({"bootstrap.servers": self.broker.servers, "group.id": "count", "log_level": 0})

    def warm_up(self, records: int) -> None:
        """Have the broker serve some records, in the batches of Java's producer."""
        self.broker.create("warm-up")
        producer = Producer({"bootstrap.servers": self.broker.servers, "batch.size": 16384, "linger.ms": 5})
        value = bytes(600)
        for number in range(records):
            while True:
                try:
                    producer.produce("warm-up", value, str(number).encode())
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0

    def ours(self, events: int, operation: str, files: Sequence[Path]) -> Times:
        """Passes of ours, one for each configuration, each checked: all events, the last one of this operation."""
        _settle()
        times = run_process("kafka_passes", {"files": list(map(str, files))}, self.folder)
        for prefix in (json.loads(file.read_text())["topic.prefix"] for file in files):
            assert self.count(prefix) >= events, f"{self.count(prefix)} of {events} records"
            assert self.last(prefix)["op"] == operation, self.last(prefix)
        return times

    def files(self, passes: int, **properties: str) -> list[Path]:
        """Configurations of ours, each with topics and a lake of its own."""
        own = {"bootstrap.servers": self.broker.servers, "stream.idle.timeout.ms": "1", "poll.interval.ms": "10"}
        found = []
        for prefix in [next(self._prefixes) for _ in range(passes)]:
            work = Path(tempfile.mkdtemp(dir=self.folder))
            given = {"topic.prefix": prefix, "lake.path": str(work / "lake")}
            (work / "bench.json").write_text(json.dumps({**self.properties, **own, **properties, **given}))
            found.append(work / "bench.json")
        return found

    def prepared(self, passes: int) -> list[Path]:
        """The same, with lakes that hold a snapshot of one row."""
        files = self.files(passes, **FEW)
        for file in files:
            command = [sys.executable, "-m", "cdc_assets.cli.main", "capture", "--local", "--config", str(file)]
            subprocess.run([*command, "--snapshot-only"], check=True, capture_output=True)
        return files

    def connectors(self, work: Path) -> dict[str, dict[str, str]]:
        """Connectors of a worker by prefix, one for each pass."""
        found = {}
        work.mkdir()
        for prefix in [next(self._prefixes) for _ in range(self.repeats + 2)]:
            history = work / prefix
            history.mkdir()
            found[prefix] = source(history, **self.properties, **FAST, **{"topic.prefix": prefix})
        return found

    def prepare(self, work: Path) -> dict[str, dict[str, str]]:
        """Connectors whose offsets are behind a snapshot of one row."""
        given = self.connectors(work)
        with Worker(work, self.broker.servers, {name: one | FEW for name, one in given.items()}) as worker:
            for prefix in given:
                self._await(worker, prefix, 1)
            time.sleep(2)
        return given

    def theirs(self, events: int, work: Path, given: dict[str, dict[str, str]]) -> Times:
        """Passes of the connector; in the first one the server encodes rows."""
        times, (unmeasured, first, *others) = Times(), list(given)
        before = {prefix: self.count(prefix) for prefix in given}
        with Worker(work, self.broker.servers, {unmeasured: given[unmeasured]}, heap="2g") as worker:
            self._await(worker, unmeasured, before[unmeasured] + events)
        _settle()
        started = time.perf_counter()
        with Worker(work, self.broker.servers, {first: given[first]}, heap="2g") as worker:
            self._await(worker, first, before[first] + events)
            times.cold.append(time.perf_counter() - started)
            for prefix in others:
                process = psutil.Process(worker.pid)
                claim_memory()
                started, used = time.perf_counter(), _used(process)
                worker.add(prefix, given[prefix])
                self._await(worker, prefix, before[prefix] + events)
                times.add_warm((time.perf_counter() - started, _used(process) - used))
        return times

    def count(self, prefix: str) -> int:
        """Records of the table's topic, with the marks that end transactions."""
        try:
            return int(self._counter.get_watermark_offsets(TopicPartition(topic_of(prefix), 0), timeout=30)[1])
        except KafkaException as error:
            if error.args[0].code() not in _NOT_THERE_YET:
                raise
            self._counter.list_topics(
                topic_of(prefix), timeout=30
            )  # else the client would go on to take it for unknown
            return 0

    def last(self, prefix: str) -> Any:
        """Value of the last record of the table's topic."""
        consumer = Consumer({"bootstrap.servers": self.broker.servers, "group.id": "last", "log_level": 0})
        try:
            high = self.count(prefix)
            consumer.assign([TopicPartition(topic_of(prefix), 0, max(0, high - 10))])
            last = [json.loads(message.value()) for message in consumer.consume(10, 5) if message.value()][-1]
            return last.get("payload", last)
        finally:
            consumer.close()

    def _await(self, worker: Worker, prefix: str, records: int) -> None:
        """Wait; the worker is asked seldom, because its answer takes time of the connector."""
        deadline, asked = time.monotonic() + _LIMIT_S, time.monotonic()
        while self.count(prefix) < records:
            if time.monotonic() - asked > 5:
                assert time.monotonic() < deadline, worker.log()
                worker.check()
                asked = time.monotonic()
            time.sleep(0.02)


def topic_of(prefix: str) -> str:
    """The table's topic."""
    return f"{prefix}.{DATABASE}.dbo.{TABLE}"


def _settle() -> None:
    """What was written before is on the disk, and what will be written has memory."""
    os.sync()
    claim_memory()


def _used(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system)


def lines(phase: str, events: int, ours: Times, theirs: Times) -> Iterator[str]:
    """Rows of a table, and the ratios."""
    for name, times in ((OURS, ours), (THEIRS, theirs)):
        yield (
            f"| {phase} | {name} | {spread(times.cold)} | {events / median(times.cold):,.0f} | {spread(times.warm)} "
            f"| {events / median(times.warm):,.0f} | {median(times.processor) / events * 1e6:.1f} |"
        )
    ratios = [median(getattr(theirs, kind)) / median(getattr(ours, kind)) for kind in ("cold", "warm", "processor")]
    yield f"| {phase} | the connector, times slower | {ratios[0]:.1f} | | {ratios[1]:.1f} | | {ratios[2]:.1f} |"


def latency(broker: Broker, topic: str, insert: Callable[[int], None], rows: int, first: int) -> list[float]:
    """Seconds of some rows, one after the other; the first five warm up."""
    options = {"bootstrap.servers": broker.servers, "group.id": "latency", "log_level": 0, "fetch.wait.max.ms": 10}
    consumer = Consumer(options | {"isolation.level": "read_committed"})
    high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    consumer.assign([TopicPartition(topic, 0, high)])
    found = []
    for number in range(first, first + rows + 5):
        insert(number)
        started = time.perf_counter()
        while (message := consumer.poll(60)) is not None and f'"id":{number}'.encode() not in (message.key() or b""):
            continue
        assert message is not None, f"row {number} did not come"
        found.append(time.perf_counter() - started)
        time.sleep(0.05)
    consumer.close()
    return found[5:]


@contextmanager
def following(contest: Contest, prefix: str) -> Iterator[None]:
    """Ours at work: a capture and a publisher."""
    work = Path(tempfile.mkdtemp(dir=contest.folder))
    own = {"bootstrap.servers": contest.broker.servers, "poll.interval.ms": "100", "stream.idle.timeout.ms": "600000"}
    file = work / "bench.json"
    file.write_text(json.dumps(contest.properties | own | {"topic.prefix": prefix, "lake.path": str(work / "lake")}))
    commands = (["capture", "--local"], ["publish", "--follow"])
    processes = []
    try:
        for command in commands:
            whole = [sys.executable, "-m", "cdc_assets.cli.main", *command, "--config", str(file)]
            with (work / f"{command[0]}.log").open("wb") as log:
                processes.append(subprocess.Popen(whole, stdout=log, stderr=log))
            deadline = time.monotonic() + 300
            while command[0] == "capture" and not list(work.glob(f"lake/*{TABLE}/_delta_log/*.json")):
                assert time.monotonic() < deadline, (work / "capture.log").read_text()
                time.sleep(0.2)
        while not contest.count(prefix):
            assert time.monotonic() < deadline, (work / "publish.log").read_text()
            time.sleep(0.2)
        yield
    finally:
        for process in processes:
            process.terminate()
            process.wait(60)


def latencies(contest: Contest, port: int, password: str, rows: int) -> Iterator[str]:
    """Rows of a table, ours and theirs, one after the other."""
    connection = connect(settings(port, password, Path()).connection).connection

    def insert(number: int) -> None:
        connection.execute(f"INSERT INTO dbo.{TABLE} (id, name) VALUES (?, N'latency')", number)

    contest.properties |= FEW
    with following(contest, "l0"):
        yield _told(OURS, latency(contest.broker, topic_of("l0"), insert, rows, 10**8))
    work = contest.folder / "latency"
    work.mkdir()
    given = {"l1": source(work, **contest.properties, **{"topic.prefix": "l1"})}
    with Worker(work, contest.broker.servers, given) as worker:
        contest._await(worker, "l1", 1)
        time.sleep(5)
        yield _told(THEIRS, latency(contest.broker, topic_of("l1"), insert, rows, 2 * 10**8))


def _told(name: str, seconds: list[float]) -> str:
    ordered = sorted(seconds)
    late = ordered[max(0, ceil(0.99 * len(ordered)) - 1)]
    return f"| {name} | {len(ordered)} | {median(ordered) * 1000:.0f} ms | {late * 1000:.0f} ms |"


def contest_lines(given: argparse.Namespace, folder: Path) -> Iterator[str]:
    """All that is measured."""
    with Broker(folder / "broker", heap="1g") as broker, server_process() as (port, password, load):
        schemas = str(given.schemas).lower()
        properties = connection(port, password) | {
            "table.include.list": f"dbo\\.{TABLE}",
            "producer.override.compression.type": given.compression,
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
            **{f"{side}.converter": _JSON for side in ("key", "value")},
            **{f"{side}.converter.schemas.enable": schemas for side in ("key", "value")},
        }
        contest = Contest(broker, folder, properties, given.repeats)
        contest.warm_up(given.rows)
        load("table", given.rows)
        contest.ours(given.rows, "r", contest.files(_UNMEASURED))
        ours = contest.ours(given.rows, "r", contest.files(given.repeats + 1))
        work = folder / "snapshot"
        yield from lines("snapshot", given.rows, ours, contest.theirs(given.rows, work, contest.connectors(work)))
        work = folder / "backlog"
        files = contest.prepared(_UNMEASURED + given.repeats + 1)
        connectors = contest.prepare(work)
        each = min(100, given.updates)
        load("changes", given.updates // each, each)
        events = given.updates // each * each
        contest.ours(events, "u", files[:_UNMEASURED])
        ours = contest.ours(events, "u", files[_UNMEASURED:])
        yield from lines("backlog", events, ours, contest.theirs(events, work, connectors))
        yield from ("", *LATENCY_HEAD)
        yield from latencies(contest, port, password, given.latencies)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--updates", type=int, default=1_000_000, help="updates of the backlog")
    parser.add_argument("--repeats", type=int, default=3, help="warm passes")
    parser.add_argument("--latencies", type=int, default=200, help="rows whose latency is measured")
    parser.add_argument("--compression", default="none", help="of both contenders' producers")
    parser.add_argument("--schemas", action="store_true", help="JSON with schemas")
    parser.add_argument("--write", nargs="?", type=Path, const=FIGURES, help="put the table into benchmarks/README.md")
    given = parser.parse_args()
    told = [
        f"{given.rows:,} rows, {given.updates:,} updates, compression {given.compression}; load average at the start {load_average()}.",
        "",
        *HEAD,
    ]
    print(*told, sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for line in contest_lines(given, Path(folder)):
            print(line, flush=True)
            told.append(line)
    if given.write:
        write_table(given.write, "kafka", told)
