"""Gauges of a capture's report (`CaptureReport`), the same that `cdc-assets status` prints.

The report is made when somebody scrapes, at most once in a few seconds.

*No answer is an answer.* If a report hangs or fails, health is *not known*, over what was found before: what a file or a collector holds
would stay healthy otherwise. A report that began long ago, because the process was frozen, is thrown away.
"""

import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from threading import Lock
from typing import Final, get_args

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cdc_assets.core.asking import Asking
from cdc_assets.errors import describe_error
from cdc_assets.overview.report import CaptureReport, Health, TableCondition, unanswered_report

REPORT_EVERY_S: Final = 5.0
"""Least number of seconds between two reports, however often somebody scrapes."""
_OVERDUE_S: Final = 20.0
"""Seconds after which a report that has not ended is not known."""
_OLD_S: Final = 60.0
"""Seconds after which a report that has just been finished is made again."""
_UNSEEN_S: Final = 120.0
"""Seconds for which one that was late is kept for the next scrape."""
_PART_S: Final = 0.2
"""Seconds for which a report is waited for before it is seen whether there is less time than there was."""

log = logging.getLogger(__name__)

MakeReport = Callable[[], CaptureReport | None]
"""Makes a report; None if there is none yet."""


class ReportGauges(Collector):
    """Gauges of the capture's report.

    Args:
        capture: value of the label `capture`.
        make_report: makes what the gauges are read from.
    """

    def __init__(self, capture: str, make_report: MakeReport) -> None:
        self._capture, self._make_report = capture, make_report
        self._lock = Lock()
        self._asking: Asking[tuple[float, CaptureReport | None]] = Asking(f"metrics of {capture}")
        self._made: tuple[float, CaptureReport | None] = (float("-inf"), None)
        """The newest report that was finished, and when, by the wall clock: others stand still while a machine is suspended."""
        self._reason = ""
        """The newest reason in the log."""
        self._end = float("inf")
        """When nobody waits for a report any more."""

    def hurry(self, seconds: float) -> None:
        """Wait for reports no longer than that from now on, also for one that is under way."""
        self._end = time.monotonic() + seconds

    def describe(self) -> list[Metric]:
        """Nothing: a report must not be made when the collector is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All gauges."""
        with self._lock:
            report = self._newest()
        if report is not None:
            yield from _of_capture(report)
            yield from _of_databases(report)
            yield from _of_tables(report)

    def _newest(self) -> CaptureReport | None:
        """The newest report, or that nothing is known."""
        made_at, report = self._made
        if abs(time.time() - made_at) < REPORT_EVERY_S:
            return report
        try:
            found = self._answer()
        except Exception as error:  # noqa: BLE001 - metrics must never end a capture
            return self._unanswered(describe_error(error))
        if found is None:
            return self._unanswered(f"no answer since {self._asking.since:%H:%M:%S} UTC")
        self._made, self._reason = found, ""
        return found[1]

    def _answer(self) -> tuple[float, CaptureReport | None] | None:
        """What a report finds; None if it does not end in time. One that is late already is not waited for."""
        waited_s = self._waited_s() if self._asking.is_under_way else 0.0
        found = self._wait(_OVERDUE_S - waited_s)
        if found is not None and self._is_old(found[0]):
            found = self._wait(_OVERDUE_S)
        return found

    def _wait(self, patience_s: float) -> tuple[float, CaptureReport | None] | None:
        until = time.monotonic() + patience_s
        while True:
            left_s = min(until, self._end) - time.monotonic()
            found = self._asking.ask(self._report, max(0.0, min(left_s, _PART_S)))
            if found is not None or left_s <= _PART_S:
                return found

    def _report(self) -> tuple[float, CaptureReport | None]:
        """A report, and when it was finished, by the wall clock."""
        report = self._make_report()
        return time.time(), report

    def _is_old(self, made_at: float) -> bool:
        """Whether a report took so long that the process was frozen meanwhile, or was finished long before this scrape."""
        return abs(made_at - self._asking.since.timestamp()) > _OLD_S or abs(time.time() - made_at) > _UNSEEN_S

    def _waited_s(self) -> float:
        return abs((datetime.now(UTC) - self._asking.since).total_seconds())

    def _unanswered(self, reason: str) -> CaptureReport:
        found = unanswered_report(self._capture, self._made[1], reason)
        if reason != self._reason:
            log.warning("%s", found.unknown[-1].what)
        self._reason = reason
        return found


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"cdc_assets_{name}", text, labels=["capture", *labels])


def _of_capture(report: CaptureReport) -> Iterator[Metric]:
    looked = _gauge("last_look_timestamp_seconds", "Time of the report with the health and the other gauges.")
    looked.add_metric([report.capture], report.at.timestamp())
    yield looked
    health = _gauge("health", "1 for the health that the capture has, 0 for the others.", "health")
    for name in get_args(Health):
        health.add_metric([report.capture, name], float(report.health == name))
    yield health
    troubles = _gauge("troubles", "Findings that need attention.")
    troubles.add_metric([report.capture], len(report.troubles))
    yield troubles
    unknown = _gauge("unknown", "Facts that could not be queried, so that it is unknown whether all is well.")
    unknown.add_metric([report.capture], len(report.unknown))
    yield unknown
    conditions = _gauge("captured_tables", "Tables by condition.", "condition")
    for name in get_args(TableCondition):
        conditions.add_metric([report.capture, name], report.counts().get(name, 0))
    yield conditions
    queue = _gauge("incremental_snapshot_tables", "Tables queued for requested snapshots.")
    queue.add_metric([report.capture], len(report.queue))
    yield queue
    yield from _of_kafka(report)


def _of_kafka(report: CaptureReport) -> Iterator[Metric]:
    """Without values if nothing is written to Kafka, or if that could not be queried."""
    found = report.published if report.published is not None and not report.published.problem else None
    for name, text, value in (
        (
            "kafka_waiting_windows",
            "Windows and rounds that are not published to Kafka.",
            found.waiting if found else None,
        ),
        ("kafka_behind_seconds", "Age of the oldest of them.", found.behind_s if found else None),
        (
            "kafka_events_per_second",
            "Events published to Kafka in the last minute.",
            found.per_second if found else None,
        ),
        ("kafka_stopped_topics", "Topics that are not published further.", len(found.stopped) if found else None),
    ):
        gauge = _gauge(name, text)
        if value is not None:
            gauge.add_metric([report.capture], value)
        yield gauge


def _of_databases(report: CaptureReport) -> Iterator[Metric]:
    connected = _gauge("connected", "Whether the server answered.", "database")
    behind = _gauge("seconds_behind_source", "Age of the newest complete commit by the server's clock.", "database")
    lag = _gauge("lag_seconds", "Lag by cause.", "database", "cause")
    room = _gauge("retention_room_bytes", "Bytes that the log may grow before unread changes are removed.", "database")
    for database in report.databases:
        names = [report.capture, database.database]
        if database.room_bytes is not None:
            room.add_metric(names, database.room_bytes)
        connected.add_metric(names, float(database.server_time is not None))
        if database.age_s is not None:
            behind.add_metric(names, database.age_s)
        for cause, seconds in database.lag_by_cause.items():
            if seconds is not None:
                lag.add_metric([*names, cause], seconds)
    yield from (connected, behind, lag, room)


def _of_tables(report: CaptureReport) -> Iterator[Metric]:
    streams = _gauge("table_streaming", "1 if the table streams, 0 otherwise.", "database", "table")
    headroom = _gauge("retention_headroom_seconds", "Time until unread changes are cleaned up.", "database", "table")
    snapshot = _gauge("snapshot_ratio", "Part of the rows of a snapshot that is read.", "database", "table")
    ignored = _gauge(
        "ignored_gaps",
        "Intervals that the table lacks because of gap.policy=ignore, or of a mode that reads no rows.",
        "database",
        "table",
    )
    for table in report.tables:
        names = [report.capture, table.table.database, table.table.within_database]
        streams.add_metric(names, float(table.condition == "streaming"))
        ignored.add_metric(names, len(table.ignored_gaps))
        if table.headroom_h is not None:
            headroom.add_metric(names, table.headroom_h * 3600)
        if table.percent is not None:
            snapshot.add_metric(names, table.percent / 100)
    yield from (streams, headroom, snapshot, ignored)
