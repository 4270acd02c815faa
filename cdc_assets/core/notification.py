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
        aggregate: subject, such as `Initial Snapshot`.
        kind: such as `STARTED`, `COMPLETED`, `TABLE_SCAN_COMPLETED`.
        data: `additional_data` without `connector_name`, which is added.
        at: time of the event, with time zone UTC.
        id: id of the signal that caused it; generated if empty.
        number: sequence number within the capture; 0 until it is recorded or sent. A repetition keeps its number.
    """

    aggregate: Aggregate
    kind: str
    data: Mapping[str, str]
    at: datetime
    id: str = ""
    number: int = 0

    def __str__(self) -> str:
        """One line for people: what happened, to which table, with which result. If it is about one table, only that
        table is shown."""
        tables = ("scanned_collection", "current_collection_in_progress", "data_collections")
        about = next((self.data[name] for name in tables if name in self.data), "")
        facts = ", ".join(f"{name}={text}" for name, text in self.data.items() if name not in tables)
        return " ".join(filter(None, (self.aggregate, self.kind, about, facts)))


class Outbox(Protocol):
    """Sends notifications that the manifest has recorded."""

    def stamped(self, notification: Notification) -> Notification:
        """The notification with the next number, unless it has one already."""
        ...

    def send(self, notification: Notification) -> None:
        """Send to all channels; a failure is logged. A number already present in a channel of the lake is not written
        again."""
        ...
