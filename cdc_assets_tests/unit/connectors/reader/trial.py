"""A reader of files with a lake of its own."""

import gzip
import json
from pathlib import Path
from typing import Any

from cdc_assets.assembly.engine import run_engine
from cdc_assets.cli.tail import lines
from cdc_assets.config.engine import engine_config
from cdc_assets.config.settings import TextSettings
from cdc_assets.connectors.engine.run import EngineSummary
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables

STEPS = ["files-written", "batch-planned", "table-committed", "batch-complete"]
"""At which a run may die."""


class Trial:
    """A folder of events, and the lake that they go into.

    Args:
        folder: for both.
        properties: of the configuration, besides the usual.
    """

    def __init__(self, folder: Path, **properties: str) -> None:
        self.events, self.lake = folder / "events", folder / "lake"
        self.events.mkdir()
        usual = {
            "connector.class": "cdc_assets.FileEvents",
            "topic.prefix": "shop",
            "files.path": str(self.events),
            "lake.path": str(self.lake),
            "stream.idle.timeout.ms": "1",
        }
        self.properties = usual | {name.replace("__", "."): text for name, text in properties.items()}
        self.configure()

    def configure(self) -> None:
        """Take the properties as they are now."""
        self.config = engine_config(self.properties)

    def write(self, name: str, *events: Any, end: str = "\n") -> None:
        """Append events to a file, as JSON or as they are."""
        texts = [event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events]
        data = ("\n".join(texts) + end).encode("utf-8", "surrogateescape")
        (self.events / name).parent.mkdir(parents=True, exist_ok=True)
        with (self.events / name).open("ab") as file:
            file.write(gzip.compress(data) if name.endswith(".gz") else data)

    def tables(self) -> TopicTables:
        return TopicTables(Location.of(self.config.lake), "shop", self.config.lake)

    def run(self) -> EngineSummary:
        return run_engine(self.config, self.tables(), lambda _: None)

    def held(self, topic: str, *, schemas: bool = False, headers: bool = False) -> list[dict[str, Any]]:
        """Events of a topic in their order, rendered from the lake."""
        tables, found = self.tables(), []
        text = TextSettings(key_schema=schemas, value_schema=schemas)
        for directory in tables.generations(topic):
            handle = tables.open(directory)
            assert handle is not None
            rows = handle.to_pyarrow_table().sort_by("position").combine_chunks()
            found += [json.loads(line) for line in lines([rows], text, headers=headers)]
        return sorted(found, key=lambda event: event["position"])
