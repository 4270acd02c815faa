"""The embedded engine with an empty sink: `python -m benchmarks.null_engine ARGUMENTS`, run by `benchmarks.engine`.

The same process, Java machine and settings as a capture's; the records are counted, marked and thrown away as they are.
Offsets and schema history stay in a folder, so that a later run continues there.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from cdc_assets.connectors.debezium.child import EngineProcess, start_java


class NullProcess(EngineProcess):
    """Ends when so many records have come.

    Args:
        work: holds offsets and history, if there are any.
        properties: the connector's.
        records: that are waited for.
    """

    def __init__(self, work: Path, properties: dict[str, str], records: int) -> None:
        channel, self._other = socket.socketpair()
        super().__init__(channel, work, {"properties": properties, "offsets": [], "history": []})
        self._records, self._count = records, 0
        self._first: tuple[float, float] | None = None
        self.result: dict[str, float] = {}

    def _properties(self) -> dict[str, str]:
        if (self._work / "offsets.dat").exists():
            return {**self._start["properties"], **self._stores()}
        return super()._properties()

    def _take(self, records: Any, committer: Any) -> None:
        now = (time.perf_counter(), _used())
        self._first = self._first or now
        self._count += records.size()
        committer.markProcessed(records.get(records.size() - 1))
        committer.markBatchFinished()
        if self._count >= self._records and not self.result:
            now = (time.perf_counter(), _used())
            self.result = {"seconds": now[0] - self._first[0], "processor": now[1] - self._first[1]}
            self._stop.set()

    def _flush_held(self) -> None:
        """Nothing waits."""


def _used() -> float:
    times = os.times()
    return times.user + times.system


def main() -> None:
    """Run once and print a line."""
    given = json.loads(Path(sys.argv[1]).read_text())
    work = Path(given["work"])
    start_java(work, given["heap"], "ERROR")
    process = NullProcess(work, given["properties"], given["records"])
    process.run()
    print(json.dumps(process.result), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # threads of the engine may linger
