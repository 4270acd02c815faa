"""How fast change rows become events, and events JSON text: `python -m benchmarks envelopes [rows] [batch rows]`.

Eight columns as in the measurements of the real Debezium (int, varchar, datetime2(7), decimal, int, nvarchar, bit,
bigint), an update pair for every second event, rows prebuilt in memory. One process shows one core; the last line
runs the JSON on two processes at once.
"""

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from decimal import Decimal
from statistics import median

import numpy as np
import pyarrow as pa

from cdc_assets.config.settings import EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.envelope.changes import ChangeContext, build_changes
from cdc_assets.envelope.json import to_json
from cdc_assets.envelope.plan import ConnectorIdentity, EventPlan, plan_events

REPEATS = 5

COLUMNS = (
    Column("id", "int", 1, nullable=False),
    Column("name", "varchar", 2, length=40),
    Column("created", "datetime2", 3, scale=7),
    Column("amount", "decimal", 4, precision=18, scale=4),
    Column("qty", "int", 5),
    Column("note", "nvarchar", 6, length=80),
    Column("done", "bit", 7),
    Column("total", "bigint", 8),
)


def plan() -> EventPlan:
    """A plan for the benchmark's table."""
    schema = TableSchema(TableId("BenchDb", "dbo", "orders"), 1, COLUMNS, ("id",))
    return plan_events(schema, None, EventSettings("bench"), connector=ConnectorIdentity(run_id="benchmark"))


def change_rows(count: int) -> pa.RecordBatch:
    """Inserts and updates in turn: operations 2, 3, 4, 2, 3, 4 …"""
    rows = np.arange(count - count % 3)
    operations = np.tile(np.array([2, 3, 4], dtype=np.int32), len(rows) // 3)
    change = rows - (operations == 4)
    lsns = np.zeros((len(rows), 10), dtype=np.uint8)
    lsns[:, 6:10] = change.astype(">u4").view(np.uint8).reshape(-1, 4)
    moment = b"\x07" + (123_456_789_012).to_bytes(5, "little") + (739_000).to_bytes(3, "little")
    leading = [
        pa.array([row.tobytes() for row in lsns], pa.large_binary()),
        pa.array(np.ones(len(rows), dtype=np.int32)),
        pa.array([row.tobytes() for row in lsns], pa.large_binary()),
        pa.array(operations),
        pa.array([b"\xff"] * len(rows), pa.large_binary()),
        pa.array([datetime(2026, 11, 21, 9)] * len(rows), pa.timestamp("us")),  # noqa: DTZ001 - server wall clock
    ]
    data = [
        pa.array(change.astype(np.int32)),
        pa.array([f"customer {number % 1000}" for number in rows], pa.large_string()),
        pa.array([moment] * len(rows), pa.large_binary()),
        pa.array([Decimal(int(number) % 100_000).scaleb(-2) for number in rows], pa.decimal128(18, 4)),
        pa.array((rows % 17).astype(np.int32), mask=rows % 10 == 0),
        pa.array([f'żółta "kartka" {number % 100}' for number in rows], pa.large_string()),
        pa.array(rows % 2 == 0),
        pa.array(rows * 1_000_003),
    ]
    return pa.RecordBatch.from_arrays([*leading, *data], names=[str(place) for place in range(14)])


def timed(work: Callable[[], int]) -> float:
    """Median rate of some repeats, per second, after one to warm up."""
    work()
    rates = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        done = work()
        rates.append(done / (time.perf_counter() - start))
    return median(rates)


def json_rate(count: int) -> float:
    """Events per second of JSON text without schemas."""
    made = events(count)
    return timed(lambda: len(to_json(made.schema, made, schemas=False)[1]))


def events(count: int) -> pa.RecordBatch:
    """Events of one batch of change rows."""
    (made,) = build_changes(plan(), iter([change_rows(count)]), ChangeContext(1))
    return made


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", default=200_000, help="change rows")
    parser.add_argument("batch_rows", type=int, nargs="?", default=32_768, help="change rows of a batch")
    given = parser.parse_args()
    rows, batch_rows = given.rows, given.batch_rows
    pa.set_cpu_count(1)
    made_plan, source = plan(), change_rows(rows)
    batches = [source.slice(start, batch_rows) for start in range(0, rows, batch_rows)]

    def build() -> int:
        for _ in build_changes(made_plan, iter(batches), ChangeContext(1)):
            pass
        return int(source.num_rows)

    print(f"{rows} change rows in batches of {batch_rows}")
    print(f"change rows to events      {timed(build):>12,.0f} rows/s on one core")
    made = events(batch_rows)
    small = made.slice(0, 4096)
    print(f"events to JSON             {json_rate(batch_rows):>12,.0f} events/s on one core")
    schemas = timed(lambda: len(to_json(small.schema, small, schemas=True)[1]))
    print(f"events to JSON with schema {schemas:>12,.0f} events/s on one core")
    with ProcessPoolExecutor(2) as pool:
        both = sum(pool.map(json_rate, [batch_rows, batch_rows]))
    print(f"events to JSON             {both:>12,.0f} events/s on two cores")
