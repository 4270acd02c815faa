"""What Spark costs where little is to be done: `python -m benchmarks cold_start [--rows N] [--passes N] [--starts N] [--stream-rows N]`.

In all parts captures on Spark (`spark.cdc.threads` false, the default) and in threads (true) take turns, so the differences are those of
passes that stood next to each other.

*A cold process*: `cdc-assets capture --snapshot-only` of a table of a million rows, from its launch to the end of its last process,
also with `--local`. The server has encoded its blocks before. A pass of which tasks ran elsewhere than its row says ends the benchmark.

*A first change*: one row is inserted while no run is at work. By a command: from the launch of `cdc-assets capture` to its end. Through
`dagster dev`: from the insert until the topic's Delta table has it, and of that: to the run that the sensor asks for, to the run's process,
to the first line of the assets' code, and to the lake; and the processor seconds of the run's process. Where the tasks ran is not
asked here: a first change may be done before a session is there.

*A capture that follows the log* (`follow`): idle, its first change, and a stream.

Processor seconds are those of the processes and of all that they started and outlived; memory is the greatest of a tenth of a second: of
Python's processes the proportional set, of Java's the resident one. *A day of one change a minute* is not measured but worked out from these
parts: 86,400 idle seconds and 1,440 changes of a capture that follows, or 1,440 commands.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pyodbc

from benchmarks.cold import Command
from benchmarks.document import FIGURES, write_table
from benchmarks.follow import followed
from benchmarks.latency import LOOK_S, TOPIC, at_rest
from benchmarks.main_job import connection, server_process
from benchmarks.measures import Measures
from benchmarks.passes import load_average
from benchmarks.processes import Processor
from benchmarks.witness import KINDS, LOCAL, SPARK, THREADS
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.e2e.conftest import Daemon, dagster_dev
from cdc_assets_tests.shop import TABLES, Shop, open_shop
from mssql_standin import sample

PARTS = ("sensor", "process", "asset code", "lake")
_TURNS = (SPARK, THREADS)
_ANYWHERE = [replace(kind, on_spark=None) for kind in _TURNS]


def cold_processes(rows: int, passes: int, folder: Path) -> Iterator[str]:
    """Time and processor time; one pass before, in which the server encodes its blocks."""
    found = Measures()
    with server_process() as (port, password, load):
        load("table", rows)
        properties = {"topic.prefix": "bench"} | connection(port, password)
        for number, kind in enumerate([LOCAL, *KINDS * passes]):
            with tempfile.TemporaryDirectory(dir=folder) as work:
                command = Command.of(kind, Path(work), properties | {"lake.path": f"{work}/lake"})
                done = command.run("--snapshot-only")
            if number:
                what = f"{rows:,} rows by a cold process"
                found.add(kind.name, {f"{what}, s": done.seconds, f"{what}, processor s": done.processor})
    yield from (*found.head(), *found.lines())


def first_changes_of_commands(shop: Shop, starts: int) -> Iterator[str]:
    """A command for each change of a shop."""
    found = Measures(tuple(kind.name for kind in _TURNS))
    for _ in range(starts):
        for kind in _ANYWHERE:
            shop.add_customers(1)
            done = Command.of(kind, shop.folder, shop.properties).run()
            found.add(kind.name, {"first change by a command, s": done.seconds, "processor s": done.processor})
    day = {kind: [1440 * value for value in values] for kind, values in found.found["processor s"].items()}
    found.found["a day of 1,440 such commands, processor s"] = day
    yield from found.lines()


def first_changes_of_runs(shop: Shop, starts: int) -> Iterator[str]:
    """A run for each change, through `dagster dev`: the whole way and its parts."""
    found = Measures(tuple(kind.name for kind in _TURNS))
    shop.write({"poll.interval.ms": "500", "stream.idle.timeout.ms": "1000"})
    with dagster_dev(shop) as daemon:
        daemon.wait_until(lambda: len(shop.view().state.tables) == len(TABLES), "a snapshot")
        for number in range(starts):
            for kind in _TURNS:
                (shop.folder / "spark.conf").write_text(kind.spark)
                found.add(kind.name, _first_change(daemon, number))
    yield from found.lines()


def _first_change(daemon: Daemon, number: int) -> dict[str, float]:
    """Seconds of the parts of the way of one row."""
    at_rest(daemon)
    time.sleep(number * 1.3 % 5)  # somewhere between two looks of the sensor's daemon
    shop, tables, processor = daemon.shop, TopicTables.of(daemon.shop.config()), Processor(daemon.process.pid)
    with pyodbc.connect(shop.server.connection_string(sample.DATABASE), autocommit=True) as connection:
        known, runs = tables.row_count(TOPIC), daemon.instance.get_runs_count()
        connection.execute("INSERT INTO dbo.customers (name) VALUES (?)", f"first change {number}")
    with processor.counting():
        begun = time.time()
        while tables.row_count(TOPIC) == known:
            time.sleep(LOOK_S)
        ended = time.time()
    assert daemon.instance.get_runs_count() > runs, "a run was at work already"
    run_id = daemon.instance.get_runs(limit=1)[0].run_id
    at = {entry.dagster_event_type: entry.timestamp for entry in reversed(daemon.instance.all_logs(run_id))}
    kinds = dg.DagsterEventType
    marks = [begun, at[kinds.RUN_ENQUEUED], at[kinds.RUN_START], at[kinds.STEP_START], ended]
    parts = dict(zip(PARTS, (late - early for early, late in pairwise(marks)), strict=True))
    told = {f"first change through the sensor: {name}, s": seconds for name, seconds in parts.items()}
    return {
        "first change through the sensor, s": ended - begun,
        **told,
        "its run's process, processor s": processor.seconds,
    }


def main() -> None:
    """Run all parts and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table that a cold process reads")
    parser.add_argument("--passes", type=int, default=5, help="cold processes of each kind; 0 leaves them out")
    parser.add_argument("--starts", type=int, default=5, help="first changes of each kind and way; 0 leaves them out")
    parser.add_argument("--no-dagster", action="store_true", help="leave first changes through `dagster dev` out")
    parser.add_argument("--streams", type=int, default=3, help="captures of each kind that follow; 0 leaves them out")
    parser.add_argument("--stream-rows", type=int, default=50, help="rows of a stream")
    parser.add_argument(
        "--idle", type=float, default=30, help="seconds in which a capture that follows has nothing to do"
    )
    parser.add_argument("--write", nargs="?", type=Path, const=FIGURES, help="put the tables into benchmarks/README.md")
    given = parser.parse_args()
    lines: list[str] = []

    def tell(part: Iterator[str]) -> None:
        for line in part:
            print(line, flush=True)
            lines.append(line)

    passes = f"{given.passes} processes, {given.starts} first changes and {given.streams} streams"
    tell(iter([f"Medians of {passes} of each kind (least to most); load average at the start {load_average()}.", ""]))
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        if given.passes:
            tell(cold_processes(given.rows, given.passes, folder))
        with open_shop(folder) as shop, shop.in_environment():
            Command.of(LOCAL, folder, shop.properties).run()
            parts = Measures(tuple(kind.name for kind in _TURNS))
            tell(iter(["", *parts.head()]))
            if given.starts:
                tell(first_changes_of_commands(shop, given.starts))
            if given.streams:
                tell(followed(shop, _TURNS, given.streams, given.stream_rows, given.idle))
            if given.starts and not given.no_dagster:
                tell(first_changes_of_runs(shop, given.starts))
    if given.write:
        write_table(given.write, "cold start", lines)
