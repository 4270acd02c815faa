"""How fast an incremental snapshot is beside the stream: `python -m benchmarks incremental [--rows N] [--debezium]`.

A table of eight columns is asked for by a row in the signal table, while a writer goes on: transactions that insert
behind the table's end and update another captured table, or, in the second case, update rows of the table itself. The
time is from the signal to the end of the snapshot; beside it stands a plain read of the whole table through the same
client under the same load. With `--debezium` the real connector is asked for the same. The stand-in, the capture (in
this process, through Spark) and the connector each have a process.
"""

import argparse
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyodbc

from benchmarks.connector import connector
from benchmarks.main_job import DATABASE, TABLE, server_process, settings
from benchmarks.witness import LOCAL, SPARK, Kind, Witness, noted
from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.spark.session import stop_spark
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.session import connect
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.capture import Capture
from cdc_assets.config.settings import CaptureConfig, SignalSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import TaskRunner
from cdc_assets.defs.spark import SparkResource
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables

SIGNALS = f"{DATABASE}.dbo.cdc_signal"
_ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{}', @role_name = NULL"
_SET_UP = [
    "CREATE TABLE dbo.cdc_signal (id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048) NULL)",
    _ENABLE.format("cdc_signal"),
    "CREATE TABLE dbo.ticks (id int NOT NULL PRIMARY KEY, at datetime2(3) NOT NULL)",
    _ENABLE.format("ticks"),
    "INSERT INTO dbo.ticks VALUES (1, SYSDATETIME())",
]
_ASK = f'{{"data-collections": ["{DATABASE}.dbo.{TABLE}"]}}'
_ENDED = "Incremental snapshot of"


@dataclass(frozen=True, slots=True)
class Case:
    """What the writer does beside the snapshot."""

    name: str
    statements: tuple[str, ...]


CASES = (
    Case(
        "inserts",
        (
            "UPDATE dbo.ticks SET at = SYSDATETIME() WHERE id = 1",
            f"INSERT INTO dbo.{TABLE} (id, qty) SELECT TOP (1) id + 1, 1 FROM dbo.{TABLE} ORDER BY id DESC",
        ),
    ),
    Case("updates", (f"UPDATE dbo.{TABLE} SET qty = qty + 1 WHERE id = ABS(CHECKSUM(NEWID())) % 1000 + 1",)),
)


class Bench:
    """A server with the table, and a client.

    Args:
        config: of the capture.
        kind: how tasks run.
        folder: for files.
        rows: of the table.
        pause: seconds between two transactions of the writer.
    """

    def __init__(self, config: CaptureConfig, kind: Kind, folder: Path, rows: int, pause: float) -> None:
        signals = SignalSettings((TableId(DATABASE, "dbo", "cdc_signal"),))
        filters = replace(config.filters, also=frozenset({SIGNALS.lower()}))
        self.config = replace(config, signals=signals, filters=filters)
        self._runner: TaskRunner = SparkResource().runner() if kind.on_spark else LocalRunner()
        self._kind, self._folder, self._rows, self._pause = kind, folder, rows, pause
        self._asked = 0

    def connect(self) -> pyodbc.Connection:
        """A session in the database."""
        connection = connect(self.config.connection).connection
        connection.execute(f"USE {DATABASE}")
        return connection

    @contextmanager
    def writing(self, case: Case) -> Iterator[None]:
        """A writer in a thread of its own."""
        stop = threading.Event()

        def write() -> None:
            with closing(self.connect()) as connection:
                while not stop.wait(self._pause):
                    for statement in case.statements:
                        connection.execute(statement)
                    connection.commit()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def ask(self) -> float:
        """Write the signal; the time of it."""
        self._asked += 1
        with closing(self.connect()) as connection:
            row = (f"ask-{os.getpid()}-{self._asked}", "execute-snapshot", _ASK)
            connection.execute("INSERT INTO dbo.cdc_signal VALUES (?, ?, ?)", *row)
            connection.commit()
        return time.perf_counter()

    def plain_read(self) -> float:
        """Seconds of a read of the whole table through one connection."""
        started = time.perf_counter()
        bulk = MssqlBulkSource(self.config.connection, self.config.streaming.fetch_size)
        found = sum(batch.num_rows for batch in bulk.read(f"SELECT * FROM {DATABASE}.dbo.{TABLE}"))
        assert found >= self._rows, f"{found} rows instead of {self._rows}"
        return time.perf_counter() - started

    def incremental(self) -> tuple[float, int]:
        """Seconds from the signal to the end of the snapshot, and READ events."""
        lake = Path(tempfile.mkdtemp(dir=self._folder))
        config = replace(self.config, lake=replace(self.config.lake, path=str(lake)))
        config = replace(config, snapshot=replace(config.snapshot, mode="no_data"))
        config = replace(config, streaming=replace(config.streaming, idle_timeout_s=0))
        with SqlServerSource(config.connection) as source, told() as ended:
            bulk = MssqlBulkSource(config.connection, config.streaming.fetch_size)
            seen: list[str] = []
            runner = Witness(self._runner, lambda ran: seen.append(noted(ran)))
            capture = Capture(config, source, bulk, runner, SystemClock())
            capture.snapshot()
            started = self.ask()
            capture.stream(should_yield=lambda: bool(ended))
            self._kind.require(seen)
            return ended[0] - started, reads(config)

    def debezium(self, seconds: float) -> float:
        """The same of the connector, with its own defaults."""
        work = Path(tempfile.mkdtemp(dir=self._folder))
        connection = self.config.connection
        properties = {
            "topic.prefix": "bench",
            "database.hostname": connection.host,
            "database.port": str(connection.port),
            "database.user": connection.user,
            "database.password": connection.password,
            "database.names": DATABASE,
            "snapshot.mode": "no_data",
            "signal.data.collection": SIGNALS,
        }
        with connector(work, **properties) as engine:
            engine.wait(lambda line: "Starting streaming" in line, 60)
            started = self.ask()
            engine.wait(
                lambda line: "Incremental Snapshot" in line and "type=COMPLETED" in line.replace("'", ""), seconds
            )
            return time.perf_counter() - started


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.ended: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(_ENDED):
            self.ended.append(time.perf_counter())


@contextmanager
def told() -> Iterator[list[float]]:
    """A list that gets the time at which the log tells the end of an incremental snapshot."""
    logger, listener = logging.getLogger("cdc_assets.incremental.snapshot"), _Listener()
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    try:
        yield listener.ended
    finally:
        logger.removeHandler(listener)


def reads(config: CaptureConfig) -> int:
    """READ events of the table in the lake."""
    tables = TopicTables(Location.of(config.lake), config.name)
    handle = tables.open(f"{config.events.topic_prefix}.{DATABASE}.dbo.{TABLE}")
    assert handle is not None
    operations = handle.to_pyarrow_dataset().to_table(columns={"op": _operation()})["op"]
    return int(pa.compute.sum(pa.compute.equal(operations, "r")).as_py() or 0)


def _operation() -> pa.compute.Expression:
    return pa.compute.field("value", "op")


def measure(bench: Bench, case: Case, repeats: int) -> Iterator[str]:
    """Lines of one case: plain reads and snapshots in turn, after one of each to warm up."""
    plain, ours, found = [], [], 0
    with bench.writing(case):
        for number in range(repeats + 1):
            read, (seconds, found) = bench.plain_read(), bench.incremental()
            if number:
                plain.append(read)
                ours.append(seconds)
    yield f"{case.name:<10}{'plain read':<24}{median(plain):>10.2f} s"
    yield (
        f"{case.name:<10}{'incremental snapshot':<24}{median(ours):>10.2f} s{median(ours) / median(plain):>8.1f} times"
        f"{found:>12,} READs"
    )


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--pause-ms", type=float, default=100, help="between two transactions of the writer")
    parser.add_argument("--latency-ms", type=int, default=0, help="of the capture job; 0 captures with the commit")
    parser.add_argument("--repeats", type=int, default=3, help="measured passes")
    parser.add_argument("--case", default="", choices=["", *(case.name for case in CASES)], help="only this one")
    parser.add_argument(
        "--local", action="store_true", help="tasks in threads of this process, as capture --local does"
    )
    parser.add_argument("--debezium", action="store_true", help="run the real connector too; takes minutes")
    parser.add_argument("--limit", type=float, default=1800, help="seconds to wait for the connector")
    given = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with server_process() as (port, password, load), tempfile.TemporaryDirectory(prefix="bench-") as folder:
        load("table", given.rows)
        load("latency", given.latency_ms)
        bench = Bench(
            settings(port, password, Path(folder)),
            LOCAL if given.local else SPARK,
            Path(folder),
            given.rows,
            given.pause_ms / 1000,
        )
        with closing(bench.connect()) as connection:
            for statement in _SET_UP:
                connection.execute(statement)
                connection.commit()
        for case in [case for case in CASES if given.case in ("", case.name)]:
            for line in measure(bench, case, given.repeats):
                print(line, flush=True)
        stop_spark()
        if given.debezium:
            with bench.writing(CASES[0]):
                print(f"{CASES[0].name:<10}{'Debezium':<24}{bench.debezium(given.limit):>10.2f} s", flush=True)
