"""Exports the metrics of a run in every way that the settings request; the packages for it are extras.

Dagster's runs and `cdc-assets capture` share it. A port is served by the command only: runs come and go.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from cdc_assets.config.settings import MetricsSettings
from cdc_assets.errors import ConfigurationError
from cdc_assets.overview import CaptureReport
from cdc_assets.shared.progress import Commit

MakeReport = Callable[[], CaptureReport | None]
OnCommit = Callable[[Commit], None]


@contextmanager
def exported_metrics(
    settings: MetricsSettings,
    prefix: str,
    make_report: MakeReport,
    serve: Callable[[int], None] | None = None,
) -> Iterator[OnCommit]:
    """Export metrics while the block runs, and once more at its end; the function counts a commit.

    Args:
        prefix: value of the label `capture`.
        make_report: makes the report; None if there is none yet.
        serve: called with the port, if one is served; None serves none, and writes no gauges of health into a file, which
            nothing would correct once the run has ended.

    Raises:
        ConfigurationError: an extra is not installed, or the port cannot be bound.
    """
    served = settings.port if serve is not None else 0
    if not served and not settings.textfile and not settings.otlp:
        yield lambda _: None
        return
    if settings.otlp:
        _require("opentelemetry.exporter.otlp.proto.http", "metrics.otlp", "otel")
    _require("prometheus_client", "metrics.port or metrics.textfile", "metrics")
    from cdc_assets.metrics.capture_metrics import CaptureMetrics
    from cdc_assets.metrics.prometheus import MetricsServer, Textfile

    metrics = CaptureMetrics(prefix, make_report if serve is not None else None)
    with ExitStack() as open_:
        if settings.textfile:
            open_.enter_context(Textfile(metrics, Path(settings.textfile)))
        if served:
            assert serve is not None  # noqa: S101 - there is no port otherwise
            try:
                server = open_.enter_context(MetricsServer(metrics, settings.address, served))
            except OSError as error:
                raise ConfigurationError(
                    "metrics.port", f"{settings.address}:{served}", "a free port", f"choose another: {error}"
                ) from error
            serve(server.port)
        if settings.otlp:
            from cdc_assets.metrics.otlp import Telemetry

            open_.enter_context(Telemetry(metrics, None if serve is not None else make_report))
        yield metrics.note


def _require(package: str, name: str, extra: str) -> None:
    try:
        there = find_spec(package) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        raise ConfigurationError(name, "set", f"the extra {extra}", f"pip install 'cdc-assets[{extra}]'")
