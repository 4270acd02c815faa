"""Applying updates to a mirror beside delta-rs's `merge` and Spark's `MERGE`: `python -m benchmarks mirror [--rows N] [--updates N,N]`.

A table of eight columns is built from READ events; then updates arrive, at random keys or at neighbouring ones. Each way is in
a process of its own with a copy of the same files, and they take turns. Measured are seconds and processor seconds from the call
to its end, without the process's start, the greatest resident memory with it, and files written. The others get the updates as
the rows that they lead to, in natural types, and make current rows alone; a mirror reads the topic's events and also writes the
versions that ended. All use all cores.

Spark's `MERGE` runs in an environment that is made for it, with Delta's jars from Maven Central; where that cannot be reached, it
is left out. `--spark-environment` names a folder in which the environment is kept.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from numpy.typing import NDArray

from benchmarks.document import FIGURES, write_table
from benchmarks.passes import load_average
from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.config.build import build_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.envelope.changes import ChangeContext, build_changes
from cdc_assets.envelope.plan import ConnectorIdentity, plan_events
from cdc_assets.envelope.reads import ReadContext, build_reads
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.store import SchemaHistory
from cdc_assets.lake.files import TopicWriter
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.table_state import TableState
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.delta import current_directory
from cdc_assets.mirror.work import StepReport

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
_CHANGES = 100_000
"""Updates of a batch of change rows."""
_OF_TRANSACTION = 1_000
SPARK, DELTA = "4.2.0", "4.4.0"
"""Versions of pyspark and Delta in the environment of `MERGE`."""
_ARTIFACT = f"delta-spark_{SPARK.rpartition('.')[0]}_2.13"
PACKAGES = f"io.delta:{_ARTIFACT}:{DELTA}"
CENTRAL = f"https://repo1.maven.org/maven2/io/delta/{_ARTIFACT}/{DELTA}/{_ARTIFACT}-{DELTA}.pom"
WAYS = {"mirror": "a step of the mirror", "merge": "delta-rs `merge`", "spark": "Spark `MERGE`"}
HEAD = ("updates", "way", "repeats", "seconds", "of CPU", "MB", "JVM MB", "files")


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


def rows_of(keys: NDArray[np.int64], seed: int) -> pa.RecordBatch:
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


def changes_of(keys: NDArray[np.int64], seed: int, first: int) -> pa.RecordBatch:
    """Change rows of updates of these keys: two each, with the row before and after."""
    count = 2 * len(keys)
    order = np.arange(count).reshape(2, -1).T.reshape(-1)
    both = pa.concat_tables([pa.table(rows_of(keys, seed)), pa.table(rows_of(keys, seed + 10**6))]).combine_chunks()
    data = both.take(pa.array(order)).columns
    lsns = pa.array(_lsn_bytes(first + np.arange(count) // (2 * _OF_TRANSACTION)), pa.large_binary())
    leading = [
        lsns,
        pa.array(np.ones(count, dtype=np.int32)),
        pa.array(_lsn_bytes(first * _OF_TRANSACTION + np.arange(count) // 2), pa.large_binary()),
        pa.array(np.tile(np.array([3, 4], dtype=np.int32), len(keys))),
        pa.array([b"\xff"] * count, pa.large_binary()),
        pa.array(np.full(count, 1_700_000_000_000_000)).cast(pa.timestamp("us")),
    ]
    arrays = [*leading, *(column.chunk(0) for column in data)]
    return pa.RecordBatch.from_arrays(arrays, names=[str(place) for place in range(len(arrays))])


def _lsn_bytes(numbers: NDArray[np.int64]) -> list[bytes]:
    return [int(number).to_bytes(10, "big") for number in numbers]


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

    def snapshot(self, keys: NDArray[np.int64]) -> None:
        """Commit a window with a READ for each key."""
        lsn, moment = Lsn.from_int(2), datetime.now(UTC)

        def events() -> Iterator[pa.RecordBatch]:
            for part, start in enumerate(range(0, len(keys), _STEP)):
                context = ReadContext(2, lsn, moment, part)
                yield from build_reads(self.plan, iter([rows_of(keys[start : start + _STEP], 1 + part)]), context)

        self._commit(2, events(), lsn)

    def update(self, keys: NDArray[np.int64]) -> None:
        """Commit a window with an update of each key, a thousand in a transaction."""

        def rows() -> Iterator[pa.RecordBatch]:
            for start in range(0, len(keys), _CHANGES):
                yield changes_of(keys[start : start + _CHANGES], 99 + start, 3 + start // _OF_TRANSACTION)

        self._commit(3, build_changes(self.plan, rows(), ChangeContext(3)), Lsn.from_int(3 + len(keys)))

    def _commit(self, window: int, events: Iterator[pa.RecordBatch], reached: Lsn) -> None:
        with TopicWriter(self.tables.location, self.plan.topic, self.plan.topic_schema, window) as writer:
            writer.write(events)
        self.tables.commit(self.plan.topic, self.plan.topic_schema, writer.files, window, {})
        now = datetime.now(UTC)
        state = self._manifest.claim(now).tables.get(TABLE)
        read = state.snapshot_lsn if state else reached
        self._manifest.record_audit(now, [TableState(TABLE, 1, reached, snapshot_lsn=read)], {}, window + 1)


def measured(folder: Path, way: str) -> None:
    """Apply what waits, in this process; prints seconds, memory and files as JSON."""
    if way == "mirror":
        reports: list[StepReport] = []
        lake = Lake(folder)
        begun, busy = time.perf_counter(), time.process_time()
        mirrors = CaptureMirrors(lake.config, LocalRunner(), SystemClock(), on_step=reports.append)
        troubles = mirrors.catch_up()
        assert not troubles, troubles
        files = sum(report.rewritten for report in reports)
    else:
        source = pq.read_table(folder / "source.parquet")
        table = DeltaTable(str(folder / "merged"))
        begun, busy = time.perf_counter(), time.process_time()
        merge = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        files = merge.when_matched_update_all().when_not_matched_insert_all().execute()["num_target_files_added"]
    seconds, busy = time.perf_counter() - begun, time.process_time() - busy
    status = Path("/proc/self/status").read_text()
    memory = int(status.split("VmHWM:")[1].split()[0]) // 1024
    found = {
        "seconds": round(seconds, 2),
        "processor": round(busy, 2),
        "megabytes": memory,
        "files": files,
    }
    print(json.dumps(found))


def in_process(folder: Path, way: str, environment: Path | None = None) -> dict[str, float]:
    """What `measured`, or Spark's merge, prints in a process of its own."""
    command = [sys.executable, "-m", "benchmarks", "mirror", "--measure", way, "--folder", str(folder)]
    if way == "spark" and environment is not None:
        script = str(Path(__file__).with_name("spark_merge.py"))
        command = [str(environment / "bin" / "python"), script, "--packages", PACKAGES]
        command += ["--jars", str(environment / "jars"), "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def spark_environment(folder: Path) -> Path | None:
    """An environment with Spark and Delta, made unless it is there; None if Maven Central cannot be reached."""
    try:
        urllib.request.urlopen(CENTRAL, timeout=20).close()
    except OSError as error:
        print(f"Spark's MERGE is left out: {CENTRAL} cannot be reached ({error}).")
        return None
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
        wanted = [f"pyspark=={SPARK}", f"delta-spark=={DELTA}"]
        subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *wanted], check=True)
    return folder


def chosen(kind: str, rows: int, updates: int) -> NDArray[np.int64]:
    """Keys that are updated."""
    if kind == "clustered":
        return np.arange(rows // 3, rows // 3 + updates)
    return np.sort(np.random.default_rng(7).choice(rows, updates, replace=False))


def main() -> None:
    """Build the table once, then measure each way for each kind of updates, in turn."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks mirror", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--updates", default="1000000,10000")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", default=",".join(WAYS), help="some of mirror, merge, spark")
    parser.add_argument("--spark-environment", type=Path, help="folder of Spark's environment, kept for the next time")
    parser.add_argument("--write", action="store_true", help=f"put the table into {FIGURES.name}")
    parser.add_argument("--measure", choices=["mirror", "merge"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measured(options.folder, options.measure)
        return
    ways = options.ways.split(",")
    with tempfile.TemporaryDirectory(prefix="mirror-bench-") as place:
        environment = None
        if "spark" in ways:
            environment = spark_environment(options.spark_environment or Path(place) / "spark")
            ways = [way for way in ways if way != "spark" or environment is not None]
        base = Path(place) / "base"
        lake = Lake(base)
        lake.begin()
        lake.snapshot(np.arange(options.rows))
        load = load_average()
        built = in_process(base, "mirror")
        current = DeltaTable(str(base / current_directory(lake.plan.topic))).to_pyarrow_dataset()
        # Spark does not write to a table of delta-rs with NOT NULL: its protocol lacks a feature that such columns need
        schema = pa.schema([field.with_nullable(True).remove_metadata() for field in current.schema])
        batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in current.to_batches())
        rows = pa.RecordBatchReader.from_batches(schema, batches)
        write_deltalake(str(base / "merged"), rows)
        lines = [
            f"{options.rows:,} rows built from READs: {built['seconds']} s, {built['processor']} s of CPU, "
            f"{built['megabytes']:,.0f} MB, {built['files']} files. Load average at the start: {load}.",
            "",
            f"| {' | '.join(HEAD)} |",
            f"|{'---|' * len(HEAD)}",
        ]
        print(*lines, sep="\n", flush=True)
        for updates in map(int, options.updates.split(",")):
            for kind in ("random", "clustered"):
                keys = chosen(kind, options.rows, updates)
                for line in _compared(base, keys, ways, options.repeats, environment):
                    lines.append(f"| {updates:,} {kind} | {line} |")
                    print(lines[-1], flush=True)
    if options.write:
        write_table(FIGURES, "mirror", lines)


def _compared(
    base: Path,
    keys: NDArray[np.int64],
    ways: list[str],
    repeats: int,
    environment: Path | None,
) -> Iterator[str]:
    """A line for each way."""
    updated = base.with_name("updated")
    shutil.copytree(base, updated, copy_function=os.link)
    lake = Lake(updated)
    lake.update(keys)
    _write_source(lake, updated)
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way in ways:
            copy = base.with_name("copy")
            shutil.copytree(updated, copy, copy_function=os.link)
            found[way].append(in_process(copy, way, environment))
            shutil.rmtree(copy)
    shutil.rmtree(updated)
    for way, passes in found.items():
        figures = {name: median(one[name] for one in passes) for name in passes[0]}
        yield " | ".join(
            [
                WAYS[way],
                str(repeats),
                f"{figures['seconds']:.1f}",
                f"{figures['processor']:.1f}",
                f"{figures['megabytes']:,.0f}",
                f"{figures['jvm']:,.0f}" if "jvm" in figures else "",
                f"{figures['files']:.0f}",
            ]
        )


def _write_source(lake: Lake, updated: Path) -> None:
    """The rows to which updates lead, for those that merge rows."""
    copy = updated.with_name("ahead")
    shutil.copytree(updated, copy, copy_function=os.link)
    in_process(copy, "mirror")
    current = DeltaTable(str(copy / current_directory(lake.plan.topic))).to_pyarrow_dataset()
    pq.write_table(current.to_table(filter=pc.field("_lsn") > str(Lsn.from_int(2))), updated / "source.parquet")
    shutil.rmtree(copy)
