"""How fast a table and a backlog come into the lake: `python -m benchmarks.main_job [--rows N] [--updates N]`.

One eight-column table (int, varchar, datetime2(7), decimal, int, nvarchar, bit, bigint) on a stand-in in a process of its
own. Each phase is measured beside the *raw rate*: the same rows read as Arrow by the same number of Spark tasks and thrown
away. Memory is the resident set of this process and all its Python workers together, sampled ten times a second; the JVM
is told apart. Rows of a backlog are change rows: an update is two of them and becomes one event.
"""

import argparse
import multiprocessing as mp
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from cdc_assets.config.build import build_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.standin.control import StandIn
from cdc_assets.streaming.capture import Capture
from resources.bulk import MssqlBulkSource
from resources.clock import SystemClock
from resources.spark import SparkResource, SparkTaskRunner, stop_spark
from resources.sqlserver_source import SqlServerSource

DATABASE, TABLE = "Bench", "measurements"
_CREATE = f"""
CREATE TABLE dbo.{TABLE} (
    id int NOT NULL PRIMARY KEY, name varchar(40) NULL, created datetime2(7) NULL, amount decimal(18, 4) NULL,
    qty int NULL, note nvarchar(80) NULL, done bit NULL, total bigint NULL)
"""
_ENABLE = f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{TABLE}', @role_name = NULL"


@dataclass(frozen=True, slots=True)
class Result:
    """One measured phase."""

    name: str
    rows: int
    seconds: float
    raw_seconds: float
    python_mb: float
    jvm_mb: float

    def line(self) -> str:
        """For people."""
        rate, raw = self.rows / self.seconds, self.rows / self.raw_seconds
        return (
            f"{self.name:<28}{self.rows:>12,}{rate:>12,.0f}{raw:>14,.0f}{rate / raw:>9.0%}"
            f"{self.python_mb:>12,.0f}{self.jvm_mb:>9,.0f}"
        )


def serve(pipe: Connection) -> None:
    """The stand-in's process: answers (method, arguments) until it gets None."""
    with StandIn(databases=(DATABASE,)) as server:
        server.execute(_CREATE, database=DATABASE)
        pipe.send((server.port, server.password))
        while (request := pipe.recv()) is not None:
            method, arguments = request
            try:
                _load(server, method, *arguments)
                pipe.send(None)
            except Exception as error:  # noqa: BLE001 - the other process raises it
                pipe.send(error)


def _load(server: StandIn, method: str, *arguments: int) -> None:
    if method == "changes":
        server.bulk.load_changes(DATABASE, f"dbo_{TABLE}", *arguments)
        return
    server.bulk.load_table(DATABASE, TABLE, *arguments)
    server.execute(_ENABLE, database=DATABASE)
    server.agent.drain()


@contextmanager
def server_process() -> Iterator[tuple[int, str, Callable[..., None]]]:
    """Port, password, and a function that loads rows there."""
    ours, theirs = mp.Pipe()
    process = mp.get_context("spawn").Process(target=serve, args=(theirs,))
    process.start()
    port, password = ours.recv()

    def load(method: str, *arguments: int) -> None:
        ours.send((method, arguments))
        error = ours.recv()
        if error is not None:
            raise error

    try:
        yield port, password, load
    finally:
        ours.send(None)
        process.join(30)


class Memory:
    """Greatest resident sets while a block runs, in MB."""

    def __init__(self, server: int) -> None:
        self._server, self._stop = server, threading.Event()
        self.python = self.jvm = 0.0

    def __enter__(self) -> "Memory":
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            python = jvm = 0.0
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                try:
                    size = process.memory_info().rss / 1e6
                    java = process.name() == "java"
                except psutil.NoSuchProcess:
                    continue
                if process.pid != self._server:
                    jvm, python = jvm + size * java, python + size * (not java)
            self.python, self.jvm = max(self.python, python), max(self.jvm, jvm)


def count_rows(task: tuple[MssqlBulkSource, str]) -> int:
    """Read a query as Arrow and keep nothing."""
    bulk, statement = task
    return sum(batch.num_rows for batch in bulk.read(statement))


def raw_read(runner: SparkTaskRunner, bulk: MssqlBulkSource, statements: Sequence[str], rows: int) -> float:
    """Seconds for reading the same rows with as many tasks."""
    started = time.perf_counter()
    found = sum(runner.run(count_rows, [(bulk, statement) for statement in statements]))
    seconds = time.perf_counter() - started
    assert found == rows, f"{found} rows instead of {rows}"
    return seconds


def settings(port: int, password: str, lake: Path) -> CaptureConfig:
    """A capture of the one table."""
    return build_config(
        {
            "topic.prefix": "bench",
            "database.hostname": "127.0.0.1",
            "database.port": str(port),
            "database.user": "sa",
            "database.password": password,
            "database.names": DATABASE,
            "driver.encrypt": "no",
            "lake.path": str(lake),
            "stream.idle.timeout.ms": "1",
            "poll.interval.ms": "10",
        }
    )


def measured(server: int, work: Callable[[], object]) -> tuple[float, Memory]:
    """Seconds and memory of a piece of work."""
    with Memory(server) as memory:
        started = time.perf_counter()
        work()
        seconds = time.perf_counter() - started
    return seconds, memory


def run(rows: int, updates: int, per_transaction: int, lake: Path) -> Iterator[Result]:
    """Snapshot, then two backlogs, the second twice as large: memory must not follow it."""
    with server_process() as (port, password, load):
        config = settings(port, password, lake)
        runner = SparkResource().runner()
        runner.run(len, ["warm"] * runner.parallelism)
        bulk = MssqlBulkSource(config.connection, config.streaming.fetch_size)
        server = next(child.pid for child in mp.active_children() if child.pid)
        load("table", rows)
        with SqlServerSource(config.connection) as source:
            capture = Capture(config, source, bulk, runner, SystemClock())
            step = rows // runner.parallelism + 1
            parts = [
                f"SELECT * FROM {DATABASE}.dbo.{TABLE} WHERE id >= {low} AND id < {low + step}"
                for low in range(0, rows + 1, step)
            ]
            raw = raw_read(runner, bulk, parts, rows)
            seconds, memory = measured(server, capture.snapshot)
            yield Result("snapshot", rows, seconds, raw, memory.python, memory.jvm)
            for name, factor in (("backlog of updates", 1), ("backlog, twice as large", 2)):
                before = source.max_captured_lsn(DATABASE)
                load("changes", factor * updates // per_transaction, per_transaction)
                after = source.max_captured_lsn(DATABASE)
                assert before is not None
                assert after is not None
                bounds = source.slice_bounds(DATABASE, [f"dbo_{TABLE}"], before, after, runner.parallelism)
                change_table = f"{DATABASE}.cdc.[dbo_{TABLE}_CT]"
                parts = [
                    f"SELECT * FROM {change_table} WHERE [__$start_lsn] > 0x{low.raw.hex()} AND [__$start_lsn] <= 0x{high.raw.hex()}"
                    for low, high in zip([before, *bounds], bounds, strict=False)
                ]
                change_rows = 2 * factor * updates
                raw = raw_read(runner, bulk, parts, change_rows)
                seconds, memory = measured(server, capture.stream)
                yield Result(name, change_rows, seconds, raw, memory.python, memory.jvm)


def main() -> None:
    """Run all phases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--updates", type=int, default=500_000, help="updates of the first backlog")
    parser.add_argument("--per-transaction", type=int, default=100, help="updates of one transaction")
    given = parser.parse_args()
    print(f"{'phase':<28}{'rows':>12}{'rows/s':>12}{'raw rows/s':>14}{'of raw':>9}{'Python MB':>12}{'JVM MB':>9}")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for result in run(given.rows, given.updates, given.per_transaction, Path(folder) / "lake"):
            print(result.line(), flush=True)
    stop_spark()


if __name__ == "__main__":
    main()
