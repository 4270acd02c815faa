"""Our capture of the same server, as records of the referee's form."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_assets.cli.local import LocalRunner
from cdc_assets.config.load import load_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.envelope.json import to_json
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.standin.control import StandIn
from cdc_assets.streaming.capture import Capture
from cdc_assets_tests.conformance.compare import Record
from resources.bulk import MssqlBulkSource
from resources.clock import SystemClock
from resources.sqlserver_source import SqlServerSource


class Ours:
    """A capture into a lake in `work`, run in this process; call `catch_up` as often as you like.

    Args:
        server: the stand-in.
        work: folder for configuration and lake.
        properties: connector properties, the same that the referee gets.
    """

    def __init__(self, server: StandIn, work: Path, **properties: str) -> None:
        path = work / "capture.json"
        own = {"name": "ours", "lake.path": str(work / "lake"), "driver.encrypt": "no", "stream.idle.timeout.ms": "1"}
        path.write_text(json.dumps(properties | own))
        self.config: CaptureConfig = load_config(path, {})
        self.server = server

    def catch_up(self) -> None:
        """Snapshot what has to be, then stream until nothing is new."""
        with SqlServerSource(self.config.connection) as source:
            bulk = MssqlBulkSource(self.config.connection)
            capture = Capture(self.config, source, bulk, LocalRunner(), SystemClock())
            capture.snapshot()
            capture.stream(until_idle=True)

    def records(self) -> list[Record]:
        """All events of all public topics, each topic in position order."""
        tables = TopicTables(Location.of(self.config.lake), self.config.name)
        lake = Path(self.config.lake.path)
        found: list[Record] = []
        for directory in sorted(path.parent.name for path in lake.glob("*/_delta_log")):
            if ".__" in directory:
                continue
            handle = tables.open(directory)
            assert handle is not None
            table = handle.to_pyarrow_dataset().to_table().sort_by("position")
            found += topic_records(directory.split("@")[0], table.cast(pa.schema(handle.schema().to_arrow())))
        return found


def topic_records(topic: str, events: pa.Table) -> list[Record]:
    """A topic table's rows as records."""
    records: list[Record] = []
    for batch in events.to_batches():
        columns = [column.to_pylist() for column in to_json(events.schema, batch, schemas=True)]
        for key, value, headers in zip(*columns, strict=True):
            records.append(
                {"topic": topic, "key": parsed(key), "value": parsed(value), "headers": parsed(headers) or {}}
            )
    return records


def parsed(text: str | None) -> Any:
    """JSON text or null."""
    return None if text is None else json.loads(text)
