"""Metrics of Dagster's runs: a file for the node exporter's textfile collector, if `metrics.textfile` names one."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from cdc_assets.capture.progress import OnProgress, Progress
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import ConfigurationError


@contextmanager
def written_metrics(config: CaptureConfig) -> Iterator[OnProgress]:
    """Write the metrics of a run while the block runs and at its end; the function counts a commit.

    Raises:
        ConfigurationError: the extra `metrics` is not installed.
    """
    if not config.metrics.textfile:
        yield lambda _: None
        return
    if find_spec("prometheus_client") is None:
        raise ConfigurationError(
            "metrics.textfile", config.metrics.textfile, "the extra metrics", "pip install 'cdc-assets[metrics]'"
        )
    from cdc_assets.metrics import CaptureMetrics, Textfile

    metrics = CaptureMetrics(config.events.topic_prefix)
    with Textfile(metrics, Path(config.metrics.textfile)) as file:

        def note(progress: Progress) -> None:
            metrics.note(progress)
            file.write_if_due()

        yield note
