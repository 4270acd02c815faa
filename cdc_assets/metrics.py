"""Metrics of one capture in Prometheus's and OpenMetrics' formats: over HTTP, or as a file for the node exporter.

*Counters* grow with committed windows and rounds, so nothing that is given up is counted; they begin at zero with each
process, which `rate()` expects. *Gauges* of health and lag come from the capture's report (`CaptureReport`), the same that
`cdc-assets status` prints; it is made when somebody scrapes, at most once in a few seconds.

*Bounded labels.* Capture, database, table, and words from fixed lists. No value, key or text of an error is a label.
"""

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Final, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cdc_assets.capture.progress import Commit
from cdc_assets.core import counts
from cdc_assets.run.overview.report import CaptureReport

OPERATIONS: Final = {"r": "read", "c": "create", "u": "update", "d": "delete", "t": "truncate"}
"""Value of the label `operation` by envelope operation; tombstones and others keep their name."""
CONDITIONS: Final = (
    "streaming", "drifted", "snapshotting", "waiting", "snapshotted", "not streamed", "gap", "failed", "excluded",
)  # fmt: skip
HEALTHS: Final = ("healthy", "working", "in trouble")
REPORT_EVERY_S: Final = 5.0
"""Least number of seconds between two reports, however often somebody scrapes."""

WRITE_EVERY_S: Final = 15.0
"""Seconds from one writing of a file of metrics to the next."""

log = logging.getLogger(__name__)

_TABLE = ("capture", "database", "table")
_DATABASE = ("capture", "database")

LookAt = Callable[[], CaptureReport | None]
"""Makes a report, or tells that there is none yet."""


class CaptureMetrics:
    """The metrics of one capture in one process; a listener of its progress.

    Args:
        capture: value of the label `capture`.
        look_at: makes the report; None exports no gauges of it.
    """

    def __init__(self, capture: str, look_at: LookAt | None = None) -> None:
        self._capture = capture
        self.registry = CollectorRegistry()
        self._lock = Lock()

        def counter(name: str, text: str, labels: tuple[str, ...]) -> Counter:
            return Counter(f"cdc_assets_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, labels: tuple[str, ...]) -> Gauge:
            return Gauge(f"cdc_assets_{name}", text, labels, registry=self.registry)

        self._events = counter("events_seen", "Events committed.", (*_TABLE, "kind", "operation"))
        self._bytes = counter("written_bytes", "Bytes of Parquet committed.", _TABLE)
        self._files = counter("written_files", "Data files committed.", _TABLE)
        self._commits = counter("commits", "Windows, rounds and batches committed.", (*_DATABASE, "kind"))
        self._transactions = counter(
            "committed_transactions", "Transactions published (provide.transaction.metadata).", _DATABASE
        )
        self._unchanged = counter(
            "unchanged_events_skipped", "Updates without a visible change that were left out.", _DATABASE
        )
        self._nulled = counter("values_nulled", "Values that fit no event and became null.", _DATABASE)
        self._unavailable = counter("values_unavailable", "Values that the log does not hold.", _DATABASE)
        self._lag = gauge("window_lag_seconds", "Age of the newest change at its commit to the lake.", _DATABASE)
        self._last = gauge("last_event_timestamp_seconds", "Server time of the newest committed change.", _TABLE)
        self._slices = gauge("snapshot_slices", "Slices of the snapshot in flight.", _DATABASE)
        self._done = gauge("snapshot_slices_done", "Slices of it that are committed.", _DATABASE)
        self.registry.register(_Retries(capture))
        if look_at is not None:
            self.registry.register(ReportGauges(look_at))

    def note(self, progress: Commit) -> None:
        """Count a committed window, round or batch."""
        with self._lock:
            self._note(progress)

    def _note(self, progress: Commit) -> None:
        database = (self._capture, progress.database)
        self._commits.labels(*database, progress.kind).inc()
        for table, part in progress.tables.items():
            names = (*database, table.within_database)
            for operation, number in part.rows.items():
                self._events.labels(*names, progress.kind, OPERATIONS.get(operation, operation)).inc(number)
            self._bytes.labels(*names).inc(part.size)
            self._files.labels(*names).inc(part.files)
            if part.committed is not None:
                self._last.labels(*names).set(part.committed.timestamp())
        for metric, name in (
            (self._transactions, counts.TRANSACTIONS),
            (self._unchanged, counts.UNCHANGED),
            (self._nulled, counts.NULLED),
            (self._unavailable, counts.UNAVAILABLE),
        ):
            metric.labels(*database).inc(progress.counts.get(name, 0))
        if progress.lag_s is not None:
            self._lag.labels(*database).set(progress.lag_s)
        if progress.slices:
            self._slices.labels(*database).set(progress.slices)
            self._done.labels(*database).set(progress.slices_done)

    def write(self, path: Path) -> None:
        """Write all metrics into a file, which is replaced at once."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_to_textfile(str(path), self.registry)


class Textfile:
    """Writes the metrics into a file now and then while the block runs, and at its end.

    Args:
        path: file for the node exporter's textfile collector.
    """

    def __init__(self, metrics: CaptureMetrics, path: Path) -> None:
        self._metrics, self._path = metrics, path
        self._written = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write()

    def write_if_due(self) -> None:
        """Write, unless that was done a few seconds ago."""
        if time.monotonic() - self._written >= WRITE_EVERY_S:
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        try:
            self._metrics.write(self._path)
        except OSError as error:  # metrics must never end a capture
            log.warning("Metrics cannot be written to %s: %s", self._path, error)


class MetricsServer:
    """Serves the metrics over HTTP while the block runs.

    Args:
        address: address to bind.
        port: port to bind; 0 takes a free one.

    Raises:
        OSError: the port cannot be bound.
    """

    def __init__(self, metrics: CaptureMetrics, address: str, port: int) -> None:
        self._server, self._thread = start_http_server(port, address, metrics.registry)
        self.port: int = self._server.server_port

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Retries(Collector):
    def __init__(self, capture: str) -> None:
        self._capture = capture

    def collect(self) -> Iterator[Metric]:
        """Retries of the process by cause."""
        found = CounterMetricFamily("cdc_assets_retries", "Retries by cause.", labels=["capture", "cause"])
        for cause, number in counts.retries().items():
            found.add_metric([self._capture, cause], number)
        yield found


class ReportGauges(Collector):
    """Gauges of the capture's report.

    Args:
        look_at: makes the report.
    """

    def __init__(self, look_at: LookAt) -> None:
        self._look_at = look_at
        self._lock = Lock()
        self._made: tuple[float, CaptureReport | None] | None = None

    def describe(self) -> list[Metric]:
        """Nothing: a report must not be made when the collector is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All gauges."""
        with self._lock:
            if self._made is None or time.monotonic() - self._made[0] >= REPORT_EVERY_S:
                self._made = (time.monotonic(), self._look_at())
            report = self._made[1]
        if report is not None:
            yield from _of_capture(report)
            yield from _of_databases(report)
            yield from _of_tables(report)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"cdc_assets_{name}", text, labels=["capture", *labels])


def _of_capture(report: CaptureReport) -> Iterator[Metric]:
    health = _gauge("health", "1 for the health that the capture has, 0 for the others.", "health")
    for name in HEALTHS:
        health.add_metric([report.capture, name], float(report.health == name))
    yield health
    troubles = _gauge("troubles", "Things that somebody has to look at.")
    troubles.add_metric([report.capture], len(report.troubles))
    yield troubles
    conditions = _gauge("captured_tables", "Tables by condition.", "condition")
    for name in CONDITIONS:
        conditions.add_metric([report.capture, name], report.counts().get(name, 0))
    yield conditions
    queue = _gauge("incremental_snapshot_tables", "Tables in the queue of incremental snapshots.")
    queue.add_metric([report.capture], len(report.queue))
    yield queue
    yield from _of_kafka(report)


def _of_kafka(report: CaptureReport) -> Iterator[Metric]:
    """Without values if nothing is written to Kafka, or if that could not be asked."""
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
        for cause, seconds in (
            ("capture job", database.lag.capture_job_s),
            ("poll", database.lag.poll_s),
            ("windows", database.lag.windows_s),
        ):
            if seconds is not None:
                lag.add_metric([*names, cause], seconds)
    yield from (connected, behind, lag, room)


def _of_tables(report: CaptureReport) -> Iterator[Metric]:
    streams = _gauge("table_streaming", "1 if the table streams, 0 otherwise.", "database", "table")
    headroom = _gauge("retention_headroom_seconds", "Time until unread changes are cleaned up.", "database", "table")
    snapshot = _gauge("snapshot_ratio", "Part of the rows of a snapshot that is read.", "database", "table")
    for table in report.tables:
        names = [report.capture, table.table.database, table.table.within_database]
        streams.add_metric(names, float(table.condition == "streaming"))
        if table.headroom_h is not None:
            headroom.add_metric(names, table.headroom_h * 3600)
        if table.percent is not None:
            snapshot.add_metric(names, table.percent / 100)
    yield from (streams, headroom, snapshot)
