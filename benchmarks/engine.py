"""The embedded engine into a lake beside the same engine with an empty sink: `python -m benchmarks engine [--rows N]`.

A MariaDB of the benchmark's own holds a table and, behind its snapshot, a backlog of updates. Each pass is a process of its
own. Times are from the first record to the last that is in the lake, or to the last record for the empty sink, which takes
records as the connector makes them, counts and marks them; nothing becomes JSON. What a capture waits for silence behind the
last record is left out. Passes take turns, and the first of each counts for nothing. The ratio is that of the medians; that
of processor seconds stands beside it, since on a machine with other work it says more. The server's are in neither.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.passes import load_average
from cdc_assets.config.engine import engine_config
from cdc_assets.connectors.debezium.engine import DebeziumEngine
from cdc_assets.connectors.engine.feed import Chunk, Offsets
from cdc_assets.connectors.engine.run import EngineRun
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from demo.mariadb import USER, MariaDb

FAST = {
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "poll.interval.ms": "100",
    "include.schema.changes": "false",
}
"""A large queue and short waits, as in the other benchmarks."""
_HELD = 8192
"""Records that may wait for silence at the end."""


@dataclass(frozen=True, slots=True)
class Timed:
    """What a pass took.

    Args:
        seconds: from the first record to the last.
        processor: processor seconds of the contender's processes.
    """

    seconds: float
    processor: float


class Watched:
    """A feed that takes the time of its first chunk, and of the waits behind the last."""

    def __init__(self, feed: DebeziumEngine, records: int) -> None:
        self._feed, self._records, self._came = feed, records, 0
        self.first: tuple[float, float] | None = None
        self.waited = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._feed, name)

    def next(self, timeout_s: float) -> Chunk | None:
        """The next chunk."""
        begun = time.perf_counter()
        chunk = self._feed.next(timeout_s)
        if self._came >= self._records - _HELD:
            self.waited += time.perf_counter() - begun
        if chunk is not None:
            self.first = self.first or (time.perf_counter(), _used())
            self._came += chunk.rows
        return chunk


def _used() -> float:
    found = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found += used.user + used.system
    return found


def into_lake(properties: dict[str, str], records: int) -> Timed:
    """One run into the lake."""
    config = engine_config(properties)
    feeds: list[Watched] = []
    ends: list[tuple[float, float, float]] = []

    def start(offsets: Offsets, history: Sequence[str]) -> Any:
        feeds.append(Watched(DebeziumEngine(config, offsets, history), records))
        return feeds[0]

    tables = TopicTables(Location.of(config.lake), config.topic_prefix, config.lake)
    run = EngineRun(config, tables, start, lambda _: ends.append((time.perf_counter(), _used(), feeds[0].waited)))
    summary = run.run()
    assert sum(summary.rows.values()) >= records, f"{summary.rows} instead of {records:,} events"
    assert feeds[0].first is not None
    return Timed(ends[-1][0] - feeds[0].first[0] - ends[-1][2], ends[-1][1] - feeds[0].first[1])


def into_nothing(properties: dict[str, str], records: int, work: Path) -> Timed:
    """One run of the engine alone, in a process of its own."""
    given = work / "arguments.json"
    arguments = {"work": str(work), "heap": "1g", "properties": {**properties, "name": "shop"}, "records": records}
    given.write_text(json.dumps(arguments))
    command = [sys.executable, "-m", "benchmarks.null_engine", str(given)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return Timed(found["seconds"], found["processor"])


def fill(server: MariaDb, rows: int) -> None:
    """A table of eight columns."""
    server.execute(
        "create table bench.items (id int primary key, customer int, name varchar(40), price decimal(12,2), ratio double, "
        "at datetime(3), note varchar(80), flag tinyint)"
    )
    server.execute(
        "use bench; insert into bench.items select seq, seq % 1000, concat('item ', seq), seq / 100, seq / 3, now(3), "
        f"concat('a note of some length, number ', seq), seq % 2 from seq_1_to_{int(rows)}"
    )


def update(server: MariaDb, rows: int) -> None:
    """One update of each row, ten thousand in a transaction."""
    for start in range(0, rows, 10_000):
        server.execute(
            f"update bench.items set price = price + 1, note = concat('changed ', id) where id > {start} and id <= {start + 10_000}"
        )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog=sys.argv[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    print(
        "| Load | Phase | Events | Engine alone, events/s | Into the lake, events/s | Ratio | Processor µs an event | Ratio |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name, MariaDb(Path(name) / "server", "bench") as server:
        folder = Path(name)
        fill(server, given.rows)
        properties = FAST | {
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "topic.prefix": "shop",
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": USER,
            "database.password": server.password,
            "database.server.id": "5401",
            "database.include.list": "bench",
        }
        _phase("snapshot", given.rows, given.repeats, folder, properties)
        update(server, given.rows)
        _phase("backlog", given.rows, given.repeats, folder, properties)


def _phase(phase: str, rows: int, repeats: int, folder: Path, properties: dict[str, str]) -> None:
    """Passes of both contenders in turn; those of the backlog begin where a snapshot has ended."""
    alone, ours = [], []
    for number in range(repeats + 1):
        work, lake = folder / f"{phase}-work{number}", folder / f"{phase}-lake{number}"
        if phase == "backlog":
            shutil.copytree(folder / "snapshot-work0", work)
            shutil.copytree(folder / "snapshot-lake0", lake)
        work.mkdir(exist_ok=True)
        alone.append(into_nothing(properties, rows, work))
        own = {"lake.path": str(lake), "engine.batch.rows": "100000", "stream.idle.timeout.ms": "3000"}
        ours.append(into_lake(properties | own, rows))
    rates = [rows / median(timed.seconds for timed in found[1:]) for found in (alone, ours)]
    processor = [median(timed.processor for timed in found[1:]) / rows * 1e6 for found in (alone, ours)]
    print(
        f"| {load_average()} | {phase} | {rows:,} | {rates[0]:,.0f} | {rates[1]:,.0f} | {rates[1] / rates[0]:.0%} "
        f"| {processor[0]:.1f}, {processor[1]:.1f} | {processor[0] / processor[1]:.0%} |",
        flush=True,
    )
