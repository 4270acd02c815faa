"""Tells about snapshots and capture instances (spec debezium-sqlserver §10.1).

Channels: `log` writes one INFO line, `sink` a row on the topic
`notification.sink.topic.name`; under Dagster a listener makes observations of
them. A notification is about work that is done
already, so a channel that fails is logged and never stops the capture.
"""

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import pyarrow as pa

from cdc_assets.config.settings import NotificationSettings
from cdc_assets.core.lsn import ZERO_LSN, Position
from cdc_assets.envelope.plan import HEADERS, POSITION, WINDOW
from cdc_assets.errors import CdcError, ConfigurationError
from cdc_assets.lake.small import append_rows
from cdc_assets.lake.topics import TopicTables
from cdc_assets.typemap.connect import ConnectType, struct

log = logging.getLogger(__name__)

Aggregate = Literal["Initial Snapshot", "Incremental Snapshot", "Capture Instance"]

_TEXT = ConnectType("string")
_KEY = struct(
    "io.debezium.connector.common.NotificationKey", [_TEXT.required().to_field("id")], version=1, optional=False
)
_MAP = pa.field(
    "additional_data", pa.map_(pa.string(), pa.string()), True, {"connect.type": "map", "connect.optional": "true"}
)
_VALUE = struct(
    "io.debezium.connector.common.Notification",
    [
        _TEXT.required().to_field("id"),
        _TEXT.required().to_field("type"),
        _TEXT.required().to_field("aggregate_type"),
        _MAP,
        ConnectType("int64").required().to_field("timestamp"),
    ],
    version=1,
    optional=False,
)
SCHEMA = pa.schema([POSITION, _KEY.to_field("key"), _VALUE.to_field("value"), HEADERS, WINDOW])


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification.

    Args:
        aggregate: what it is about.
        kind: such as `STARTED`, `COMPLETED`, `TABLE_SCAN_COMPLETED`.
        data: `additional_data` without `connector_name`, which is added.
        at: when.
        id: of a signal; made if empty.
    """

    aggregate: Aggregate
    kind: str
    data: Mapping[str, str]
    at: datetime
    id: str = ""

    def __str__(self) -> str:
        """For people: what happened, to which table, and how it went; one table is not told with all the others."""
        tables = ("scanned_collection", "current_collection_in_progress", "data_collections")
        about = next((self.data[name] for name in tables if name in self.data), "")
        facts = ", ".join(f"{name}={text}" for name, text in self.data.items() if name not in tables)
        return " ".join(filter(None, (self.aggregate, self.kind, about, facts)))


Listener = Callable[[Notification], None]


class Notifier:
    """Sends notifications of one capture to its channels.

    Args:
        tables: the lake's Delta tables.
        settings: channels and topic.
        name: `connector_name`.
        listener: told of each as well, whatever the settings say.

    Raises:
        ConfigurationError: channel `sink` has no topic.
    """

    def __init__(
        self,
        tables: TopicTables,
        settings: NotificationSettings,
        name: str,
        listener: Listener | None = None,
    ) -> None:
        if "sink" in settings.channels and not settings.sink_topic:
            raise ConfigurationError(
                "notification.sink.topic.name", "", "a topic name, because channel sink is enabled", "set it"
            )
        self._tables, self._settings, self._name, self._listener = tables, settings, name, listener
        self._last = 0

    def send(self, notification: Notification) -> None:
        """Send to all channels; failures are logged."""
        row = self._row(notification)
        if "log" in self._settings.channels:
            log.info("[Notification Service] %s", json.dumps(row["value"]))
        if "sink" in self._settings.channels:
            try:
                self._sink(row)
            except CdcError as error:
                log.warning("A notification could not be written: %s", error)
        if self._listener is not None:
            self._listener(notification)

    def _sink(self, row: dict[str, object]) -> None:
        table = pa.Table.from_pylist([row], SCHEMA)
        append_rows(self._tables, self._settings.sink_topic, table, self._last)

    def _row(self, notification: Notification) -> dict[str, object]:
        millis = int(notification.at.timestamp() * 1000)
        # several in one millisecond must differ: the number is position, window and commit version
        self._last = max(self._last + 1, millis * 1000)
        own_id = notification.id or str(uuid.uuid4())
        return {
            "position": f"{Position(ZERO_LSN, 0, ZERO_LSN, 0)}n{self._last:016d}",
            "key": {"id": own_id},
            "value": {
                "id": own_id,
                "type": notification.kind,
                "aggregate_type": notification.aggregate,
                "additional_data": {"connector_name": self._name, **notification.data},
                "timestamp": millis,
            },
            "headers": None,
            "window_id": self._last,
        }
