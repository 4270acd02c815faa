"""The metrics of `cdc-assets capture`: over HTTP, in a file and by OpenTelemetry, as the settings say.

Each look reads the settings anew, as the capture does before each attempt: a password that was changed is followed by both, and
none that was refused is offered for ever.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Generic, TypeVar

from cdc_assets.adapters.databases.probe import is_asked, open_probe
from cdc_assets.adapters.sqlserver.source import quick_source
from cdc_assets.assembly.engine import ask_unread
from cdc_assets.assembly.publishing import ask_marker
from cdc_assets.cli.console import err
from cdc_assets.config.engine import EngineConfig
from cdc_assets.config.settings import CaptureConfig, MetricsSettings
from cdc_assets.engine.overview import EngineOverview
from cdc_assets.errors import ConfigurationError
from cdc_assets.metrics.exports import OnCommit, exported_metrics
from cdc_assets.overview import CaptureReport, look_at
from cdc_assets.overview.engine import look_at_engine

S = TypeVar("S")


class _Newest(Generic[S]):
    """The settings as they are now, or, while they cannot be read, as they were."""

    def __init__(self, settings: S, read: Callable[[], S]) -> None:
        self._settings, self._read = settings, read

    def __call__(self) -> S:
        with suppress(ConfigurationError):  # their file is being written
            self._settings = self._read()
        return self._settings


def exported(settings: CaptureConfig, read: Callable[[], CaptureConfig]) -> AbstractContextManager[OnCommit]:
    """Export metrics while the block runs; the function counts a commit.

    Args:
        read: reads the settings anew; which metrics there are, and where, is not changed by it.

    Raises:
        ConfigurationError: an extra is not installed, or the port cannot be bound.
    """
    newest = _Newest(settings, read)

    def look() -> CaptureReport:
        now = newest()
        return look_at(now, lambda: quick_source(now), marker=ask_marker(now))

    return _exported(settings.metrics, settings.events.topic_prefix, look)


def engine_exported(config: EngineConfig, read: Callable[[], EngineConfig]) -> AbstractContextManager[OnCommit]:
    """The same for a capture by another connector.

    Raises:
        ConfigurationError: an extra is not installed, or the port cannot be bound.
    """
    newest = _Newest(config, read)

    def look() -> CaptureReport:
        now = newest()
        probe = partial(open_probe, now) if is_asked(now) else None
        return look_at_engine(EngineOverview(now), probe, ask_unread=ask_unread(now))

    return _exported(config.metrics, config.topic_prefix, look)


def _exported(
    settings: MetricsSettings, prefix: str, look: Callable[[], CaptureReport]
) -> AbstractContextManager[OnCommit]:
    def served(port: int) -> None:
        err.print(f"Metrics at http://{settings.address}:{port}/metrics", soft_wrap=True)

    return exported_metrics(settings, prefix, look, served)
