"""Everybody on the same rows of the same server, in one run: `python -m benchmarks versus [--rows N] [--updates N] [--write]`.

A snapshot of a table, then a backlog of updates. Contenders: this project on Spark and, cold, with tasks in threads
(`spark.cdc.threads=true`) and with `--local`; the real Debezium connector with a large queue, whose events are counted and thrown away;
PySpark's JDBC reader by hand, which writes plain rows into Parquet. Beside them the raw rate: the very statements of this project's
tasks, read as Arrow and thrown away. A pass in which tasks ran elsewhere than its row says ends the benchmark (`witness`).

*Cold* is from the launch of a process: to its end for this project (`cdc-assets capture`), to the last record for the
connector, to the last file for JDBC. *Warm* is a pass in a process that has done the same before. A pass to warm up comes
first, in which the server encodes the rows, which it then keeps. Printed are medians, the least and the most; processor
seconds are those of the contender's processes, without the server's. An update is two change rows and one event; the JDBC
reader's rate is told in events, too, though it pairs nothing. `--write` puts the three contenders into README.md and everything into
benchmarks/README.md.
"""

import argparse
import multiprocessing as mp
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.cold import Command
from benchmarks.document import FIGURES, write_table
from benchmarks.main_job import DATABASE, TABLE, Bench, Recorder, connection, raw_read, server_process
from benchmarks.passes import ROOT, Times, load_average, run_process, spread, timed
from benchmarks.witness import KINDS, SPARK, Kind
from cdc_assets.adapters.spark.session import stop_spark
from cdc_assets.capture.capture import Capture
from cdc_assets.defs.spark import SparkResource

RAW, CONNECTOR, JDBC = "raw Arrow read", "Debezium connector, null sink", "PySpark JDBC by hand, plain rows"


def ours(kind: Kind) -> str:
    """Name of this project's row, of a kind."""
    return f"cdc-assets, {kind.name}"


OURS = ours(SPARK)
CONTENDERS = {
    OURS: "**cdc-assets**, Spark",
    CONNECTOR: "Debezium connector, null sink",
    JDBC: "PySpark JDBC, plain rows",
}
"""Those of the README, and their names there."""


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
        """Rows of a Markdown table with everything."""
        ours = self.times[OURS]
        for name, times in self.times.items():
            processor = f"{median(times.processor) / self.events * 1e6:.1f}" if times.processor else "–"
            cold, warm = (self._told(*pair) for pair in ((times.cold, ours.cold), (times.warm, ours.warm)))
            yield f"| {self.name} | {name} | {cold} | {warm} | {processor} |"

    def _told(self, seconds: list[float], ours: list[float]) -> str:
        if not seconds:
            return "– | – | –"
        beside = "" if seconds is ours else slower(median(seconds) / median(ours))
        return f"{spread(seconds)} | {self.events / median(seconds):,.0f} | {beside}"

    def summary(self) -> Iterator[str]:
        """The same of the contenders, for the README: seconds, and how many times slower than ours."""
        ours = self.times[OURS]
        for name, called in CONTENDERS.items():
            if name in self.times:
                times, cells = self.times[name], []
                for seconds, own in ((times.cold, ours.cold), (times.warm, ours.warm)):
                    rate = f"{self.events / median(seconds):,.0f} events/s"
                    cells.append(
                        f"{median(seconds):.2f} s | {rate if seconds is own else slower(median(seconds) / median(own))}"
                    )
                yield f"| {self.name} | {called} | {' | '.join(cells)} |"


def slower(ratio: float) -> str:
    """How many times slower, or faster, something is that takes so many times as long."""
    times, word = (ratio, "slower") if ratio >= 1 else (1 / ratio, "faster")
    return f"{times:.{0 if times >= 9.95 else 1}f} times {word}"


HEAD = (
    "| | | Cold: s | events/s | beside Spark | Warm: s | events/s | beside Spark | Processor, µs an event |",
    "|---|---|---|---|---|---|---|---|---|",
)
SUMMARY = ("| | | Cold | | Warm | |", "|---|---|---|---|---|---|")


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
        own = {"topic.prefix": "bench", "table.include.list": f"dbo\\.{TABLE}"}
        return connection(self.bench.port, self.bench.password) | own

    def prepare(self, offsets: Path) -> None:
        """Offsets behind a snapshot, where the connector is to begin with a backlog."""
        if not self.only_ours:
            offsets.mkdir()
            given = {"properties": self.properties(), "start": str(offsets), "prepare": True}
            run_process("connector_passes", given, self.folder)

    def run(self, phase: Phase) -> Phase:
        """All contenders, one after the other."""
        phase.times |= {name: Times() for name in [*map(ours, KINDS), RAW]}
        self._warm(phase)
        for _ in range(self.repeats):
            for kind in KINDS:
                phase.times[ours(kind)].cold.append(self._command(phase, kind))
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

    def _command(self, phase: Phase, kind: Kind) -> float:
        """Seconds of a whole `cdc-assets capture`."""
        with tempfile.TemporaryDirectory(dir=self.folder) as work:
            lake = Path(work) / "lake"
            if phase.start is not None:
                shutil.copytree(phase.start, lake)
            own = {"lake.path": str(lake), "stream.idle.timeout.ms": "1", "poll.interval.ms": "10"}
            done = Command.of(kind, Path(work), self.properties() | own).run()
            assert re.search(rf"\b{phase.events}\b", done.said.replace(",", "")), done.said
            return done.seconds

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
    parser.add_argument("--write", action="store_true", help="put the tables into README.md and benchmarks/README.md")
    given = parser.parse_args()
    if given.write and given.ours:
        parser.error("--write needs all contenders: leave --ours out")
    caption = f"{given.rows:,} rows, {given.updates:,} updates; medians of {given.repeats}"
    load = f"load average at the start {load_average()}."
    whole, short = [f"{caption} (least–most); {load}", "", *HEAD], [f"{caption}; {load}", "", *SUMMARY]
    print(*whole, sep="\n", flush=True)
    ratios: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for phase in contest(given.rows, given.updates, given.repeats, Path(folder), only_ours=given.ours):
            told = list(phase.lines())
            print(*told, sep="\n", flush=True)
            whole += told
            short += phase.summary()
            raw, ours = median(phase.times[RAW].warm), median(phase.times[OURS].warm)
            ratios.append(f"{phase.name} {raw / ours:.0%}")
    whole += ["", f"Of the raw read's rate, warm: {', '.join(ratios)}."]
    print(*whole[-2:], "", *short, sep="\n", flush=True)
    if given.write:
        write_table(ROOT / "README.md", "make bench", short)
        write_table(FIGURES, "make bench", whole)
