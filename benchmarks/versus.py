"""Everybody on the same rows of the same server, in one run: `python -m benchmarks versus [--rows N] [--updates N] [--write]`.

A snapshot of a table, then a backlog of updates. Contenders: this project through Spark and, cold, with `--local`; the
real Debezium connector with a large queue, whose events are counted and thrown away; PySpark's JDBC reader by hand, which
writes plain rows into Parquet. Beside them the raw rate: the very statements of this project's tasks, read as Arrow and
thrown away.

*Cold* is from the launch of a process: to its end for this project (`cdc-assets capture`), to the last record for the
connector, to the last file for JDBC. *Warm* is a pass in a process that has done the same before. A pass to warm up comes
first, in which the server encodes the rows, which it then keeps. Printed are medians, the least and the most; processor
seconds are those of the contender's processes, without the server's. An update is two change rows and one event; the JDBC
reader's rate is told in events, too, though it pairs nothing.
"""

import argparse
import json
import multiprocessing as mp
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.document import write_table
from benchmarks.main_job import DATABASE, TABLE, Bench, Recorder, raw_read, server_process
from benchmarks.passes import Times, load_average, run_process, spread, timed
from cdc_assets.adapters.spark.session import stop_spark
from cdc_assets.defs.spark import SparkResource
from cdc_assets.run.capture import Capture

OURS, LOCAL, RAW = "cdc-assets, Spark", "cdc-assets `--local`", "raw Arrow read"
CONNECTOR, JDBC = "Debezium connector, null sink", "PySpark JDBC by hand, plain rows"


@dataclass
class Phase:
    """What the contenders do.

    Args:
        name: for people.
        events: that come of it.
        rows: that the server sends.
        start: what the lake holds before, or None.
        work: what a capture does.
        offsets: where the connector begins, or None.
        source: the table or query that JDBC reads.
        times: by contender.
    """

    name: str
    events: int
    rows: int
    start: Path | None
    work: Callable[[Capture], object]
    offsets: Path | None
    source: str
    times: dict[str, Times] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """Rows of a Markdown table."""
        ours = self.times[OURS]
        for name, times in self.times.items():
            yield (
                f"| {self.name} | {name} | {_told(times.cold, self.events, ours.cold)} "
                f"| {_told(times.warm, self.events, ours.warm)} "
                f"| {_processor(times, self.events)} |"
            )


HEAD = (
    "| | | Cold: s | events/s | times ours | Warm: s | events/s | times ours | Processor, µs an event |",
    "|---|---|---|---|---|---|---|---|---|",
)


def _told(seconds: list[float], events: int, ours: list[float]) -> str:
    if not seconds:
        return "– | – | –"
    return f"{spread(seconds)} | {events / median(seconds):,.0f} | {median(seconds) / median(ours):.1f}"


def _processor(times: Times, events: int) -> str:
    return f"{median(times.processor) / events * 1e6:.1f}" if times.processor else "–"


@dataclass(frozen=True)
class Contest:
    """What all contenders share.

    Args:
        bench: the server, lakes, tasks.
        folder: for all else.
        rows: of the table.
        repeats: measured passes of each kind.
        only_ours: leave the others out.
    """

    bench: Bench
    folder: Path
    rows: int
    repeats: int
    only_ours: bool = False

    def properties(self) -> dict[str, str]:
        """Of a capture, and of the connector."""
        return {
            "topic.prefix": "bench",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.bench.port),
            "database.user": "sa",
            "database.password": self.bench.password,
            "database.names": DATABASE,
            "driver.encrypt": "false",
            "table.include.list": f"dbo\\.{TABLE}",
        }

    def prepare(self, offsets: Path) -> None:
        """Offsets behind a snapshot, where the connector is to begin with a backlog."""
        if not self.only_ours:
            offsets.mkdir()
            given = {"properties": self.properties(), "start": str(offsets), "prepare": True}
            run_process("connector_passes", given, self.folder)

    def run(self, phase: Phase) -> Phase:
        """All contenders, one after the other."""
        phase.times[OURS], phase.times[LOCAL], phase.times[RAW] = Times(), Times(), Times()
        self._warm(phase)
        for _ in range(self.repeats):
            phase.times[OURS].cold.append(self._command(phase))
            phase.times[LOCAL].cold.append(self._command(phase, "--local"))
        if not self.only_ours:
            for name, contender in ((CONNECTOR, self._connector), (JDBC, self._jdbc)):
                phase.times[name] = Times()
                for _ in range(self.repeats):
                    phase.times[name].add(contender(phase))
        return phase

    def _warm(self, phase: Phase) -> None:
        """This project's job and the raw read in turn."""
        recorder = Recorder(self.bench.runner)
        self.bench.job(recorder, phase.start, phase.work)
        bulk = self.bench.bulk(self.folder)
        for number in range(self.repeats + 1):
            raw = timed(lambda: raw_read(self.bench.runner, bulk, recorder.jobs), self.bench.server)
            job = self.bench.timed_job(self.bench.runner, phase.start, phase.work)
            if number:
                phase.times[RAW].add_warm(raw)
                phase.times[OURS].add_warm(job)

    def _command(self, phase: Phase, *flags: str) -> float:
        """Seconds of a whole `cdc-assets capture`."""
        work = Path(tempfile.mkdtemp(dir=self.folder))
        if phase.start is not None:
            shutil.copytree(phase.start, work / "lake")
        own = {"lake.path": str(work / "lake"), "stream.idle.timeout.ms": "1", "poll.interval.ms": "10"}
        (work / "bench.json").write_text(json.dumps(self.properties() | own))
        started = time.perf_counter()
        command = [sys.executable, "-m", "cdc_assets.cli.main", "capture", "--config", str(work / "bench.json"), *flags]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert re.search(rf"\b{phase.events}\b", ended.stdout.replace(",", "")), ended.stdout + ended.stderr
        shutil.rmtree(work)
        return seconds

    def _connector(self, phase: Phase) -> Times:
        """A cold and a warm pass of the connector."""
        given = {
            "properties": self.properties(),
            "start": str(phase.offsets or ""),
            "prepare": False,
            "passes": 2,
            "records": phase.events,
        }
        return run_process("connector_passes", given, self.folder)

    def _jdbc(self, phase: Phase) -> Times:
        """A cold and a warm pass of the JDBC reader."""
        given = {
            "url": f"jdbc:sqlserver://127.0.0.1:{self.bench.port};databaseName={DATABASE};encrypt=false",
            "user": "sa",
            "password": self.bench.password,
            "table": phase.source,
            "rows": self.rows,
            "found": phase.rows,
            "partitions": os.cpu_count(),
            "passes": 2,
        }
        return run_process("jdbc", given, self.folder)


def contest(rows: int, updates: int, repeats: int, folder: Path, *, only_ours: bool = False) -> Iterator[Phase]:
    """Snapshot, then backlog, each as soon as it is measured."""
    with server_process() as (port, password, load):
        server = next(child.pid for child in mp.active_children() if child.pid)
        bench = Bench(SparkResource().runner(), folder, port, password, server, repeats)
        own = Contest(bench, folder, rows, repeats, only_ours)
        load("table", rows)
        yield own.run(Phase("snapshot", rows, rows, None, Capture.snapshot, None, f"dbo.{TABLE}"))
        offsets, snapshotted = folder / "offsets", folder / "snapshotted"
        own.prepare(offsets)
        bench.run(bench.runner, snapshotted, Capture.snapshot)
        each = min(100, updates)
        load("changes", updates // each, each)
        events = updates // each * each
        changes = f"cdc.dbo_{TABLE}_CT"
        yield own.run(Phase("backlog", events, 2 * events, snapshotted, Capture.stream, offsets, changes))
        stop_spark()


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--updates", type=int, default=1_000_000, help="updates of the backlog")
    parser.add_argument("--repeats", type=int, default=3, help="measured passes of each kind")
    parser.add_argument("--ours", action="store_true", help="leave the other contenders out")
    parser.add_argument("--write", nargs="?", type=Path, const=Path("README.md"), help="put the table into README.md")
    given = parser.parse_args()
    caption = f"{given.rows:,} rows, {given.updates:,} updates; medians of {given.repeats} (least–most); "
    caption += f"load average at the start {load_average()}."
    lines = [caption, "", *HEAD]
    print(*lines, sep="\n", flush=True)
    ratios: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for phase in contest(given.rows, given.updates, given.repeats, Path(folder), only_ours=given.ours):
            told = list(phase.lines())
            print(*told, sep="\n", flush=True)
            lines += told
            raw, ours = median(phase.times[RAW].warm), median(phase.times[OURS].warm)
            ratios.append(f"{phase.name} {raw / ours:.0%}")
    lines += ["", f"Of the raw read's rate, warm: {', '.join(ratios)}."]
    print(*lines[-2:], sep="\n", flush=True)
    if given.write:
        write_table(given.write, "make bench", lines)


if __name__ == "__main__":
    main()
