"""How fast the stand-in answers: `python -m benchmarks standin [--rows N] [--seconds S] [--repeats N]`.

The server is in a process of its own; the client is one connection of this process. Rows are the eight columns of
`benchmarks.main_job`, read as Arrow through mssql-python: the whole table, a range of its key, its change table in the
order that a capture reads it. The first read of each encodes the rows and is told apart; every later one is served from
blocks. Single rows go through pyodbc in autocommit mode, one parameterised statement each, on a captured table and on one
that is not: insert, select, update and delete by key, with another value each time; every result is looked at.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from statistics import median

from pyodbc import Cursor

from benchmarks.main_job import DATABASE, TABLE, server_process, settings
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.session import connect
from cdc_assets.config.settings import CaptureConfig

_CHANGES = f"""
SELECT ct.*, ltm.tran_end_time FROM {DATABASE}.cdc.dbo_{TABLE}_CT AS ct
LEFT JOIN {DATABASE}.cdc.lsn_time_mapping AS ltm ON ltm.start_lsn = ct.[__$start_lsn]
ORDER BY ct.[__$start_lsn], ct.[__$command_id], ct.[__$seqval], ct.[__$operation]
"""
_PLAIN = "plain"
"""A table with the same columns that is not captured."""
_MOMENT, _AMOUNT = datetime.fromisoformat("2024-02-29 12:34:56.789012"), Decimal("123456.7891")


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


@dataclass(frozen=True, slots=True)
class Single:
    """A statement about one row; its parameters are made from the number of the row."""

    name: str
    text: str
    parameters: Callable[[int], tuple[object, ...]]


def statements(table: str) -> tuple[Single, ...]:
    """The four of a table, in the order in which they are measured."""
    columns = "id, name, created, amount, qty, note, done, total"
    return (
        Single("insert", f"INSERT INTO {table} ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _row),
        Single("select by key", f"SELECT {columns} FROM {table} WHERE id = ?", lambda n: (n,)),
        Single("update by key", f"UPDATE {table} SET qty = ?, note = ? WHERE id = ?", lambda n: (n + 1, f"new {n}", n)),
        Single("delete by key", f"DELETE FROM {table} WHERE id = ?", lambda n: (n,)),
    )


def _row(number: int) -> tuple[object, ...]:
    return number, f"row {number}", _MOMENT, _AMOUNT, number % 1000, f"note of {number}", True, number * 1000


def make_plain(config: CaptureConfig) -> None:
    """Create the table that is not captured."""
    with closing(connect(config.connection).connection) as connection:
        connection.execute(f"SELECT TOP (0) * INTO {DATABASE}.dbo.{_PLAIN} FROM {DATABASE}.dbo.{TABLE}")
        connection.execute(f"ALTER TABLE {DATABASE}.dbo.{_PLAIN} ADD PRIMARY KEY (id)")


def single_rows(config: CaptureConfig, table: str, first: int, seconds: float, repeats: int) -> Iterator[str]:
    """Statements per second, the median of passes: each of them inserts, reads, changes and deletes the same rows."""
    found: dict[str, list[float]] = {}
    with closing(connect(config.connection).connection) as connection:
        cursor = connection.cursor()
        for _ in range(repeats):
            numbers = range(first, first + 10**9)
            for single in statements(f"{DATABASE}.dbo.{table}"):
                done = _timed(cursor, single, numbers, seconds)
                found.setdefault(single.name, []).append(done.rate)
                numbers = range(first, first + done.count) if single.name == "insert" else numbers
            cursor.execute(f"DELETE FROM {DATABASE}.dbo.{table} WHERE id >= ?", first)
    for name, rates in found.items():
        yield f"{f'{name}, {table}':<28}{min(rates):>16,.0f}{median(rates):>16,.0f} statements/s"


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass did."""

    count: int
    rate: float


def _timed(cursor: Cursor, single: Single, numbers: range, seconds: float) -> Pass:
    """Run a statement about one row after the other until the rows or the time are up."""
    read = single.text.startswith("SELECT")
    started = time.perf_counter()
    count, end = 0, started + seconds
    for number in numbers:
        cursor.execute(single.text, single.parameters(number))
        affected = len(cursor.fetchall()) if read else cursor.rowcount
        if affected != 1:
            raise RuntimeError(f"{single.name} of row {number}: {affected} rows instead of one")
        count += 1
        if time.perf_counter() >= end:
            break
    return Pass(count, count / (time.perf_counter() - started))


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table, and of its change table")
    parser.add_argument("--seconds", type=float, default=1.0, help="of one kind of single-row statement in a pass")
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
        make_plain(config)
        print(f"{'one row':<28}{'slowest pass':>16}{'median':>16}")
        for table in (TABLE, _PLAIN):
            for line in single_rows(config, table, 10 * given.rows, given.seconds, given.repeats):
                print(line, flush=True)
