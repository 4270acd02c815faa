"""What a capture of many tables costs in Dagster: `python -m benchmarks thousand_tables [--tables N] [--changed N] [--daemon]`.

A stand-in in a process of its own has so many tables of eight columns with a few rows. Dagster's storage is SQLite, as in
`dagster.yaml`. For each phase (the code location loads, the sensor ticks, the first snapshot, changes of some tables, a
tick with nothing new) it prints seconds, processor seconds of this process, seconds in the event log, records of the run
by type and statements that the server was asked. With `--daemon`, `dagster dev` itself runs, and what is told are the
seconds to the first line of asset code from the tick of the sensor that started it, or from the change if the tick waited for
one, and the processor seconds of all its processes. With `--server` the server's tables are kept for another time.
"""

import argparse
import gc
import json
import multiprocessing as mp
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import dagster as dg
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from benchmarks.ending import requests, served
from benchmarks.processes import processor_seconds
from cdc_assets.adapters.spark.session import stop_spark
from cdc_assets.config.load import load_config
from cdc_assets.defs.build import build_definitions
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.sqlserver import SqlServerCdcResource
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.e2e.conftest import Daemon, dagster_dev
from mssql_standin.control import StandIn

DATABASE, CAPTURE = "Many", "many"
_TICK_S = 5.0
"""As long as Dagster's daemon waits between two; a look at the capture, which a tick begins, goes on meanwhile."""
SNAPSHOT = "first snapshot"
_CREATE = """
CREATE TABLE dbo.{0} (
    id int NOT NULL PRIMARY KEY, name varchar(40) NULL, created datetime2(7) NULL, amount decimal(18, 4) NULL,
    qty int NULL, note nvarchar(80) NULL, done bit NULL, total bigint NULL);
INSERT INTO dbo.{0} VALUES {1};
"""
_ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{0}', @role_name = NULL"
_ROW = "({0}, 'name{0}', '2026-01-01', 1.5, {0}, N'note', 0, 7)"
_CHANGE = "UPDATE dbo.{0} SET qty = qty + 1 WHERE id = 1"


def name_of(number: int) -> str:
    """The table's name."""
    return f"t{number:04d}"


# ---- the server ------------------------------------------------------------------------------------------------------


def serve(pipe: Connection, tables: int, rows: int, directory: Path | None) -> None:
    """The stand-in's process: answers requests until it gets None."""
    with StandIn(databases=(DATABASE,), directory=directory) as server:
        known = {str(name) for (name,) in server.execute("SELECT name FROM sys.tables", database=DATABASE)}
        create(server, [name for name in map(name_of, range(tables)) if name not in known], rows)
        take, count = server.faults.take, 0

        def counted(*arguments: Any) -> Any:
            nonlocal count
            count += 1
            return take(*arguments)

        server.engine.faults = counted
        pipe.send((server.port, server.password))
        for changed in requests(pipe):
            before, count = count, 0
            with server.connect(DATABASE) as connection:
                for name in map(name_of, changed):
                    connection.execute(_CHANGE.format(name))
            server.agent.drain()
            count = 0
            pipe.send(before)


def create(server: StandIn, names: Sequence[str], rows: int) -> None:
    """Captured tables with rows: all in two transactions and without the Agent, because each commit of a definition
    makes every other connection to the stand-in's file parse the definitions of all tables again."""
    values = ", ".join(_ROW.format(number) for number in range(1, rows + 1))
    server.agent.stop()
    with server.connect(DATABASE) as connection:
        for statements in ([_CREATE.format(name, values) for name in names], [_ENABLE.format(name) for name in names]):
            connection.execute("BEGIN TRANSACTION")
            for statement in statements:
                connection.execute(statement)
            connection.execute("COMMIT")
    server.agent.start()
    server.agent.drain()


@dataclass
class Many:
    """The server's process as the benchmark sees it, and the capture of it; `dagster_dev` takes it for a shop."""

    folder: Path
    pipe: Connection
    port: int
    password: str

    @property
    def file(self) -> Path:
        """The capture's configuration."""
        return self.folder / f"{CAPTURE}.json"

    @property
    def environment(self) -> dict[str, str]:
        """What its processes need."""
        return {"CDC_CONFIG": str(self.file), "CDC_MANY": self.password, "CDC_STATE_DIR": str(self.folder / "state")}

    def write(self, **properties: str) -> None:
        """The configuration file."""
        given = {
            "topic.prefix": CAPTURE,
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": "sa",
            "database.password": "${env:CDC_MANY}",
            "database.names": DATABASE,
            "driver.encrypt": "no",
            "lake.path": str(self.folder / "lake"),
            "poll.interval.ms": "100",
            "stream.idle.timeout.ms": "300",
        }
        self.file.write_text(json.dumps(given | properties))

    def change(self, tables: Sequence[int] = ()) -> int:
        """Change a row of each of some tables; returns the number of statements that others asked since the last call."""
        self.pipe.send(list(tables))
        return int(self.pipe.recv())

    def view(self) -> CaptureOverview:
        """The lake."""
        return CaptureOverview(load_config(self.file, os.environ | self.environment))


@contextmanager
def many_tables(tables: int, rows: int, directory: Path | None) -> Iterator[Many]:
    """A server with so many tables, and a folder for all else."""
    ours, theirs = mp.Pipe()
    process = mp.get_context("spawn").Process(target=serve, args=(theirs, tables, rows, directory))
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder, served(ours, process):
        many = Many(Path(folder), ours, *ours.recv())
        many.write()
        yield many


# ---- in this process -------------------------------------------------------------------------------------------------


def types_of(entries: Sequence[dg.EventLogEntry]) -> Counter[str]:
    """Records of a run by type."""
    return Counter(entry.dagster_event.event_type_value if entry.dagster_event else "LOG" for entry in entries)


def told(records: Counter[str]) -> str:
    """The most frequent types, for people."""
    return ", ".join(f"{name} {count}" for name, count in records.most_common(9))


@dataclass
class Phase:
    """One measured phase."""

    name: str
    seconds: float = 0.0
    processor: float = 0.0
    log_seconds: float = 0.0
    statements: int = 0
    records: Counter[str] = field(default_factory=Counter)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield (
            f"{self.name:<34}{self.seconds:>9.2f}{self.processor:>11.2f}{self.log_seconds:>11.2f}{self.statements:>12,}"
            f"{sum(self.records.values()) or '':>10}"
        )
        if self.records:
            yield "    " + told(self.records)


@contextmanager
def measured(name: str, many: Many) -> Iterator[Phase]:
    """Times of a block; printed at its end."""
    phase, inside = Phase(name), SqliteEventLogStorage.store_event

    def store(self: SqliteEventLogStorage, event: Any) -> None:
        began = time.perf_counter()
        inside(self, event)
        phase.log_seconds += time.perf_counter() - began

    many.change()
    started, used = time.perf_counter(), time.process_time()
    with patch.object(SqliteEventLogStorage, "store_event", store):
        yield phase
    phase.seconds, phase.processor = time.perf_counter() - started, time.process_time() - used
    phase.statements = many.change()
    print(*phase.lines(), sep="\n", flush=True)


def run(many: Many, instance: dg.DagsterInstance, defs: dg.Definitions, request: dg.RunRequest, phase: Phase) -> None:
    """Carry out what the sensor asks for."""
    assert request.job_name, request
    job = defs.resolve_job_def(request.job_name)
    if request.asset_selection:
        checks = None if request.asset_check_keys is None else set(request.asset_check_keys)
        job = job.get_subset(asset_selection=set(request.asset_selection), asset_check_selection=checks)
    result = job.execute_in_process(
        instance=instance, run_config=request.run_config, tags=request.tags, raise_on_error=False
    )
    entries = instance.all_logs(result.run_id)
    phase.records.update(types_of(entries))
    assert result.success, [entry.user_message for entry in entries if entry.level in (40, "ERROR")]


def tick(many: Many, instance: dg.DagsterInstance, defs: dg.Definitions) -> Any:
    """Evaluate the sensor once: its request, or what it says instead."""
    repository = defs.get_repository_def()
    (sensor,) = repository.sensor_defs
    server = SqlServerCdcResource(config_file=str(many.file))
    resources = {f"cdc_{CAPTURE}": CaptureResource(server=server, spark=SparkResource())}
    with dg.build_sensor_context(instance=instance, resources=resources, repository_def=repository) as context:
        data = sensor.evaluate_tick(context)
    return data.run_requests[0] if data.run_requests else data


def in_process(many: Many, changed: int) -> None:
    """All phases in this process."""
    print(f"{'phase':<34}{'seconds':>9}{'processor':>11}{'event log':>11}{'statements':>12}{'records':>10}")
    (many.folder / "instance").mkdir()
    with (
        dg.DagsterInstance.local_temp(str(many.folder / "instance")) as instance,
        patch.dict(os.environ, many.environment),
    ):
        with measured("load the code location", many):
            defs = build_definitions(many.file, spark=SparkResource(master="local[2]"))
            defs.get_repository_def()
        with measured("first tick", many):
            request = tick(many, instance, defs)
        with measured(SNAPSHOT, many) as phase:
            run(many, instance, defs, request, phase)
        many.change([0])
        with measured("tick, one table changed", many):
            request = tick(many, instance, defs)
        with measured("changes of one table", many) as phase:
            run(many, instance, defs, request, phase)
        many.change(range(changed))
        with measured(f"tick, {changed} tables changed", many):
            request = tick(many, instance, defs)
        with measured(f"changes of {changed} tables", many) as phase:
            run(many, instance, defs, request, phase)
        gc.collect()
        gc.freeze()  # a code server holds no run and its 10,000 events, which a full collection visits for 0.3 to 0.5 s
        for _ in range(6):
            with measured("tick, nothing new", many):
                tick(many, instance, defs)
            time.sleep(_TICK_S)
    stop_spark()


# ---- through `dagster dev` -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """How a run that the sensor asked for began, in seconds after its tick, or after the change that the tick waited for."""

    created: float
    launched: float
    code: float
    ended: float


def start_of(daemon: Daemon, run_id: str, changed: float) -> Start:
    """When what happened.

    Args:
        changed: time of the change that the run reads.
    """
    (record,) = daemon.instance.get_run_records(dg.RunsFilter(run_ids=[run_id]))
    states = daemon.instance.all_instigator_state()
    selector = next(state for state in states if state.instigator_name == f"{CAPTURE}_lsn")
    ticks = daemon.instance.get_ticks(selector.instigator_origin_id, selector.selector_id)
    ticked = max(changed, next(tick.timestamp for tick in ticks if run_id in tick.run_ids))
    moments = {
        entry.dagster_event.event_type_value: entry.timestamp
        for entry in reversed(daemon.instance.all_logs(run_id))
        if entry.dagster_event
    }
    ended = record.end_time or 0.0
    return Start(
        record.create_timestamp.timestamp() - ticked,
        moments["PIPELINE_STARTING"] - ticked,
        moments["STEP_START"] - ticked,
        ended - ticked,
    )


def through_daemon(many: Many, tables: int, changed: int, starts: int) -> None:
    """Snapshot, then changes; each begins with a tick."""
    with dagster_dev(many) as daemon:  # type: ignore[arg-type] # has what it needs of a shop

        def finished() -> Sequence[str]:
            return [run.run_id for run in daemon.instance.get_runs() if run.is_finished]

        def measure(name: str, done: Callable[[], bool], change: Callable[[], object] = lambda: None) -> Start:
            before, used = set(finished()), processor_seconds(daemon.process.pid)
            change()
            changed = time.time()
            daemon.wait_until(lambda: done() and daemon.idle(), name, 1800)
            (own, *_) = [run for run in finished() if run not in before]
            start = start_of(daemon, own, changed if name != SNAPSHOT else 0.0)
            entries = daemon.instance.all_logs(own)
            print(
                f"{name:<34}{start.created:>9.2f}{start.launched:>10.2f}{start.code:>12.2f}{start.ended:>9.2f}"
                f"{processor_seconds(daemon.process.pid) - used:>11.2f}{len(entries):>10}",
                f"    {told(types_of(entries))}",
                sep="\n",
                flush=True,
            )
            return start

        print(f"{'run, seconds after tick or change':<34}{'created':>9}{'launched':>10}{'asset code':>12}{'ended':>9}"
              f"{'processor':>11}{'records':>10}")  # fmt: skip
        measure(SNAPSHOT, lambda: bool(finished()) and len(many.view().state.tables) >= tables)
        codes = []
        for _ in range(starts):
            time.sleep(6)
            count = len(finished())
            name = f"changes of {changed} tables"
            codes.append(measure(name, lambda: len(finished()) > count, lambda: many.change(range(changed))).code)  # noqa: B023 - called before the next round
        print(f"asset code begins, median: {median(codes):.2f} s after the tick or the change")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000, help="captured tables")
    parser.add_argument("--rows", type=int, default=10, help="rows of each")
    parser.add_argument("--changed", type=int, default=30, help="tables with a change")
    parser.add_argument("--partitions", type=int, default=8, help="`snapshot.partitions`")
    parser.add_argument("--starts", type=int, default=3, help="runs for changes, with --daemon")
    parser.add_argument("--daemon", action="store_true", help="through `dagster dev`")
    parser.add_argument("--server", type=Path, help="folder that keeps the server's tables for another time")
    given = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {given.tables} tables")
    with many_tables(given.tables, given.rows, given.server) as many:
        many.write(**{"snapshot.partitions": str(given.partitions)})
        if given.daemon:
            through_daemon(many, given.tables, given.changed, given.starts)
        else:
            in_process(many, given.changed)
