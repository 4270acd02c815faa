"""The same metrics by OpenTelemetry: observable instruments that read the registry of `CaptureMetrics`, pushed by OTLP over HTTP.

Nothing is counted twice: an instrument has no number of its own. Names, labels and meanings are those of `docs/metrics.md`; a
counter's name lacks Prometheus's ending `_total`. Where metrics go, how often, and with which headers is said by the
specification's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_METRIC_EXPORT_INTERVAL`, …), which the SDK reads.

*The end of a run that fails.* What is pushed last stands in the collector until somebody pushes again. So the last push of such a run
says that the health is not known, whatever it was a few seconds before.

*A collector that is away* costs a line in the log and never a capture: exports are made by a thread of the SDK.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import chain
from threading import Lock
from types import TracebackType
from typing import Final, Self

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client.metrics_core import Metric

from cdc_assets.metrics.capture_metrics import CaptureMetrics
from cdc_assets.metrics.gauges import MakeReport, ReportGauges
from cdc_assets.overview.report import CaptureReport

_FRESH_S: Final = 1.0
"""Instruments that are read within this time, which are those of one export, are answered from one collection."""
_LAST_EXPORT_MS: Final = 5000
_LAST_REPORT_S: Final = 3.0
_HEALTH: Final = "cdc_assets_health"


class Telemetry:
    """Pushes the metrics of one capture while the block runs, and once at its end.

    Args:
        make_report: makes a report, if the metrics have none of their own.
        reader: what collects and exports; OTLP over HTTP if None.
    """

    def __init__(
        self, metrics: CaptureMetrics, make_report: MakeReport | None = None, reader: MetricReader | None = None
    ) -> None:
        self._metrics, self._gauges = metrics, ReportGauges(metrics.capture, make_report or _no_report)
        self._lock = Lock()
        self._collected: tuple[float, dict[str, Metric]] = (float("-inf"), {})
        self._has_failed = False
        resource = Resource.create({"service.name": "cdc-assets"})  # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
        self._provider = MeterProvider(
            [reader or PeriodicExportingMetricReader(OTLPMetricExporter())], resource=resource, shutdown_on_exit=False
        )
        meter = self._provider.get_meter("cdc_assets")
        for family in _families():
            make = meter.create_observable_counter if family.type == "counter" else meter.create_observable_gauge
            make(family.name, [self._observer(family.name)], _unit(family.name), family.documentation)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for gauges in (self._gauges, self._metrics):  # the end of a run does not wait for a report that hangs
            gauges.hurry(_LAST_REPORT_S)
        with self._lock:
            self._has_failed = error is not None
            self._collected = float("-inf"), {}
        self._provider.shutdown(_LAST_EXPORT_MS)

    def _observer(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Sequence[Observation]:
            family = self._collect().get(name)
            samples = family.samples if family is not None else ()
            own = (sample for sample in samples if sample.name in (name, f"{name}_total"))
            return [Observation(sample.value, sample.labels) for sample in own]

        return observe

    def _collect(self) -> dict[str, Metric]:
        with self._lock:
            if time.monotonic() - self._collected[0] > _FRESH_S:
                found = chain(self._gauges.collect(), self._metrics.registry.collect())
                families = {family.name: family for family in found}
                if self._has_failed and _HEALTH in families:
                    families[_HEALTH] = _not_known(families[_HEALTH])
                self._collected = time.monotonic(), families
            return self._collected[1]


def _no_report() -> None:
    return None


def _not_known(health: Metric) -> Metric:
    found = Metric(health.name, health.documentation, health.type)
    for sample in health.samples:
        found.add_sample(sample.name, sample.labels, float(sample.labels["health"] == "not known"))
    return found


def _families() -> Sequence[Metric]:
    """All metrics that a capture may have, without a number."""
    empty = CaptureReport("", datetime.now(UTC))
    return list(CaptureMetrics("", lambda: empty).registry.collect())


def _unit(name: str) -> str:
    return {"seconds": "s", "bytes": "By", "ratio": "1"}.get(name.rpartition("_")[2], "")
