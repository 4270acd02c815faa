"""How long a committed row needs into the lake, through `dagster dev`: `python -m benchmarks.latency [--rows N]`.

One row at a time is inserted by another session; the time ends when the topic's Delta table has it. First while a run
follows the log, then with no run at work, so that the sensor has to start one. The stand-in captures with the commit:
what SQL Server's capture job takes (up to five seconds by default) comes on top.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pyodbc

from cdc_assets.lake.topics import TopicTables
from cdc_assets.standin import sample
from cdc_assets_tests.e2e.conftest import Daemon, dagster_dev
from cdc_assets_tests.shop import TABLES, Shop, open_shop

TOPIC = f"shop.{sample.DATABASE}.dbo.customers"
_LOOK_S = 0.02


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
                time.sleep(_LOOK_S)
            yield time.perf_counter() - started


def line(name: str, seconds: list[float]) -> str:
    """For people."""
    ordered = sorted(seconds)
    return f"{name:<28}{median(ordered):>8.2f} s median{ordered[0]:>8.2f} s least{ordered[-1]:>8.2f} s most"


def at_rest(daemon: Daemon) -> None:
    """Until no run has worked for a while."""
    daemon.await_rest()
    time.sleep(3)


def main() -> None:
    """Run both and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20, help="rows while a run follows the log")
    parser.add_argument("--starts", type=int, default=5, help="rows that a run is started for")
    given = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, open_shop(Path(folder)) as shop:
        shop.write({"poll.interval.ms": "500", "stream.idle.timeout.ms": "20000"})
        with dagster_dev(shop) as daemon:
            daemon.wait_until(lambda: len(shop.view().state.tables) == len(TABLES), "a snapshot")
            following = list(seconds_of_rows(shop, given.rows + 1, lambda: time.sleep(1.3)))
            print(line("a run follows the log", following[1:]), flush=True)
            shop.write({"poll.interval.ms": "500", "stream.idle.timeout.ms": "1000"})
            print(line("the sensor starts a run", list(seconds_of_rows(shop, given.starts, lambda: at_rest(daemon)))))


if __name__ == "__main__":
    main()
