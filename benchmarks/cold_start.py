"""What a start costs: `python -m benchmarks.cold_start [--rows N] [--passes N] [--starts N] [--without-dagster]`.

*A cold process*: `cdc-assets capture --snapshot-only` of a table of a million rows, from the first byte of Python to the end
of its last process, with Spark as it is configured by default, with `--local`, and with Spark alone (`spark.cdc.threads`
off). The server has encoded its blocks before. Processor seconds are those of the command and of all that it started.

*An idle capture*: one row is inserted while no run is at work, and the time taken until the topic's Delta table has it,
through `dagster dev`. Beside it: from the row to the run that the sensor asks for, from there to the run's process, to the first
line of the assets' code, and to the lake; and the processor seconds of the run's process.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median

import dagster as dg
import psutil
import pyodbc

from benchmarks.document import FIGURES, write_table
from benchmarks.latency import TOPIC, at_rest
from benchmarks.main_job import DATABASE, server_process
from benchmarks.passes import load_average
from cdc_assets.lake.topics import TopicTables
from cdc_assets.standin import sample
from cdc_assets_tests.e2e.conftest import Daemon, dagster_dev
from cdc_assets_tests.shop import TABLES, open_shop

_LOOK_S = 0.02
KINDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "Spark": ((), ""),
    "--local": (("--local",), ""),
    "Spark alone": ((), "spark.cdc.threads false\n"),
}
"""Arguments of the command, and what its Spark file says."""
PARTS = ("sensor", "process", "asset code", "lake")


def cold_process(folder: Path, port: int, password: str, arguments: tuple[str, ...], spark: str) -> tuple[float, float]:
    """Seconds and processor seconds of one snapshot by a process of its own."""
    lake = tempfile.mkdtemp(dir=folder)
    properties = {
        "topic.prefix": "bench",
        "database.hostname": "127.0.0.1",
        "database.port": str(port),
        "database.user": "sa",
        "database.password": password,
        "database.names": DATABASE,
        "driver.encrypt": "no",
        "lake.path": lake,
    }
    file, conf = folder / "bench.json", folder / "spark.conf"
    file.write_text(json.dumps(properties))
    conf.write_text(spark)
    command = [sys.executable, "-m", "cdc_assets.cli.main", "capture", "-c", str(file), "--snapshot-only", *arguments]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"CDC_SPARK_CONF": str(conf)})
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cold_processes(rows: int, passes: int, folder: Path) -> Iterator[str]:
    """One line for each kind; they take turns, after one pass in which the server encodes its blocks."""
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in KINDS}
    with server_process() as (port, password, load):
        load("table", rows)
        cold_process(folder, port, password, ("--local",), "")
        for _ in range(passes):
            for name, kind in KINDS.items():
                measured[name].append(cold_process(folder, port, password, *kind))
    for name, results in measured.items():
        seconds, processor = (median(values) for values in zip(*results, strict=True))
        yield f"| {rows:,} rows, {name} | {seconds:.2f} s | {processor:.2f} s |"


class Processor:
    """Processor seconds of the processes that a daemon starts while a block runs."""

    def __init__(self, daemon: Daemon) -> None:
        self._root, self._stop = psutil.Process(daemon.process.pid), threading.Event()
        self._known = {process.pid for process in self._root.children(recursive=True)}
        self._used: dict[int, float] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """The block."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    @property
    def seconds(self) -> float:
        """Of all of them together."""
        return sum(self._used.values())

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            for process in self._root.children(recursive=True):
                if process.pid not in self._known:
                    with suppress(psutil.Error):
                        times = process.cpu_times()
                        self._used[process.pid] = times.user + times.system


def first_changes(starts: int, folder: Path) -> Iterator[str]:
    """One line for the whole way and for each of its parts."""
    with open_shop(folder) as shop:
        shop.write({"poll.interval.ms": "500", "stream.idle.timeout.ms": "1000"})
        with dagster_dev(shop) as daemon:
            daemon.wait_until(lambda: len(shop.view().state.tables) == len(TABLES), "a snapshot")
            found = [_first_change(daemon, number) for number in range(starts)]
    for name in ("whole", *PARTS):
        ordered = sorted(way[name] for way in found)
        yield f"| first change: {name} | {median(ordered):.2f} s ({ordered[0]:.2f}–{ordered[-1]:.2f}) | – |"
    yield f"| first change: run process | – | {median(way['processor'] for way in found):.2f} s |"


def _first_change(daemon: Daemon, number: int) -> dict[str, float]:
    """Seconds of the parts of the way of one row."""
    at_rest(daemon)
    time.sleep(number * 1.3 % 5)  # somewhere between two looks of the sensor's daemon
    shop, tables, processor = daemon.shop, TopicTables.of(daemon.shop.config()), Processor(daemon)
    with pyodbc.connect(shop.server.connection_string(sample.DATABASE), autocommit=True) as connection:
        known, runs = tables.row_count(TOPIC), daemon.instance.get_runs_count()
        connection.execute("INSERT INTO dbo.customers (name) VALUES (?)", f"first change {number}")
    with processor.counting():
        begun = time.time()
        while tables.row_count(TOPIC) == known:
            time.sleep(_LOOK_S)
        ended = time.time()
    assert daemon.instance.get_runs_count() > runs, "a run was at work already"
    run_id = daemon.instance.get_runs(limit=1)[0].run_id
    at = {entry.dagster_event_type: entry.timestamp for entry in reversed(daemon.instance.all_logs(run_id))}
    kinds = dg.DagsterEventType
    marks = [begun, at[kinds.RUN_ENQUEUED], at[kinds.RUN_START], at[kinds.STEP_START], ended]
    parts = dict(zip(PARTS, (late - early for early, late in pairwise(marks)), strict=True))
    return {"whole": ended - begun, "processor": processor.seconds, **parts}


def main() -> None:
    """Run both and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table that a cold process reads")
    parser.add_argument("--passes", type=int, default=3, help="processes of each kind")
    parser.add_argument("--starts", type=int, default=5, help="rows that a run is started for")
    parser.add_argument("--write", nargs="?", type=Path, const=FIGURES, help="put the table into benchmarks/README.md")
    given = parser.parse_args()
    told = f"Medians of {given.passes} processes and {given.starts} starts (least–most); load average at the start {load_average()}."
    lines = [told, "", "| | Time | Processor time |", "|---|---|---|"]
    print(*lines, sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        measured = cold_processes(given.rows, given.passes, Path(folder)) if given.passes else iter(())
        lines += (found := list(measured))
    print(*found, sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        lines += (found := list(first_changes(given.starts, Path(folder)) if given.starts else ()))
    print(*found, sep="\n", flush=True)
    if given.write:
        write_table(given.write, "cold start", lines)


if __name__ == "__main__":
    main()
