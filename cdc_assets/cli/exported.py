"""The metrics of `cdc-assets capture`: over HTTP, in a file and by OpenTelemetry, as the settings say.

Each look reads the settings again, as the capture does before each attempt: a password that was changed is followed by both, and
none that was refused is offered for ever.

*Settings that cannot be read any more* are trouble, though the capture goes on with those before: it could not begin again. A look at a file that
is being written says so, too, and the next one does not.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from cdc_assets.cli.console import err
from cdc_assets.cli.read import inspect_capture
from cdc_assets.config.engine import EngineConfig
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import ConfigurationError
from cdc_assets.metrics.exports import OnCommit, exported_metrics
from cdc_assets.overview.report import CaptureReport, Trouble

Settings = CaptureConfig | EngineConfig


class _Newest:
    """Looks at the capture by the settings as they are now; while they cannot be read, by those before, which is trouble."""

    def __init__(self, settings: Settings, read: Callable[[], Settings]) -> None:
        self._settings = settings
        self._read = read

    def __call__(self) -> CaptureReport:
        troubles: tuple[Trouble, ...] = ()
        try:
            self._settings = self._read()
        except ConfigurationError as error:
            what = f"The configuration cannot be read; the capture goes on with the one before: {error}"
            troubles = (Trouble("The configuration", what),)
        report = inspect_capture(self._settings).report
        return replace(report, troubles=(*troubles, *report.troubles))


def exported(
    settings: Settings, read: Callable[[], Settings], port: int | None = None
) -> AbstractContextManager[OnCommit]:
    """Export metrics while the block runs; the function counts a commit.

    Args:
        read: reads the settings again; which metrics there are, and where, is not changed by it.
        port: where they are served, instead of the configured one.

    Raises:
        ConfigurationError: an extra is not installed, or the port cannot be bound.
    """
    metrics = settings.metrics if port is None else replace(settings.metrics, port=port)
    prefix = settings.events.topic_prefix if isinstance(settings, CaptureConfig) else settings.topic_prefix

    def served(port: int) -> None:
        err.print(f"Metrics at http://{metrics.address}:{port}/metrics", soft_wrap=True)

    return exported_metrics(metrics, prefix, _Newest(settings, read), served)
