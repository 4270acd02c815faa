"""The metrics of `cdc-assets capture`: over HTTP, in a file and by OpenTelemetry, as the settings say.

Each look reads the settings again, as the capture does before each attempt: a password that was changed is followed by both, and
none that was refused is offered for ever.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from cdc_assets.cli.console import err
from cdc_assets.cli.read import inspect_capture
from cdc_assets.config.engine import EngineConfig
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import ConfigurationError
from cdc_assets.metrics.exports import OnCommit, exported_metrics

Settings = CaptureConfig | EngineConfig


class _Newest:
    """The settings as they are now, or, while they cannot be read, as they were."""

    def __init__(self, settings: Settings, read: Callable[[], Settings]) -> None:
        self._settings = settings
        self._read = read

    def __call__(self) -> Settings:
        with suppress(ConfigurationError):  # their file is being written
            self._settings = self._read()
        return self._settings


def exported(settings: Settings, read: Callable[[], Settings]) -> AbstractContextManager[OnCommit]:
    """Export metrics while the block runs; the function counts a commit.

    Args:
        read: reads the settings again; which metrics there are, and where, is not changed by it.

    Raises:
        ConfigurationError: an extra is not installed, or the port cannot be bound.
    """
    newest, metrics = _Newest(settings, read), settings.metrics
    prefix = settings.events.topic_prefix if isinstance(settings, CaptureConfig) else settings.topic_prefix

    def served(port: int) -> None:
        err.print(f"Metrics at http://{metrics.address}:{port}/metrics", soft_wrap=True)

    return exported_metrics(metrics, prefix, lambda: inspect_capture(newest()).report, served)
