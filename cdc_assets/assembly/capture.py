"""Puts a capture together with its adapters; Dagster's resource and the command line both open it here.

The caller provides the task runner; a runner with threads needs neither pyspark nor Java.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.kafka.signals import kafka_channels
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource, quick_source
from cdc_assets.assembly.retention import make_retention
from cdc_assets.capture.capture import Capture, RunOptions
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.jobs import Job
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.schema import TableSchema
from cdc_assets.errors import InvariantError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.shared.progress import OnProgress, OnRead, RangesRead
from cdc_assets.system_topics.notifications import Listener

T = TypeVar("T")
R = TypeVar("R")


def _ignore(_: RangesRead) -> None:
    pass


@contextmanager
def open_capture(
    config: CaptureConfig,
    runner: TaskRunner,
    on_progress: OnProgress,
    *,
    on_read: OnRead = _ignore,
    run_id: str = "",
    listener: Listener | None = None,
    tables: TopicTables | None = None,
    source: AbstractContextManager[SqlServerSource] | None = None,
    bulk: MssqlBulkSource | None = None,
) -> Iterator[Capture]:
    """A capture for one run, closed at the end of the block. No JVM is started until there are rows to read.

    Args:
        on_progress: function called for each committed window and round.
        on_read: function called after each snapshot of a table, or of some of its ranges.
        run_id: run id in the context headers of events; generated if empty.
        listener: function called with every notification.
        tables: Delta tables of the lake; opened from the settings if None.
        source: the control plane, entered here; opened from the settings if None.
        bulk: the data plane; opened from the settings if None.

    Raises:
        ConfigurationError: the extra `kafka` is not installed, or its client does not accept an option.
    """
    rows = bulk or MssqlBulkSource.of(config)
    with source or SqlServerSource.of(config) as control, kafka_channels(config) as channels:
        options = RunOptions(run_id, channels, listener, tables, on_progress, on_read, make_retention)
        yield Capture(config, control, rows, runner, SystemClock(), options)


def discover(config: CaptureConfig) -> Sequence[TableSchema]:
    """Query the structures of the captured tables now; waits a few seconds at most.

    Raises:
        CdcError: the server cannot be queried, or no table matches the filters.
    """
    with quick_source(config) as source:
        return without_runner(config, source).discover()


def without_runner(config: CaptureConfig, source: SqlServerSource) -> Capture:
    """A capture that only answers queries, and records."""
    return Capture(config, source, MssqlBulkSource.of(config), _NoRunner(), SystemClock())


class _NoRunner:
    """Task runner of a capture that only answers queries."""

    parallelism, may_start_twice = 1, False

    def get_ready(self) -> None:
        """It has no work."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T], job: Job) -> list[R]:
        raise InvariantError("This capture cannot run tasks. Next: report this.")
