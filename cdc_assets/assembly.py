"""Puts a capture together with its adapters; Dagster's resource and the command line both open it here.

The caller provides the task runner; a runner with threads needs neither pyspark nor Java.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TypeVar

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.debezium.engine import DebeziumEngine
from cdc_assets.adapters.kafka import kafka_channels
from cdc_assets.adapters.kafka_marker import KafkaMarker
from cdc_assets.adapters.kafka_producer import KafkaBroker
from cdc_assets.adapters.kafka_topics import KafkaSource
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.log_times import LogTimes
from cdc_assets.adapters.sqlserver.source import SqlServerSource, quick_source
from cdc_assets.capture.progress import OnProgress
from cdc_assets.config.engine import EngineConfig
from cdc_assets.config.reader import is_reader
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.schema import TableSchema
from cdc_assets.engine.ledger import Batch
from cdc_assets.engine.run import EngineRun, EngineSummary
from cdc_assets.errors import ConfigurationError, InvariantError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.apply import OnStep
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets.notifications import Listener
from cdc_assets.publish.feed import Feed
from cdc_assets.publish.follow import publish
from cdc_assets.publish.publisher import Commit, Publisher
from cdc_assets.publish.render import Renderer
from cdc_assets.publish.view import AskMarker
from cdc_assets.reader.opening import reader_for
from cdc_assets.reconcile.run import OnGroup, Reconciler
from cdc_assets.run.capture import Capture
from cdc_assets.run.reset import Reset

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def open_capture(
    config: CaptureConfig,
    runner: TaskRunner,
    on_progress: OnProgress,
    *,
    run_id: str = "",
    listener: Listener | None = None,
    tables: TopicTables | None = None,
    source: AbstractContextManager[SqlServerSource] | None = None,
    bulk: MssqlBulkSource | None = None,
) -> Iterator[Capture]:
    """A capture for one run, closed at the end of the block. No JVM is started until there are rows to read.

    Args:
        on_progress: function called for each committed window and round.
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
        yield Capture(config, control, rows, runner, SystemClock(), run_id, channels, listener, tables, on_progress)


def open_mirrors(config: CaptureConfig, runner: TaskRunner, on_step: OnStep) -> CaptureMirrors:
    """The mirrors of a capture; no JVM is started until there are events to apply.

    Args:
        on_step: function called after each step of a mirror.

    Raises:
        ConfigurationError: the settings skip operations that mirrors need.
    """
    return CaptureMirrors(config, runner, SystemClock(), on_step=on_step)


def open_reset(config: CaptureConfig) -> Reset:
    """What forgets positions of a capture; it asks the lake alone."""
    return Reset(config, SystemClock(), [MirrorTables.of(config).tables])


@contextmanager
def open_reconciler(
    config: CaptureConfig,
    runner: TaskRunner,
    on_group: OnGroup,
    *,
    source: AbstractContextManager[SqlServerSource] | None = None,
    bulk: MssqlBulkSource | None = None,
) -> Iterator[tuple[CaptureMirrors, Reconciler]]:
    """The mirrors of a capture and what compares them with the server, closed at the end of the block.

    Args:
        on_group: function called after each group of key ranges.
        source: the control plane, entered here; opened from the settings if None.
        bulk: the data plane; opened from the settings if None.

    Raises:
        ConfigurationError: the settings skip operations that mirrors need.
    """
    mirrors = CaptureMirrors(config, runner, SystemClock())
    with source or SqlServerSource.of(config) as control:
        rows = bulk or MssqlBulkSource.of(config)
        yield mirrors, Reconciler(config, control, rows, runner, SystemClock(), mirrors, on_group)


def publish_topics(
    config: CaptureConfig,
    on_commit: Callable[[Commit], None],
    *,
    follow: bool,
    after: str = "",
    ends: Callable[[], bool] = lambda: False,
) -> Mapping[str, str]:
    """Write the topics of the lake to Kafka until nothing is new, or without end.

    Args:
        on_commit: function called after each transaction.
        follow: whether to wait for more.
        after: commit LSN after which events are published, if none were published yet; empty for all.
        ends: whether nothing more is to be waited for from now on, neither for events nor for the broker.

    Returns:
        Topics that are stopped, with the reason.

    Raises:
        ConfigurationError: no broker is given, or records are wanted in a form that is not supported.
        FencedError: another publisher has taken over.
        CdcError: the lake cannot be read, or the broker was away for too long.
    """
    settings = config.kafka
    if not settings.servers:
        raise ConfigurationError("bootstrap.servers", None, "host:port of a broker", "add it to the configuration")
    if settings.problem:
        name, value, supported = settings.problem
        raise ConfigurationError(name, value, f"{supported}, to publish to Kafka", "change it, or leave it out")
    broker = KafkaBroker(settings, config.events.topic_prefix)
    feed = Feed(config, TopicTables.of(config))
    renderer = Renderer(settings, config.text)
    publisher = Publisher(feed, broker, renderer, settings.transaction_rows, on_commit, after)
    publish(
        publisher,
        feed,
        follow=follow,
        pause_s=config.streaming.retry_wait_s,
        most_retries=config.streaming.max_retries,
        close=broker.close,
        ends=ends,
    )
    return publisher.stopped


def ask_marker(config: CaptureConfig) -> AskMarker | None:
    """What asks for the newest marker of the topics in Kafka; None if nothing is written to Kafka."""
    if not config.kafka.servers:
        return None
    return lambda: KafkaMarker(config.kafka, config.events.topic_prefix).newest()


def discover(config: CaptureConfig) -> Sequence[TableSchema]:
    """Query the structures of the captured tables now; waits a few seconds at most.

    Raises:
        CdcError: the server cannot be queried, or no table matches the filters.
    """
    with quick_source(config) as source:
        return Capture(config, source, MssqlBulkSource.of(config), _NoRunner(), SystemClock()).discover()


def run_engine(config: EngineConfig, tables: TopicTables, on_batch: Callable[[Batch], None]) -> EngineSummary:
    """Run a connector in the embedded engine, or read events that others wrote, until nothing is new.

    Args:
        on_batch: function called for each committed batch.

    Raises:
        CdcError: the source or the lake cannot be read or written, or a record of the source cannot.
    """
    if not is_reader(config.properties.get("connector.class", "")):
        return EngineRun(config, tables, partial(DebeziumEngine, config), on_batch).run()
    reader = reader_for(config.properties, tables, KafkaSource)
    summary = EngineRun(config, tables, reader, on_batch, 0.0, repeats=False).run()
    reader.check()
    return summary


@contextmanager
def open_adoption(config: CaptureConfig) -> Iterator[tuple[Capture, LogTimes, SqlServerSource]]:
    """A capture that takes over from another reader, the times of the server's commits, and the server.

    Raises:
        CdcError: the server cannot be reached.
    """
    with SqlServerSource.of(config) as control:
        capture = Capture(config, control, MssqlBulkSource.of(config), _NoRunner(), SystemClock())
        yield capture, LogTimes(control), control


class _NoRunner:
    """Task runner of a capture that only answers queries."""

    parallelism = 1

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        raise InvariantError("This capture cannot run tasks. Next: report this.")
