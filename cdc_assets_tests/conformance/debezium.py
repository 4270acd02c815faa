"""A Debezium engine as the tests use it: start, wait for records, stop, start again from its offsets."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Record = dict[str, Any]


class Debezium:
    """The real connector against one server, in a process of its own.

    Args:
        work: folder for offsets, schema history, records and log; a second engine over the same folder resumes.
        properties: connector properties over the defaults.
    """

    def __init__(self, work: Path, **properties: str) -> None:
        self.work = work
        self.out = work / "records.jsonl"
        self._stop = work / "stop"
        self._process: subprocess.Popen[bytes] | None = None
        self._before = 0
        self.properties = {
            "name": "engine",
            "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector",
            "driver.encrypt": "false",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(work / "offsets.dat"),
            "offset.flush.interval.ms": "200",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(work / "history.dat"),
            "poll.interval.ms": "100",
            "converter.schemas.enable": "true",
            "key.converter.schemas.enable": "true",
            "value.converter.schemas.enable": "true",
            **properties,
        }

    def __enter__(self) -> Self:
        self._stop.unlink(missing_ok=True)
        self._before = len(self._lines())
        configuration = self.work / "properties.json"
        configuration.write_text(json.dumps(self.properties))
        arguments = ["-m", "cdc_assets_tests.conformance.engine", str(configuration), str(self.out), str(self._stop)]
        with (self.work / "process.log").open("ab") as log:
            self._process = subprocess.Popen([sys.executable, *arguments], stdout=log, stderr=log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._stop.touch()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def records(self) -> list[Record]:
        """All records so far, those of earlier runs over the same folder included."""
        return [line for line in self._lines() if "stopped" not in line]

    def _lines(self) -> list[Record]:
        """Complete lines of the output."""
        if not self.out.exists():
            return []
        text = self.out.read_text()
        complete = text[: text.rfind("\n") + 1]
        return [json.loads(line) for line in complete.split("\n") if line]

    def wait(self, enough: Callable[[list[Record]], bool], seconds: float = 90) -> list[Record]:
        """The records, as soon as they are enough; fails with the engine's last log lines otherwise."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            records = self.records()
            if enough(records):
                return records
            assert self._process is not None
            if self._process.poll() is not None or any("stopped" in line for line in self._lines()[self._before :]):
                break
            time.sleep(0.2)
        raise AssertionError(f"only {len(self.records())} records came.\n{self.log_tail()}")

    def log_tail(self, lines: int = 40) -> str:
        """The end of the engine's log and of the process's own output."""
        texts = [
            path.read_text(errors="replace")
            for path in (self.work / "engine.log", self.work / "process.log")
            if path.exists()
        ]
        return "\n".join("\n".join(text.splitlines()[-lines:]) for text in texts)


def data_records(records: list[Record], table: str) -> list[Record]:
    """Records of the topic whose name ends in `table`, in order."""
    return [record for record in records if record.get("topic", "").endswith(f".{table}")]


def payload(part: Record | None) -> Any:
    """What a JSON converter with schemas wraps; None stays None."""
    return None if part is None else part["payload"]


def operations(records: list[Record]) -> list[str]:
    """`op` of each record, `tombstone` for a null value."""
    return ["tombstone" if record["value"] is None else payload(record["value"])["op"] for record in records]
