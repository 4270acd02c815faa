"""How fast the stand-in answers: `python -m benchmarks.standin [--rows N] [--seconds S] [--repeats N]`.

The server is in a process of its own; the client is one connection of this process. Rows are the eight columns of
`benchmarks.main_job`, read as Arrow through mssql-python: the whole table, a range of its key, its change table in the
order that a capture reads it. The first read of each encodes the rows and is told apart; every later one is served from
blocks. Single rows go through pyodbc: `SELECT … WHERE id = ?` with another value each time, fetched.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median

from benchmarks.main_job import DATABASE, TABLE, server_process, settings
from cdc_assets.config.settings import CaptureConfig
from resources.bulk import MssqlBulkSource
from resources.sqlserver_session import connect

_CHANGES = f"""
SELECT ct.*, ltm.tran_end_time FROM {DATABASE}.cdc.dbo_{TABLE}_CT AS ct
LEFT JOIN {DATABASE}.cdc.lsn_time_mapping AS ltm ON ltm.start_lsn = ct.[__$start_lsn]
ORDER BY ct.[__$start_lsn], ct.[__$command_id], ct.[__$seqval], ct.[__$operation]
"""
_ONE_ROW = f"SELECT id, name, total FROM {DATABASE}.dbo.{TABLE} WHERE id = ?"


def scans(bulk: MssqlBulkSource, rows: int, repeats: int) -> Iterator[str]:
    """Rates of reads of many rows."""
    table = f"{DATABASE}.dbo.{TABLE}"
    statements: dict[str, tuple[str, tuple[int, ...]]] = {
        "whole table": (f"SELECT * FROM {table}", ()),
        "key range": (f"SELECT * FROM {table} WHERE id >= ? AND id < ?", (rows // 4, rows - rows // 4)),
        "change table, in order": (_CHANGES, ()),
    }
    for name, (text, parameters) in statements.items():

        def read(text: str = text, parameters: tuple[int, ...] = parameters) -> int:
            return sum(batch.num_rows for batch in bulk.read(text, parameters))

        first, *others = [rate(read) for _ in range(repeats + 1)]
        yield f"{name:<28}{first:>16,.0f}{median(others):>16,.0f} rows/s"


def rate(work: Callable[[], int]) -> float:
    """What a piece of work counts, per second."""
    started = time.perf_counter()
    count = work()
    return count / (time.perf_counter() - started)


def single_rows(config: CaptureConfig, rows: int, seconds: float) -> float:
    """Statements per second that read one row each by its key, over a cursor that prepares them once."""
    with closing(connect(config.connection)) as connection:
        cursor = connection.cursor()

        def work() -> int:
            count, end = 0, time.perf_counter() + seconds
            while time.perf_counter() < end:
                found = cursor.execute(_ONE_ROW, count * 7919 % rows + 1).fetchall()
                assert len(found) == 1, found
                count += 1
            return count

        return rate(work)


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table, and of its change table")
    parser.add_argument("--seconds", type=float, default=2.0, help="of single rows")
    parser.add_argument("--repeats", type=int, default=5, help="measured passes")
    given = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'read':<28}{'first':>16}{'later, median':>16}")
    with server_process() as (port, password, load):
        load("table", given.rows)
        load("changes", given.rows // 200, 100)
        config = settings(port, password, Path())
        for line in scans(MssqlBulkSource(config.connection), given.rows, given.repeats):
            print(line, flush=True)
        first, *others = [single_rows(config, given.rows, given.seconds) for _ in range(given.repeats + 1)]
        print(f"{'single rows by key':<28}{first:>16,.0f}{median(others):>16,.0f} statements/s")


if __name__ == "__main__":
    main()
