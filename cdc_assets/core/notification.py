"""A notification: what happened to a snapshot or to a capture instance (spec debezium-sqlserver §10.1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

Aggregate = Literal["Initial Snapshot", "Incremental Snapshot", "Capture Instance"]


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification.

    Args:
        aggregate: what it is about.
        kind: such as `STARTED`, `COMPLETED`, `TABLE_SCAN_COMPLETED`.
        data: `additional_data` without `connector_name`, which is added.
        at: aware, UTC.
        id: of a signal; made if empty.
        number: of those of a capture; 0 until it is recorded or sent. A repetition has the same.
    """

    aggregate: Aggregate
    kind: str
    data: Mapping[str, str]
    at: datetime
    id: str = ""
    number: int = 0

    def __str__(self) -> str:
        """For people: what happened, to which table, and how it went. If it is about one table, only that table is shown."""
        tables = ("scanned_collection", "current_collection_in_progress", "data_collections")
        about = next((self.data[name] for name in tables if name in self.data), "")
        facts = ", ".join(f"{name}={text}" for name, text in self.data.items() if name not in tables)
        return " ".join(filter(None, (self.aggregate, self.kind, about, facts)))


class Outbox(Protocol):
    """Sends what the manifest has recorded."""

    def stamped(self, notification: Notification) -> Notification:
        """With the next number, unless it has one."""
        ...

    def send(self, notification: Notification) -> None:
        """Tell all channels; a failure is logged. A number that a channel of the lake has is not written again."""
        ...
