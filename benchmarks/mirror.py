"""Applying updates to a mirror beside delta-rs's `merge`: `python -m benchmarks mirror [--rows N] [--updates N,N]`.

A table of eight columns is built from READ events; then updates arrive, at random keys or at neighbouring ones, each way
in a process of its own with a copy of the same files. Measured are seconds, those of the
processor (with the start of the process), the greatest resident memory, and files written. `merge` gets the updates as the rows that they lead to, in natural types, and makes current rows alone; a mirror
reads the topic's events and also writes the versions that ended. Both use all cores of one process.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.build import build_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.envelope.plan import ConnectorIdentity, plan_events
from cdc_assets.envelope.reads import ReadContext, build_reads
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.files import TopicWriter
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import TableState
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.delta import current_directory

TABLE = TableId("Bench", "dbo", "lines")
SCHEMA = TableSchema(
    TABLE,
    1,
    (
        Column("id", "bigint", 1, False),
        Column("customer", "int", 2),
        Column("sku", "nvarchar", 3, length=20),
        Column("quantity", "int", 4),
        Column("price", "decimal", 5, precision=10, scale=2),
        Column("state", "nvarchar", 6, length=10),
        Column("note", "nvarchar", 7, length=40),
        Column("changed", "datetime2", 8, scale=3),
    ),
    ("id",),
)
_STEP = 500_000


def settings(lake: Path) -> CaptureConfig:
    """A capture whose lake lies there."""
    return build_config(
        {
            "topic.prefix": "bench",
            "database.hostname": "none",
            "database.user": "none",
            "database.password": "none",
            "database.names": "Bench",
            "lake.path": str(lake),
        }
    )


def rows_of(keys: np.ndarray, seed: int) -> pa.RecordBatch:  # type: ignore[type-arg]
    """Rows with these keys, in the forms in which the server's are read."""
    random, count = np.random.default_rng(seed), len(keys)
    numbers = random.integers(0, 10**6, count)
    texts = pa.array([f"text number {number:06d}" for number in range(1000)])
    columns = [
        pa.array(keys),
        pa.array(numbers.astype(np.int32)),
        texts.take(pa.array(numbers % 997)),
        pa.array((numbers % 9).astype(np.int32)),
        pa.array(numbers).cast(pa.decimal128(19, 0)).cast(pa.decimal128(10, 2)),
        pa.array(["new", "paid", "sent"]).take(pa.array(numbers % 3)),
        texts.take(pa.array(numbers % 1000)),
        pa.array(numbers * 10**7 + 1_700_000_000 * 10**7),
    ]
    return pa.RecordBatch.from_arrays(columns, names=[column.name for column in SCHEMA.columns])


class Lake:
    """A lake with one topic, without a server.

    Args:
        folder: of the lake.
    """

    def __init__(self, folder: Path) -> None:
        self.config = settings(folder)
        self.tables = TopicTables.of(self.config)
        self.plan = plan_events(SCHEMA, None, self.config.events, connector=ConnectorIdentity())
        self._manifest = Manifest(self.tables, "bench")

    def begin(self) -> None:
        """Record the table's structure."""
        history = SchemaHistory(self.tables, self.config.events, self.config.history, ConnectorIdentity())
        entry = HistoryEntry(
            "CREATE", SCHEMA, tuple(c.name for c in SCHEMA.columns), "lines", ZERO_LSN, datetime.now(UTC)
        )
        history.commit(1, [entry])

    def write(self, window: int, keys: np.ndarray, seed: int) -> None:  # type: ignore[type-arg]
        """Commit a window with one event for each key; later windows are later."""
        lsn, moment = Lsn.from_int(window), datetime.now(UTC)

        def events() -> Iterator[pa.RecordBatch]:
            for part, start in enumerate(range(0, len(keys), _STEP)):
                context = ReadContext(window, lsn, moment, part)
                yield from build_reads(self.plan, iter([rows_of(keys[start : start + _STEP], seed + part)]), context)

        with TopicWriter(self.tables.location, self.plan.topic, self.plan.topic_schema, window) as writer:
            writer.write(events())
        self.tables.commit(self.plan.topic, self.plan.topic_schema, writer.files, window, {})
        now = datetime.now(UTC)
        state = self._manifest.claim(now).tables.get(TABLE)
        read = state.snapshot_lsn if state else lsn
        self._manifest.record_audit(now, [TableState(TABLE, 1, lsn, snapshot_lsn=read)], {}, window + 1)


def measured(folder: Path, way: str) -> None:
    """Apply what waits, in this process; prints seconds, memory and files as JSON."""
    begun = time.perf_counter()
    if way == "mirror":
        reports = []
        lake = Lake(folder)
        begun = time.perf_counter()
        mirrors = CaptureMirrors(lake.config, LocalRunner(), SystemClock(), on_step=reports.append)
        troubles = mirrors.catch_up()
        assert not troubles, troubles
        files = sum(report.rewritten for report in reports)
    else:
        source = pa.ipc.open_file(str(folder / "source.arrow")).read_all()
        table = DeltaTable(str(folder / "merged"))
        begun = time.perf_counter()
        merge = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        files = merge.when_matched_update_all().when_not_matched_insert_all().execute()["num_target_files_added"]
    seconds = time.perf_counter() - begun
    status = Path("/proc/self/status").read_text()
    memory = int(status.split("VmHWM:")[1].split()[0]) // 1024
    found = {
        "seconds": round(seconds, 2),
        "processor": round(time.process_time(), 2),
        "megabytes": memory,
        "files": files,
    }
    print(json.dumps(found))


def in_process(folder: Path, way: str) -> dict[str, float]:
    """What `measured` prints in a process of its own."""
    command = [sys.executable, "-m", "benchmarks", "mirror", "--measure", way, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def chosen(kind: str, rows: int, updates: int) -> np.ndarray:  # type: ignore[type-arg]
    """Keys that are updated."""
    if kind == "clustered":
        return np.arange(rows // 3, rows // 3 + updates)
    return np.sort(np.random.default_rng(7).choice(rows, updates, replace=False))


def main() -> None:
    """Build the table once, then measure each way for each kind of updates."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks mirror", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--updates", default="1000000,10000")
    parser.add_argument("--measure", choices=["mirror", "merge"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measured(options.folder, options.measure)
        return
    with tempfile.TemporaryDirectory(prefix="mirror-bench-") as place:
        base = Path(place) / "base"
        lake = Lake(base)
        lake.begin()
        lake.write(2, np.arange(options.rows), 1)
        built = in_process(base, "mirror")
        print(
            f"{options.rows:,} rows built from READs: {built['seconds']} s, {built['megabytes']:,.0f} MB, {built['files']} files"
        )
        print(f"{'updates':>22} {'way':>8} {'seconds':>8} {'of CPU':>7} {'MB':>7} {'files':>6}")
        for updates in map(int, options.updates.split(",")):
            for kind in ("random", "clustered"):
                _compare(base, Path(place), kind, options.rows, updates)


def _compare(base: Path, place: Path, kind: str, rows: int, updates: int) -> None:
    folder = place / "copy"
    shutil.copytree(base, folder)
    lake = Lake(folder)
    lake.write(3, chosen(kind, rows, updates), 99)
    current = DeltaTable(str(folder / current_directory(lake.plan.topic))).to_pyarrow_dataset()
    write_deltalake(str(folder / "merged"), pa.RecordBatchReader.from_batches(current.schema, current.to_batches()))
    ours = in_process(folder, "mirror")
    topic = DeltaTable(str(folder / current_directory(lake.plan.topic))).to_pyarrow_table()
    source = topic.filter(pa.compute.equal(topic["_lsn"], str(Lsn.from_int(3))))
    with pa.ipc.new_file(str(folder / "source.arrow"), source.schema) as writer:
        writer.write_table(source)
    assert source.num_rows == updates
    del topic, source
    for way, found in (("mirror", ours), ("merge", in_process(folder, "merge"))):
        print(
            f"{updates:>12,} {kind:>9} {way:>8} {found['seconds']:>8} {found['megabytes']:>7,.0f} {found['files']:>6}"
        )
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
