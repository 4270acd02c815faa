"""The metrics of `cdc-assets capture`: over HTTP, in a file and by OpenTelemetry, as the settings say."""

from contextlib import AbstractContextManager

from cdc_assets.adapters.sqlserver.source import quick_source
from cdc_assets.assembly.publishing import ask_marker
from cdc_assets.capture.progress import OnProgress
from cdc_assets.cli.console import err
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.exports import exported_metrics
from cdc_assets.run.overview import CaptureReport, look_at


def exported(settings: CaptureConfig) -> AbstractContextManager[OnProgress]:
    """Export metrics while the block runs; the function counts a commit.

    Raises:
        ConfigurationError: an extra is not installed, or the port cannot be bound.
    """

    def look() -> CaptureReport:
        return look_at(settings, lambda: quick_source(settings), marker=ask_marker(settings))

    def served(port: int) -> None:
        err.print(f"Metrics at http://{settings.metrics.address}:{port}/metrics", soft_wrap=True)

    return exported_metrics(
        settings.metrics,
        settings.events.topic_prefix,
        look,
        served,
    )
