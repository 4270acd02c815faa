"""Heartbeat events on a separate topic (spec debezium-sqlserver §10.2).

A heartbeat shows that the capture works even if nothing changes; its position is the capture's watermark.
`heartbeat.interval.ms` 0 sends none. A heartbeat is one commit with a number of its own, without a plan: a crash before it loses that
heartbeat, and the next run sends a new one.
"""

from datetime import timedelta

import pyarrow as pa

from cdc_assets.config.settings import EventSettings, HeartbeatSettings
from cdc_assets.core.lsn import ZERO_LSN, Lsn, Position
from cdc_assets.core.ports import Clock
from cdc_assets.envelope.plan import HEADERS, POSITION, WINDOW
from cdc_assets.lake.small import append_rows
from cdc_assets.lake.system_topics import heartbeat_topic
from cdc_assets.lake.topics import TopicTables
from cdc_assets.typemap.connect import ConnectType, struct

_KEY = struct(
    "io.debezium.connector.common.ServerNameKey",
    [ConnectType("string").required().to_field("serverName")],
    version=1,
    optional=False,
)
_VALUE = struct(
    "io.debezium.connector.common.Heartbeat",
    [ConnectType("int64").required().to_field("ts_ms")],
    version=1,
    optional=False,
)
SCHEMA = pa.schema([POSITION, _KEY.to_field("key"), _VALUE.to_field("value"), HEADERS, WINDOW])


class Heartbeat:
    """Writes heartbeats of one capture.

    Args:
        tables: the lake's Delta tables.
        settings: interval and topic.
        events: topic prefix.
    """

    def __init__(self, tables: TopicTables, settings: HeartbeatSettings, events: EventSettings) -> None:
        self._tables, self._settings, self._events = tables, settings, events
        self._last: timedelta | None = None
        self._number = -1

    def beat(self, clock: Clock, watermark: Lsn | None, *, forced: bool = False) -> bool:
        """Write a heartbeat if one is due.

        Args:
            clock: of the capture; the interval counts from the last heartbeat.
            watermark: LSN up to which every table is complete.
            forced: whether to write it regardless of the interval, as after a snapshot.

        Raises:
            LakeError: the lake cannot be written.
        """
        interval, elapsed = timedelta(seconds=self._settings.interval_s), clock.elapsed()
        if not interval or (not forced and self._last is not None and elapsed - self._last < interval):
            return False
        self._last = elapsed
        millis, topic = int(clock.now().timestamp() * 1000), heartbeat_topic(self._settings, self._events)
        if self._number < 0:  # the clock may be before the numbers of an earlier run
            self._number = self._tables.reached(topic)
        self._number = max(self._number + 1, millis)
        row = {
            "position": f"{Position(watermark or ZERO_LSN, 0, ZERO_LSN, 0)}h{self._number:013d}",
            "key": {"serverName": self._events.topic_prefix},
            "value": {"ts_ms": millis},
            "headers": None,
            "window_id": self._number,
        }
        return append_rows(self._tables, topic, pa.Table.from_pylist([row], SCHEMA), self._number)
