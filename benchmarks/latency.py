"""How long a committed row needs into the lake, through `dagster dev`: `python -m benchmarks latency [--rows N]`.

`spark.cdc.threads` is false. One row at a time is inserted by another session; the time ends when the topic's Delta table has it. First while a run
follows the log, then with no run at work, so that the sensor has to start one. With 100 and 5 rows it takes three minutes. The
stand-in captures with the commit: what SQL Server's capture job takes (up to five seconds by default) comes on top.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from math import ceil
from pathlib import Path
from statistics import median

import pyodbc

from benchmarks.document import FIGURES, write_table
from benchmarks.passes import load_average
from benchmarks.witness import SPARK
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.e2e.conftest import Daemon, dagster_dev
from cdc_assets_tests.shop import TABLES, Shop, open_shop
from mssql_standin import sample

TOPIC = f"shop.{sample.DATABASE}.dbo.customers"
LOOK_S = 0.02


PAUSE_S = 0.6
"""Least seconds between two rows while a run follows the log; each waits another part of a poll longer."""


def seconds_of_rows(shop: Shop, rows: int, before: Callable[[], None]) -> Iterator[float]:
    """Seconds from commit to lake of some rows, one after the other.

    Args:
        shop: whose customers.
        rows: how many.
        before: called before each, to come to the state that is measured.
    """
    tables = TopicTables.of(shop.config())
    with pyodbc.connect(shop.server.connection_string(sample.DATABASE), autocommit=True) as connection:
        for number in range(rows):
            before()
            known = tables.row_count(TOPIC)
            connection.execute("INSERT INTO dbo.customers (name) VALUES (?)", f"latency {number}")
            started = time.perf_counter()
            while tables.row_count(TOPIC) == known:
                time.sleep(LOOK_S)
            yield time.perf_counter() - started


HEAD = ("| | Rows | Median | 99 of 100 | Least | Most |", "|---|---|---|---|---|---|")


def line(name: str, seconds: list[float]) -> str:
    """A row of a Markdown table."""
    ordered = sorted(seconds)
    late = ordered[max(0, ceil(0.99 * len(ordered)) - 1)]
    return f"| {name} | {len(ordered)} | {median(ordered):.2f} s | {late:.2f} s | {ordered[0]:.2f} s | {ordered[-1]:.2f} s |"


def follow(shop: Shop, rows: int) -> Iterator[float]:
    """Seconds of rows while a run follows the log; the first, which starts it, is left out."""
    pauses = (PAUSE_S + number * 0.13 % 0.5 for number in count())
    following = seconds_of_rows(shop, rows + 1, lambda: time.sleep(next(pauses)))
    next(following)
    return following


def start(daemon: Daemon, rows: int) -> Iterator[float]:
    """Seconds of rows that a run is started for each."""
    known = 0

    def rest() -> None:
        nonlocal known
        at_rest(daemon)
        known = daemon.instance.get_runs_count()

    for seconds in seconds_of_rows(daemon.shop, rows, rest):
        assert daemon.instance.get_runs_count() > known, "a run was at work already"
        print(f"started a run: {seconds:.2f} s", file=sys.stderr, flush=True)
        yield seconds


def at_rest(daemon: Daemon) -> None:
    """Until no run has worked for a while."""
    daemon.await_rest()
    time.sleep(3)


def main() -> None:
    """Run both and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100, help="rows while a run follows the log")
    parser.add_argument("--starts", type=int, default=5, help="rows that a run is started for")
    parser.add_argument("--write", nargs="?", type=Path, const=FIGURES, help="put the table into benchmarks/README.md")
    given = parser.parse_args()
    lines = [f"Load average at the start {load_average()}.", "", *HEAD]
    print(*lines, sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, open_shop(Path(folder)) as shop:
        shop.write({"poll.interval.ms": "500", "stream.idle.timeout.ms": "6000"})
        with dagster_dev(shop, SPARK.spark) as daemon:
            daemon.wait_until(lambda: len(shop.view().state.tables) == len(TABLES), "a snapshot")
            lines.append(line("a run follows the log", list(follow(shop, given.rows))))
            print(lines[-1], flush=True)
            shop.write({"poll.interval.ms": "500", "stream.idle.timeout.ms": "1000"})  # for runs that begin from now on
            lines.append(line("no run is at work: the sensor starts one", list(start(daemon, given.starts))))
            print(lines[-1], flush=True)
    if given.write:
        write_table(given.write, "latency", lines)
