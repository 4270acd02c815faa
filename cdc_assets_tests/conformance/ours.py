"""Our capture of the same server, as records of the referee's form.

The capture runs as the command line does, in a process of its own: the Arrow reader keeps
the interpreter lock while it waits for large values, and a stand-in in the same process
could then never send them.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.config.load import load_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.envelope.json import to_json
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets_tests.conformance.compare import Record


class Ours:
    """A capture into a lake in `work`, run in this process; call `catch_up` as often as you like.

    Args:
        work: folder for configuration and lake.
        properties: connector properties, the same that the referee gets.
    """

    def __init__(self, work: Path, **properties: str) -> None:
        self.path = work / "capture.json"
        own = {"name": "ours", "lake.path": str(work / "lake"), "driver.encrypt": "no", "stream.idle.timeout.ms": "1"}
        self.path.write_text(json.dumps(properties | own))
        self.config: CaptureConfig = load_config(self.path, {})

    def catch_up(self, failing: str = "") -> None:
        """Snapshot what has to be, then stream until nothing is new.

        Args:
            failing: what the run must complain of, if a signal asks for what cannot be read; nothing by default.
        """
        command = [sys.executable, "-m", "cdc_assets.cli.main", "capture", "--local", "--config", str(self.path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == (1 if failing else 0), done.stdout + done.stderr
        assert failing in done.stdout

    def records(self, *, as_written: bool = False) -> list[Record]:
        """All events of all public topics, each topic in position order.

        Args:
            as_written: each event in the structure of its own data file, without fields that the table got later.
        """
        tables = TopicTables(Location.of(self.config.lake), self.config.name)
        lake = Path(self.config.lake.path)
        found: list[Record] = []
        for directory in sorted(path.parent.name for path in lake.glob("*/_delta_log")):
            if ".__" in directory:
                continue
            handle = tables.open(directory)
            assert handle is not None
            topic = directory.split("@")[0]
            if as_written:
                files = (
                    pq.read_table(lake / directory / path)
                    for path in pa.table(handle.get_add_actions())["path"].to_pylist()
                )
                full = pa.schema(handle.schema().to_arrow())
                parts = sorted(
                    (file.sort_by("position") for file in files), key=lambda file: file["position"][0].as_py()
                )
                found += [record for part in parts for record in topic_records(topic, as_in(part, full))]
            else:
                table = handle.to_pyarrow_dataset().to_table().sort_by("position")
                found += topic_records(topic, table.cast(pa.schema(handle.schema().to_arrow())))
        return found


def as_in(part: pa.Table, full: pa.Schema) -> pa.Table:
    """A data file's rows with the metadata of the topic table's fields, and without fields that the file lacks."""
    return part.cast(pa.schema([_pruned(full.field(field.name), field) for field in part.schema]))


def _pruned(full: pa.Field, part: pa.Field) -> pa.Field:
    if not pa.types.is_struct(part.type):
        return full
    own = [_pruned(full.type.field(child.name), child) for child in part.type]
    return pa.field(full.name, pa.struct(own), full.nullable, full.metadata)


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
