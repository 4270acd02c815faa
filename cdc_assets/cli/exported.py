"""The metrics of `cdc-assets capture`: over HTTP and in a file, if the settings name a port or a file."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from cdc_assets.adapters.sqlserver.source import quick_source
from cdc_assets.assembly.publishing import ask_marker
from cdc_assets.capture.progress import OnProgress, Progress
from cdc_assets.cli.console import err
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import ConfigurationError
from cdc_assets.run.overview import CaptureReport, look_at


@contextmanager
def exported(settings: CaptureConfig) -> Iterator[OnProgress]:
    """Export metrics while the block runs; the function counts a commit.

    Raises:
        ConfigurationError: the extra `metrics` is not installed, or the port cannot be bound.
    """
    wanted = settings.metrics
    if not wanted.port and not wanted.textfile:
        yield lambda _: None
        return
    if find_spec("prometheus_client") is None:
        raise ConfigurationError(
            "metrics.port or metrics.textfile", "set", "the extra metrics", "pip install 'cdc-assets[metrics]'"
        )
    from cdc_assets.metrics import CaptureMetrics, MetricsServer, Textfile

    def look() -> CaptureReport:
        return look_at(settings, lambda: quick_source(settings), marker=ask_marker(settings))

    metrics = CaptureMetrics(settings.events.topic_prefix, look)
    with ExitStack() as open_:
        if wanted.port:
            try:
                server = open_.enter_context(MetricsServer(metrics, wanted.address, wanted.port))
            except OSError as error:
                raise ConfigurationError(
                    "metrics.port", f"{wanted.address}:{wanted.port}", "a free port", f"choose another: {error}"
                ) from error
            err.print(f"Metrics at http://{wanted.address}:{server.port}/metrics", soft_wrap=True)
        file = open_.enter_context(Textfile(metrics, Path(wanted.textfile))) if wanted.textfile else None

        def note(progress: Progress) -> None:
            metrics.note(progress)
            if file is not None:
                file.write_if_due()

        yield note
