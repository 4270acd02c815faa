"""How fast a table and a backlog come into the lake: `python -m benchmarks main_job [--rows N] [--updates N]`.

One eight-column table (int, varchar, datetime2(7), decimal, int, nvarchar, bit, bigint) on a stand-in in a process of its
own. Each phase is measured beside the *raw rate*: the very statements of the phase, divided among as many Spark tasks in
the same way, read as Arrow and thrown away. A first pass warms the server, the JVM and the Python workers up; then raw read
and job take turns, and medians are printed. The jobs of a phase all begin at the same lake: an empty one for the snapshot,
a copy of a snapshotted one for a backlog.

Memory is sampled ten times a second. That of this process and its Python workers together is the greatest proportional set
(PSS), in which a page that forked workers share counts once; beside it stands that of the largest one of them, and the JVM's. Rows of a backlog are change rows: an update is two of them and becomes one event.
"""

import argparse
import multiprocessing as mp
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, TypeVar
from unittest.mock import patch

from benchmarks.ending import requests, served
from benchmarks.passes import timed
from benchmarks.processes import Memory
from benchmarks.raw import count_rows
from benchmarks.witness import SPARK, Witness, noted
from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.spark.runner import SparkTaskRunner
from cdc_assets.adapters.spark.session import stop_spark
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.capture.capture import Capture
from cdc_assets.config.build import build_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.jobs import Job
from cdc_assets.defs.spark import SparkResource
from cdc_assets.shared.statements import Statement, change_queries, rows_query
from cdc_assets.snapshot.tasks import RoundTask
from cdc_assets.streaming.tasks import SliceTask
from mssql_standin.control import StandIn

T = TypeVar("T")
R = TypeVar("R")
Work = Callable[[Capture], object]

DATABASE, TABLE = "Bench", "measurements"
_KEPT_ROWS = 4 * 1024**3
"""More than the largest curve reads: 5,000,000 change rows are 0.6 GB, and what is not kept is encoded in the pass that is measured."""
_CREATE = """
CREATE TABLE dbo.{0} (
    id int NOT NULL PRIMARY KEY, name varchar(40) NULL, created datetime2(7) NULL, amount decimal(18, 4) NULL,
    qty int NULL, note nvarchar(80) NULL, done bit NULL, total bigint NULL)
"""
_ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{0}', @role_name = NULL"


@dataclass(frozen=True, slots=True)
class Result:
    """One measured phase."""

    name: str
    rows: int
    seconds: float
    raw_seconds: float
    python_mb: float
    largest_mb: float
    jvm_mb: float

    def line(self) -> str:
        """For people."""
        rate, raw = self.rows / self.seconds, self.rows / self.raw_seconds
        return (
            f"{self.name:<28}{self.rows:>12,}{rate:>12,.0f}{raw:>14,.0f}{rate / raw:>9.0%}"
            f"{self.python_mb:>12,.0f}{self.largest_mb:>12,.0f}{self.jvm_mb:>9,.0f}"
        )


def names(tables: int) -> list[str]:
    """Of so many tables."""
    return [TABLE, *(f"{TABLE}{number}" for number in range(2, tables + 1))]


def serve(pipe: Connection, tables: int = 1) -> None:
    """The stand-in's process: answers (method, arguments) until it gets None."""
    with StandIn(databases=(DATABASE,), kept_rows=_KEPT_ROWS) as server:
        _define(server, [_CREATE.format(name) for name in names(tables)])
        pipe.send((server.port, server.password))
        for method, arguments in requests(pipe):
            try:
                _load(server, names(tables), method, *arguments)
                pipe.send(None)
            except Exception as error:  # noqa: BLE001 - the other process raises it
                pipe.send(error)


def _load(server: StandIn, tables: Sequence[str], method: str, *arguments: int) -> None:
    if method == "latency":
        server.agent.latency_s = arguments[0] / 1000
        return
    with server.bulk._loading() as connection, patch.object(server.bulk, "_loading", lambda: nullcontext(connection)):
        for name in tables:
            if method == "changes":
                server.bulk.load_changes(DATABASE, f"dbo_{name}", *arguments)
            else:
                server.bulk.load_table(DATABASE, name, rows=arguments[0])
    if method == "table":
        _define(server, [_ENABLE.format(name) for name in tables])
    server.agent.drain()


def _define(server: StandIn, statements: Sequence[str]) -> None:
    """Run definitions in one transaction and without the Agent: after the commit of one, each connection to the
    stand-in's file parses the definitions of all tables again. For the same reason all loads share a connection."""
    server.agent.stop()
    with server.connect(DATABASE) as connection:
        connection.execute("BEGIN TRANSACTION")
        for statement in statements:
            connection.execute(statement)
        connection.execute("COMMIT")
    server.agent.start()


@contextmanager
def server_process(tables: int = 1) -> Iterator[tuple[int, str, Callable[..., None]]]:
    """Port, password, and a function that loads rows there, into each of so many tables."""
    ours, theirs = mp.Pipe()
    process = mp.get_context("spawn").Process(target=serve, args=(theirs, tables))

    def load(method: str, *arguments: int) -> None:
        ours.send((method, arguments))
        error = ours.recv()
        if error is not None:
            raise error

    with served(ours, process):
        port, password = ours.recv()
        yield port, password, load


class Recorder:
    """A task runner that remembers what it ran.

    Args:
        runner: does the work.
    """

    def __init__(self, runner: SparkTaskRunner) -> None:
        self._runner = runner
        self.jobs: list[list[Sequence[Statement]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def get_ready(self) -> None:
        """The first job starts the session."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T], job: Job) -> list[R]:
        """Run `function` on every task and remember the statements."""
        self.jobs.append([_statements(task) for task in tasks])
        return self._runner.run(function, tasks, job)


def _statements(task: object) -> Sequence[Statement]:
    """What a task of a snapshot or a window reads its rows with."""
    if isinstance(task, RoundTask):
        tables = task.tables.get()
        return [
            rows_query(tables[entry.table].plan, tables[entry.table].schema, entry.range, None) for entry in task.slices
        ]
    assert isinstance(task, SliceTask), task
    return [
        statement
        for planned in task.reads
        for statement in change_queries(planned.plan, planned.read, task.mode, task.begins, task.ends)
    ]


def raw_read(runner: SparkTaskRunner, bulk: MssqlBulkSource, jobs: Sequence[Sequence[Sequence[Statement]]]) -> int:
    """Read what some jobs read, with as many tasks; returns the number of rows."""
    return sum(
        sum(runner.run(count_rows, [(bulk, read) for read in statements], Job("window", "raw"))) for statements in jobs
    )


def connection(port: int, password: str) -> dict[str, str]:
    """Properties of a capture or a connector that reads the server."""
    return {
        "database.hostname": "127.0.0.1",
        "database.port": str(port),
        "database.user": "sa",
        "database.password": password,
        "database.names": DATABASE,
        "driver.encrypt": "false",
    }


def settings(port: int, password: str, lake: Path) -> CaptureConfig:
    """A capture of the one table."""
    return build_config(
        connection(port, password)
        | {"topic.prefix": "bench", "lake.path": str(lake), "stream.idle.timeout.ms": "1", "poll.interval.ms": "10"}
    )


@dataclass(frozen=True, slots=True)
class Bench:
    """What all phases share.

    Args:
        runner: of tasks.
        folder: for lakes.
        port: of the server.
        password: of its `sa`.
        server: its process id.
        repeats: measured passes of each phase.
    """

    runner: SparkTaskRunner
    folder: Path
    port: int
    password: str
    server: int
    repeats: int

    def phase(self, name: str, rows: int, start: Path | None, work: Work) -> Result:
        """Raw read and job in turn, after one pass to warm up."""
        recorder = Recorder(self.runner)
        self.job(recorder, start, work)
        bulk = self.bulk(self.folder)
        raw, seconds, memories = [], [], []
        for _ in range(self.repeats):
            started = time.perf_counter()
            found = raw_read(self.runner, bulk, recorder.jobs)
            raw.append(time.perf_counter() - started)
            assert found == rows, f"{found} rows instead of {rows}"
            with Memory(but=self.server) as memory:
                seconds.append(self.job(self.runner, start, work))
            memories.append(memory)
        most = (max(getattr(memory, what) for memory in memories) for what in ("python", "largest", "jvm"))
        return Result(name, rows, median(seconds), median(raw), *most)

    def job(self, runner: SparkTaskRunner | Recorder, start: Path | None, work: Work) -> float:
        """Seconds of one job on a lake of its own."""
        return self.timed_job(runner, start, work)[0]

    def timed_job(self, runner: SparkTaskRunner | Recorder, start: Path | None, work: Work) -> tuple[float, float]:
        """Seconds and processor seconds of one job on a lake of its own."""
        lake = Path(tempfile.mkdtemp(dir=self.folder))
        if start is not None:
            shutil.copytree(start, lake, dirs_exist_ok=True)
        times = self.run(runner, lake, work)
        shutil.rmtree(lake)
        return times

    def run(self, runner: SparkTaskRunner | Recorder, lake: Path, work: Work) -> tuple[float, float]:
        """Seconds and processor seconds of one job on a lake, all of it on Spark; the server's are left out."""
        config = settings(self.port, self.password, lake)
        seen: list[str] = []
        witness = Witness(runner, lambda ran: seen.append(noted(ran)))
        with SqlServerSource(config.connection) as source:
            capture = Capture(config, source, self.bulk(lake), witness, SystemClock())
            times = timed(lambda: work(capture), self.server)
        SPARK.require(seen)
        return times

    def bulk(self, lake: Path) -> MssqlBulkSource:
        """How rows are read."""
        config = settings(self.port, self.password, lake)
        return MssqlBulkSource(config.connection, config.streaming.fetch_size)


def run(rows: int, updates: int, per_transaction: int, repeats: int, folder: Path) -> Iterator[Result]:
    """Snapshot, then two backlogs, the second twice as large: memory must not follow it."""
    with server_process() as (port, password, load):
        server = next(child.pid for child in mp.active_children() if child.pid)
        bench = Bench(SparkResource().runner(), folder, port, password, server, repeats)
        load("table", rows)
        yield bench.phase("snapshot", rows, None, Capture.snapshot)
        snapshotted = folder / "snapshotted"
        bench.run(bench.runner, snapshotted, Capture.snapshot)
        for name, factor in (("backlog of updates", 1), ("backlog, twice as large", 2)):
            load("changes", updates // per_transaction, per_transaction)
            yield bench.phase(name, 2 * factor * updates, snapshotted, Capture.stream)


def main() -> None:
    """Run all phases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--updates", type=int, default=500_000, help="updates of the first backlog")
    parser.add_argument("--per-transaction", type=int, default=100, help="updates of one transaction")
    parser.add_argument("--repeats", type=int, default=5, help="measured passes of each phase")
    given = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(
        f"{'phase':<28}{'rows':>12}{'rows/s':>12}{'raw rows/s':>14}{'of raw':>9}{'Python MB':>12}{'largest MB':>12}{'JVM MB':>9}"
    )
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for result in run(given.rows, given.updates, given.per_transaction, given.repeats, Path(folder)):
            print(result.line(), flush=True)
    stop_spark()
