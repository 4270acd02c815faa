"""The metrics of `cdc-assets capture`: over HTTP, in a file and by OpenTelemetry, as the settings say."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from cdc_assets.adapters.databases.probe import is_asked, open_probe
from cdc_assets.adapters.sqlserver.source import quick_source
from cdc_assets.assembly.publishing import ask_marker
from cdc_assets.cli.console import err
from cdc_assets.config.engine import EngineConfig
from cdc_assets.config.settings import CaptureConfig, MetricsSettings
from cdc_assets.engine.overview import EngineOverview
from cdc_assets.metrics.exports import OnCommit, exported_metrics
from cdc_assets.run.overview import CaptureReport, look_at
from cdc_assets.run.overview.engine import look_at_engine


def exported(settings: CaptureConfig) -> AbstractContextManager[OnCommit]:
    """Export metrics while the block runs; the function counts a commit.

    Raises:
        ConfigurationError: an extra is not installed, or the port cannot be bound.
    """

    def look() -> CaptureReport:
        return look_at(settings, lambda: quick_source(settings), marker=ask_marker(settings))

    return _exported(settings.metrics, settings.events.topic_prefix, look)


def engine_exported(config: EngineConfig) -> AbstractContextManager[OnCommit]:
    """The same for a capture by another connector.

    Raises:
        ConfigurationError: an extra is not installed, or the port cannot be bound.
    """

    def look() -> CaptureReport:
        return look_at_engine(EngineOverview(config), partial(open_probe, config) if is_asked(config) else None)

    return _exported(config.metrics, config.topic_prefix, look)


def _exported(
    settings: MetricsSettings, prefix: str, look: Callable[[], CaptureReport]
) -> AbstractContextManager[OnCommit]:
    def served(port: int) -> None:
        err.print(f"Metrics at http://{settings.address}:{port}/metrics", soft_wrap=True)

    return exported_metrics(settings, prefix, look, served)
