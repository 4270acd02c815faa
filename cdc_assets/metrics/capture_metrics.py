"""Metrics of one capture: counters of what it commits, and the gauges of its report (`gauges`).

*Counters* grow with committed windows and rounds, so nothing that is given up is counted; they begin at zero with each
process, which `rate()` expects.

*Bounded labels.* Capture, database, table, and words from fixed lists. No value, key or text of an error is a label.
"""

from collections.abc import Iterator
from threading import Lock
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cdc_assets.core import task_counters
from cdc_assets.metrics.gauges import MakeReport, ReportGauges
from cdc_assets.shared.progress import Commit

OPERATIONS: Final = {"r": "read", "c": "create", "u": "update", "d": "delete", "t": "truncate"}
"""Value of the label `operation` by envelope operation; tombstones and others keep their name."""

_TABLE = ("capture", "database", "table")
_DATABASE = ("capture", "database")


class CaptureMetrics:
    """The metrics of one capture in one process; a listener of its progress.

    Args:
        capture: value of the label `capture`.
        make_report: makes the report; None exports no gauges of it.
    """

    def __init__(self, capture: str, make_report: MakeReport | None = None) -> None:
        self.capture = capture
        self.registry, self._counted = CollectorRegistry(), CollectorRegistry()
        self._lock = Lock()

        def counter(name: str, text: str, labels: tuple[str, ...]) -> Counter:
            made = Counter(f"cdc_assets_{name}", text, labels, registry=self._counted)
            self.registry.register(made)
            return made

        def gauge(name: str, text: str, labels: tuple[str, ...]) -> Gauge:
            made = Gauge(f"cdc_assets_{name}", text, labels, registry=self._counted)
            self.registry.register(made)
            return made

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
        for registry in (self.registry, self._counted):
            registry.register(_Retries(capture))
        self._gauges = ReportGauges(capture, make_report) if make_report is not None else None
        if self._gauges is not None:
            self.registry.register(self._gauges)

    def hurry(self, seconds: float) -> None:
        """See `ReportGauges`."""
        if self._gauges is not None:
            self._gauges.hurry(seconds)

    def note(self, progress: Commit) -> None:
        """Count a committed window, round or batch."""
        with self._lock:
            self._note(progress)

    def _note(self, progress: Commit) -> None:
        database = (self.capture, progress.database)
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
            (self._transactions, task_counters.TRANSACTIONS),
            (self._unchanged, task_counters.UNCHANGED),
            (self._nulled, task_counters.NULLED),
            (self._unavailable, task_counters.UNAVAILABLE),
        ):
            metric.labels(*database).inc(progress.counts.get(name, 0))
        if progress.lag_s is not None:
            self._lag.labels(*database).set(progress.lag_s)
        if progress.slices:
            self._slices.labels(*database).set(progress.slices)
            self._done.labels(*database).set(progress.slices_done)

    def text(self, *, with_report: bool) -> bytes:
        """All metrics in Prometheus's own format.

        Args:
            with_report: whether the gauges of a report are among them, which may have to be made.
        """
        return generate_latest(self.registry if with_report else self._counted)


class _Retries(Collector):
    def __init__(self, capture: str) -> None:
        self._capture = capture

    def collect(self) -> Iterator[Metric]:
        """Retries of the process by cause."""
        found = CounterMetricFamily("cdc_assets_retries", "Retries by cause.", labels=["capture", "cause"])
        for cause, number in task_counters.retries().items():
            found.add_metric([self._capture, cause], number)
        yield found
