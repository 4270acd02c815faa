"""Sends notifications about snapshots and capture instances (spec debezium-sqlserver §10.1).

Channels: `log` writes one INFO line, `sink` a row on the topic `notification.sink.topic.name`; under Dagster a listener
turns them into observations. A notification reports finished work, so a failure of a channel is logged and never stops
the capture.

*After a crash.* A notification about a change of state is recorded in the same manifest row as the change, and sent after that.
The next run sends it again unless a later row exists. Its number is the application transaction of its commit
to the topic, so the topic has it exactly once, and the other channels at least once. A topic of another name, chosen
before it is sent again, gets it as well, for who reads that one must not miss it. Progress reports (`IN_PROGRESS`,
`TABLE_CHUNK_IN_PROGRESS` of a snapshot, `SKIPPED`) are not recorded; they are sent again when the work is repeated.
"""

import json
import logging
import uuid
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from cdc_assets.config.settings import NotificationSettings
from cdc_assets.core.lsn import ZERO_LSN, Position
from cdc_assets.core.notification import Notification
from cdc_assets.envelope.plan import HEADERS, POSITION, WINDOW
from cdc_assets.errors import CdcError
from cdc_assets.lake.small import append_rows
from cdc_assets.lake.topics import TopicTables
from cdc_assets.typemap.connect import ConnectType, struct

log = logging.getLogger(__name__)

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


Listener = Callable[[Notification], None]


class Notifier:
    """Sends notifications of one capture to its channels.

    Args:
        tables: the lake's Delta tables.
        settings: channels and topic.
        name: `connector_name`.
        listener: function called with each notification, regardless of the settings.
    """

    def __init__(
        self,
        tables: TopicTables,
        settings: NotificationSettings,
        name: str,
        listener: Listener | None = None,
    ) -> None:
        self._tables = tables
        self._settings = settings
        self._name = name
        self._listener = listener
        self._last: int | None = None

    def stamped(self, notification: Notification) -> Notification:
        """The notification with a number that grows with time; see `core.notification.Outbox`."""
        if notification.number:
            return notification
        if self._last is None:  # the clock may be before the numbers of an earlier run
            self._last = self._tables.reached(self._settings.sink_topic) if "sink" in self._settings.channels else 0
        micros = int(notification.at.timestamp() * 1000) * 1000
        self._last = max(self._last + 1, micros)  # numbers of one millisecond must differ
        return replace(notification, number=self._last)

    def send(self, notification: Notification) -> None:
        """Send to all channels; failures are logged."""
        notification = self.stamped(notification)
        self._last = max(self._last or 0, notification.number)
        row = self._row(notification)
        if "log" in self._settings.channels:
            log.info("[Notification Service] %s", json.dumps(row["value"]))
        if "sink" in self._settings.channels:
            table = pa.Table.from_pylist([row], SCHEMA)
            try:
                append_rows(self._tables, self._settings.sink_topic, table, notification.number)
            except CdcError as error:
                log.warning("A notification could not be written: %s", error)
        if self._listener is not None:
            self._listener(notification)

    def _row(self, notification: Notification) -> dict[str, object]:
        number = notification.number
        own_id = notification.id or str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._name}:{number}"))
        return {
            "position": f"{Position(ZERO_LSN, 0, ZERO_LSN, 0)}n{number:016d}",
            "key": {"id": own_id},
            "value": {
                "id": own_id,
                "type": notification.kind,
                "aggregate_type": notification.aggregate,
                "additional_data": {"connector_name": self._name, **notification.data},
                "timestamp": int(notification.at.timestamp() * 1000),
            },
            "headers": None,
            "window_id": number,
        }
