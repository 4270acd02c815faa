"""Reads topic tables back as any Delta reader would, for assertions."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables


@dataclass(frozen=True)
class Event:
    """One row of a topic table."""

    position: str
    op: str | None
    key: int
    before: dict[str, object] | None
    after: dict[str, object] | None
    marker: str | None
    window_id: int

    @property
    def lsn(self) -> Lsn:
        return Lsn.parse(self.position[:22])


def rows_of_topic(config: CaptureConfig, topic: str) -> list[dict[str, object]]:
    """All rows of all generations, in file order."""
    tables = TopicTables(Location.of(config.lake), "reader")
    rows: list[dict[str, object]] = []
    for directory in tables.generations(topic):
        handle, files = tables.open(directory), tables.location.existing(directory)
        assert handle is not None
        for path in pa.table(handle.get_add_actions())["path"].to_pylist():
            rows += pq.read_table(path, filesystem=files).to_pylist()
    return rows


def events_of(config: CaptureConfig, table: TableId) -> list[Event]:
    """All events of a table in position order."""
    found = [_event(row) for row in rows_of_topic(config, f"shop.{table}")]
    return sorted(found, key=lambda event: event.position)


def _event(row: dict) -> Event:  # type: ignore[type-arg]
    value = row["value"] or {}
    source = value.get("source") or {}
    return Event(
        row["position"],
        value.get("op"),
        row["key"]["id"],
        value.get("before"),
        value.get("after"),
        source.get("snapshot"),
        row["window_id"],
    )
