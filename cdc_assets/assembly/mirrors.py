"""Puts the mirrors of a capture together with their adapters, and what forgets positions of both."""

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.capture.reset import Reset
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.ran_on import JobAccount
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets.mirror.work import OnStep


def open_mirrors(
    config: CaptureConfig, runner: TaskRunner, on_step: OnStep, account: JobAccount | None = None
) -> CaptureMirrors:
    """The mirrors of a capture; no JVM is started until there are events to apply.

    Args:
        on_step: function called after each step of a mirror.
        account: where their jobs are counted; of a run that opens them several times.

    Raises:
        ConfigurationError: the settings skip operations that mirrors need.
    """
    return CaptureMirrors(config, runner, SystemClock(), on_step=on_step, account=account)


def open_reset(config: CaptureConfig) -> Reset:
    """Removes positions of a capture from the record; it reads only the lake."""
    return Reset(config, SystemClock(), [MirrorTables.of(config).tables])
