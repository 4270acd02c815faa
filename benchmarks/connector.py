"""The real Debezium connector with a consumer that only counts: `python -m benchmarks.connector PROPERTIES STOP`.

What it does is in its log, notifications included; the engine's records are thrown away, so nothing but the connector
is measured. Needs the extra `conformance`.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc_assets_tests.conformance.engine import json_engine, start_java


def make_engine(properties: Mapping[str, str], took: Callable[[int], None], ended: Callable[[str], None]) -> Any:
    """An engine whose records are counted and thrown away; the JVM runs.

    Args:
        properties: of the connector.
        took: is told how many records came.
        ended: is told why the engine stopped.
    """
    import jpype

    @jpype.JImplements("io.debezium.engine.DebeziumEngine$ChangeConsumer")
    class Consumer:
        @jpype.JOverride
        def handleBatch(self, records: Any, committer: Any) -> None:  # noqa: N802 - the interface's name
            count = records.size()
            committer.markProcessed(records.get(count - 1))
            committer.markBatchFinished()
            took(count)

    @jpype.JImplements("io.debezium.engine.DebeziumEngine$CompletionCallback")
    class Ended:
        @jpype.JOverride
        def handle(self, success: Any, message: Any, error: Any) -> None:
            ended(f"{message} {error}")

    return json_engine(properties, Consumer(), Ended())


def run(properties: dict[str, str], stop: Path) -> None:
    """Run until the file `stop` exists."""
    start_java(stop.parent)
    engine = make_engine(properties, lambda _: None, lambda _: None)
    threading.Thread(target=engine.run, daemon=True).start()
    while not stop.exists():
        time.sleep(0.1)


def own_properties(work: Path) -> dict[str, str]:
    """What makes an engine of it, with offsets and schema history in `work`."""
    return {
        "name": "bench",
        "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector",
        "driver.encrypt": "false",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(work / "offsets.dat"),
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(work / "history.dat"),
        "converter.schemas.enable": "false",
        "notification.enabled.channels": "log",
    }


class Connector:
    """A running connector.

    Args:
        log: its log file.
    """

    def __init__(self, log: Path) -> None:
        self._log = log

    def wait(self, found: Callable[[str], bool], seconds: float) -> str:
        """The first line of the log for which that holds.

        Raises:
            TimeoutError: none came.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
            line = next((line for line in lines if found(line)), None)
            if line is not None:
                return line
            time.sleep(0.05)
        raise TimeoutError(f"The connector did not come so far in {seconds:.0f} s; its log is {self._log}.")


@contextmanager
def connector(work: Path, **properties: str) -> Iterator[Connector]:
    """A connector in a process of its own, with offsets and schema history in `work`."""
    (work / "properties.json").write_text(json.dumps(own_properties(work) | properties))
    command = [sys.executable, "-m", "benchmarks.connector", str(work / "properties.json"), str(work / "stop")]
    with (work / "process.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield Connector(work / "engine.log")
        finally:
            (work / "stop").touch()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    run(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
    os._exit(0)  # threads of the engine may linger
