"""The real connector, several passes of the same work in one JVM: run by `benchmarks.versus`.

Its events are counted and thrown away: neither a broker nor a store is in the figures. A pass begins with an engine and
offsets of its own (none for a snapshot, a copy of a snapshot's for a backlog) and ends when as many records came as there
are; what the engine does to close is not counted. The queue is large, as the fastest setting wants it.
"""

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.connector import make_engine, own_properties
from benchmarks.passes import arguments, tell
from cdc_assets_tests.conformance.engine import start_java

FAST = {
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "poll.interval.ms": "100",
    "include.schema.changes": "false",
    "tasks.max": "1",
}
"""A large queue, short waits, and nothing but the rows' events."""


def prepare(properties: dict[str, str], start: Path) -> None:
    """Leave offsets behind a snapshot in the folder `start`, without reading more than a row."""
    table = properties["table.include.list"].replace("\\", "")
    few = {
        "snapshot.select.statement.overrides": table,
        f"snapshot.select.statement.overrides.{table}": f"SELECT * FROM {table} WHERE id <= 1",
        "offset.flush.interval.ms": "0",
    }
    one_pass(properties | few, start, 1, lambda work: work())
    end = time.monotonic() + 30
    while not (start / "offsets.dat").exists():
        assert time.monotonic() < end, f"the connector wrote no offsets into {start}"
        time.sleep(0.1)


def one_pass(properties: dict[str, str], work: Path, records: int, measure: Callable[..., None]) -> None:
    """Run an engine until so many records came."""
    done, reasons, count = threading.Event(), [""], [0]

    def took(more: int) -> None:
        count[0] += more
        if count[0] >= records:
            done.set()

    def ended(reason: str) -> None:
        reasons.append(reason)
        done.set()

    engine = make_engine(own_properties(work) | FAST | properties, took, ended)

    def run() -> None:
        thread.start()
        done.wait()
        assert count[0] >= records, f"{count[0]} of {records} records came; {reasons[-1]}"

    thread = threading.Thread(target=engine.run, daemon=True)
    measure(run)
    engine.close()
    thread.join(30)


def main() -> None:
    """Do what the parent asks for."""
    given = arguments()
    folder, properties = Path(sys.argv[1]).parent, dict(given["properties"])  # type: ignore[call-overload]  # pairs, as the parent has written them
    start = Path(str(given["start"])) if given["start"] else None
    start_java(folder, heap="2g")
    if given["prepare"]:
        assert start is not None
        prepare(properties, start)
        tell(lambda: None)
        return
    for _ in range(int(str(given["passes"]))):
        work = Path(tempfile.mkdtemp(dir=folder))
        if start is not None:
            shutil.copytree(start, work, dirs_exist_ok=True)
        one_pass(properties, work, int(str(given["records"])), tell)


if __name__ == "__main__":
    main()
    os._exit(0)  # threads of the engine may linger
