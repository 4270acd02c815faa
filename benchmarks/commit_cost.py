"""What a window costs when there were many before it: `python -m benchmarks.commit_cost [--windows N] [--whole-log]`.

Windows of one event each go through what a run uses: planned in the manifest, one Parquet file, one commit to the topic
table, completed in the manifest, and the tidying between windows. No server and no Spark, so that all of it is the cost of
commits. Printed are means of the newest hundred windows: processor time of the process with all its threads, since other work
on the machine disturbs it least; how many files lie in the two logs and beside them; and what it costs to open the manifest
anew and fold it, as a run, the sensor and `status` do.

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

import pyarrow as pa

from cdc_assets.config.build import build_config
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn, Position
from cdc_assets.envelope.naming import topic_name
from cdc_assets.lake import delta_log
from cdc_assets.lake.files import TopicWriter
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import TableRead, TableState, Window
from cdc_assets.run.housekeeping import tidy

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

    def window(self, number: int) -> None:
        """Plan, write, commit and complete one."""
        after, until = lsn(number - 1), lsn(number)
        read = TableRead(TABLE, "dbo_orders", after, until)
        window = Window(self.manifest.state.next_window, "stream", TABLE.database, after, until, (until,), (read,))
        self.manifest.plan(datetime.now(UTC), window)
        row = {"id": number, "note": "a row"}
        event = {
            "position": str(Position(until, 1, until, 2)),
            "value": {"before": None, "after": row, "op": "c"},
            "window_id": window.window_id,
        }
        with TopicWriter(self.tables.location, self.topic, _SCHEMA, window.window_id) as writer:
            writer.write([pa.RecordBatch.from_pylist([event], _SCHEMA)])
        self.tables.require_files({self.topic: writer.files})
        metadata = {"from_lsn": str(after), "to_lsn": str(until), "rows": "1", "window_id": str(window.window_id)}
        self.tables.commit(self.topic, None, writer.files, window.window_id, metadata)
        self.manifest.complete(datetime.now(UTC), [], [], {str(TABLE): {"c": 1}})
        if number % self.config.lake.compact_after_files == 0:
            tidy(self.tables, self.manifest, self.config, [TABLE])

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
    "| Windows before | One window | Manifest opened | Log files of topic, of manifest | Load average |",
    "|---|---|---|---|---|",
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
                    f"| {os.getloadavg()[0]:.0f} |"
                )
    finally:
        shutil.rmtree(lake)


def main() -> None:
    """Print the curve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=20_000)
    parser.add_argument("--whole-log", action="store_true")
    given = parser.parse_args()
    if given.whole_log:
        delta_log.LEAST_COMMITS = 1_000_000_000
    print(*HEAD, sep="\n")
    for line in points(given.windows):
        print(line, flush=True)


if __name__ == "__main__":
    main()
