"""What a window costs when there were many before it: `python -m benchmarks commit_cost [--windows N | --behind N] [--whole-log]`.

Windows of one event each go through what a run uses: planned in the manifest, one Parquet file, one commit to the topic
table, completed in the manifest, and the tidying between windows. No server and no Spark, so that all of it is the cost of
commits. Printed are means of the newest hundred windows: processor time of the process with all its threads, since other work
on the machine disturbs it least; how many files lie in the two logs; the process's resident memory; and what it costs to open the
manifest anew and fold it, as a run, the sensor and `status` do.

`--behind N` compares windows in a lake that is new with those in a lake that looks as if N windows had been committed. This
old lake is prepared by the same writer, committer and tidying, with the files of 200 windows in one commit, since
one by one would take an hour of the processor: so the topic has N rows, as many files joined and remembered as replaced, and a
manifest that was planned and completed N / 200 times. Both lakes take turns, 100 windows at a time.

`--whole-log` keeps all commits, as Delta's own retention of days does.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import mean, median

import psutil
import pyarrow as pa

from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.housekeeping import tidy
from cdc_assets.config.build import build_config
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.envelope.naming import topic_name
from cdc_assets.lake import delta_log
from cdc_assets.lake.files import DataFile, TopicWriter
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import TableRead, Window
from cdc_assets.ledger.table_state import TableState

TABLE = TableId("Bench", "dbo", "orders")
SHOWN = (100, 1_000, 2_500, 5_000, 10_000, 20_000, 50_000, 100_000)
_MEAN_OF = 100
_ROW = pa.struct([("id", pa.int64()), ("note", pa.string())])
_SCHEMA = pa.schema(
    [
        ("position", pa.string()),
        ("value", pa.struct([("before", _ROW), ("after", _ROW), ("op", pa.string())])),
        ("window_id", pa.int64()),
    ]
)


def lsn(window: int) -> Lsn:
    """The end of a window."""
    return Lsn.from_int((0x2A << 48) + (window << 16) + 1)


class Stream:
    """A capture of one table that gets one row per window.

    Args:
        lake: an empty directory.
    """

    def __init__(self, lake: Path) -> None:
        self.lake = lake
        self.config = build_config(
            {
                "database.hostname": "none",
                "database.user": "none",
                "database.password": "none",
                "database.names": TABLE.database,
                "topic.prefix": "bench",
                "lake.path": str(lake),
            }
        )
        self.topic = topic_name(TABLE, self.config.events)
        self.tables = TopicTables.of(self.config)
        self.tables.ensure(self.topic, _SCHEMA)
        self.manifest = Manifest(self.tables, self.config.events.topic_prefix)
        self.manifest.claim(datetime.now(UTC))
        self.manifest.mark(datetime.now(UTC), TABLE.database, [TableState(TABLE, 1, lsn(0), "dbo_orders")])

    def window(self, number: int, events: int = 1) -> None:
        """Plan, write, commit and complete one.

        Args:
            number: of its last event.
            events: how many it has, a file for each.
        """
        after, until = lsn(number - events), lsn(number)
        read = TableRead(TABLE, "dbo_orders", after, until)
        window = Window(self.manifest.state.next_window, "stream", TABLE.database, after, until, (until,), (read,))
        self.manifest.plan(datetime.now(UTC), window)
        files = [self._file(each, window.window_id) for each in range(number - events + 1, number + 1)]
        self.tables.require_files({self.topic: files})
        metadata = {
            "from_lsn": str(after),
            "to_lsn": str(until),
            "rows": str(events),
            "window_id": str(window.window_id),
        }
        self.tables.commit(self.topic, None, files, window.window_id, metadata)
        self.manifest.complete(datetime.now(UTC), [], [], {str(TABLE): {"c": events}})
        if number % self.config.lake.compact_after_files == 0:
            tidy(self.tables, self.manifest, self.config, LocalRunner(1), [TABLE])

    def _file(self, number: int, window: int) -> DataFile:
        """A file with one event."""
        event = {
            "position": str(Position(lsn(number), 1, lsn(number), 2)),
            "value": {"before": None, "after": {"id": number, "note": "a row"}, "op": "c"},
            "window_id": window,
        }
        with TopicWriter(self.tables.location, self.topic, _SCHEMA, window) as writer:
            writer.write([pa.RecordBatch.from_pylist([event], _SCHEMA)])
        (file,) = writer.files
        return file

    def open_anew(self) -> None:
        """As a run, the sensor or `status` does."""
        Manifest(TopicTables.of(self.config), self.config.events.topic_prefix).read()

    def files(self) -> list[int]:
        """In the log of the topic and of the manifest, and beside them."""
        places = [self.lake / self.topic, self.lake / self.manifest.directory]
        logs = [len(list((place / "_delta_log").iterdir())) for place in places]
        return [*logs, *(len(list(place.glob("*.parquet"))) for place in places)]


def seconds(action: Callable[[], object]) -> float:
    """Processor time of an action, in all threads."""
    begun = time.process_time()
    action()
    return time.process_time() - begun


HEAD = (
    "| Windows before | One window | Manifest opened | Log files of topic, of manifest | Memory | Load average |",
    "|---|---|---|---|---|---|",
)


def points(windows: int) -> Iterator[str]:
    """Lines of a Markdown table."""
    lake = Path(tempfile.mkdtemp(prefix="commit-cost-"))
    try:
        stream, newest = Stream(lake), [0.0] * _MEAN_OF
        for number in range(1, windows + 1):
            newest[number % _MEAN_OF] = seconds(partial(stream.window, number))
            if number in SHOWN:
                opened = min(seconds(stream.open_anew) for _ in range(3))
                topic, manifest, *_ = stream.files()
                yield (
                    f"| {number:,} | {sum(newest) / _MEAN_OF * 1000:.1f} ms | {opened * 1000:.1f} ms | {topic:,}, {manifest:,} "
                    f"| {psutil.Process().memory_info().rss / 1e6:.0f} MB | {os.getloadavg()[0]:.0f} |"
                )
    finally:
        shutil.rmtree(lake)


BEHIND_HEAD = (
    "| Windows before | One window, median and mean | Manifest opened | Log files of topic, of manifest |",
    "|---|---|---|---|",
)


def behind(windows: int, turns: int) -> Iterator[str]:
    """Lines of a Markdown table: a new lake and an old one, in turn."""
    with tempfile.TemporaryDirectory(prefix="commit-cost-") as folder:
        old, new = Stream(Path(folder) / "old"), Stream(Path(folder) / "new")
        step = old.config.lake.compact_after_files
        for last in range(step, windows + 1, step):
            old.window(last, step)
        lakes = {0: new, windows: old}
        for number in range(1, 101):  # beyond the first windows of a process and of a lake
            for before, stream in lakes.items():
                stream.window(before + number)
        costs: dict[int, list[float]] = {before: [] for before in lakes}
        for turn in range(1, turns + 1):
            for before, stream in lakes.items():
                first = before + 100 * turn + 1
                costs[before] += [seconds(partial(stream.window, number)) for number in range(first, first + 100)]
        for before, stream in lakes.items():
            opened = min(seconds(stream.open_anew) for _ in range(3))
            topic, manifest, *_ = stream.files()
            yield (
                f"| {before + 100:,} | {median(costs[before]) * 1000:.1f} ms, {mean(costs[before]) * 1000:.1f} ms "
                f"| {opened * 1000:.1f} ms | {topic:,}, {manifest:,} |"
            )


def main() -> None:
    """Print the curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=20_000)
    parser.add_argument(
        "--behind", type=int, help="windows that the old lake of a comparison has, instead of the curve"
    )
    parser.add_argument("--turns", type=int, default=4, help="of a hundred windows, for --behind")
    parser.add_argument("--whole-log", action="store_true")
    given = parser.parse_args()
    if given.whole_log:
        delta_log.MIN_COMMITS = 1_000_000_000
    print(*(BEHIND_HEAD if given.behind else HEAD), sep="\n")
    for line in behind(given.behind, given.turns) if given.behind else points(given.windows):
        print(line, flush=True)
