"""Puts what compares mirrors with the server together with its adapters."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.ports import TaskRunner
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.reconcile.run import Reconciler


@contextmanager
def open_reconciler(
    config: CaptureConfig,
    runner: TaskRunner,
    *,
    source: AbstractContextManager[SqlServerSource] | None = None,
    bulk: MssqlBulkSource | None = None,
) -> Iterator[tuple[CaptureMirrors, Reconciler]]:
    """The mirrors of a capture and what compares them with the server, closed at the end of the block.

    Args:
        source: the control plane, entered here; opened from the settings if None.
        bulk: the data plane; opened from the settings if None.

    Raises:
        ConfigurationError: the settings skip operations that mirrors need.
    """
    mirrors = CaptureMirrors(config, runner, SystemClock())
    with source or SqlServerSource.of(config) as control:
        rows = bulk or MssqlBulkSource.of(config)
        yield mirrors, Reconciler(config, control, rows, runner, SystemClock(), mirrors)
