"""Puts a connector in the embedded engine, or a reader of its events, together with the lake."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from cdc_assets.adapters.kafka.source import KafkaSource
from cdc_assets.adapters.kafka.unread import unread
from cdc_assets.capture.new_lake import NewLake
from cdc_assets.config.engine import EngineConfig
from cdc_assets.config.reader import FILES, reader_settings
from cdc_assets.connectors.databases.probe import open_probe
from cdc_assets.connectors.debezium.engine import DebeziumEngine
from cdc_assets.connectors.engine.feed import EngineFeed, EngineStart, Habits, Offsets
from cdc_assets.connectors.engine.forwarded import ForwardedSignals
from cdc_assets.connectors.engine.ledger import Batch, BatchLedger
from cdc_assets.connectors.engine.run import EngineRun, EngineSummary
from cdc_assets.connectors.engine.signalled_run import (
    RequestedSnapshot,
    channels_of,
    signal_file,
    signals_in,
    takes_signals,
    with_file_channel,
)
from cdc_assets.connectors.engine.source import LogPoint
from cdc_assets.connectors.engine.topics import notification_topic, with_notifications
from cdc_assets.connectors.engine.unread import AskUnread, Unread
from cdc_assets.connectors.engine.watch import SourceWatch, WatchedFeed
from cdc_assets.connectors.reader.files import folder_of
from cdc_assets.connectors.reader.listing import unread_files
from cdc_assets.connectors.reader.opening import reader_for
from cdc_assets.core.signal import Signal
from cdc_assets.errors import ConfigurationError, EngineError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables
from cdc_assets.signals.inbox import Inbox


def new_engine_lake(config: EngineConfig) -> NewLake:
    """The lake of a connector's capture that has none any more."""
    tables = TopicTables(Location.of(config.lake), config.topic_prefix, config.lake)
    ledger = BatchLedger(tables, config.topic_prefix)
    return NewLake(tables, ledger.directory, ledger.claim)


def run_engine(
    config: EngineConfig, tables: TopicTables, on_batch: Callable[[Batch], None], goal: LogPoint | None = None
) -> EngineSummary:
    """Run a connector in the embedded engine, or read events that others wrote, until nothing is new.

    Args:
        on_batch: function called for each committed batch.
        goal: place of the log at which the run ends before; not of events that others wrote.

    Raises:
        CdcError: the source or the lake cannot be read or written, or a record of the source cannot.
    """
    if not config.is_reader:
        config = with_notifications(config) if takes_signals(config) else config  # they say what a signal has not read
        handed = list[Signal]()
        start = with_waiting_signals(config, partial(start_connector, config), handed)
        return EngineRun(config, tables, start, on_batch, goal=goal).run(handed)
    reader = reader_for(config.properties, tables, KafkaSource)
    habits = Habits(warm_up_s=0.0, repeats=False, stopped=lambda: reader.stopped)
    summary = EngineRun(config, tables, reader, on_batch, habits=habits).run()
    reader.check()
    return summary


def run_engine_for(
    signal: Signal,
    config: EngineConfig,
    tables: TopicTables,
    on_batch: Callable[[Batch], None],
    nudge: Callable[[], None],
) -> EngineSummary:
    """Run a connector until a requested snapshot is complete.

    Args:
        on_batch: function called for each committed batch.
        nudge: makes a connector in quiet read its signals.

    Raises:
        ConfigurationError: the connector's notifications are turned off.
        EngineError: the snapshot was not taken.
        CdcError: the source or the lake cannot be read or written.
    """
    if not (topic := notification_topic(config)):
        raise ConfigurationError(
            "notification.enabled.channels",
            config.properties.get("notification.enabled.channels"),
            "sink among them, by which the connector reports a snapshot",
            "remove the property, or add sink to it",
        )
    feeds, handed = list[RequestedSnapshot](), [signal]
    with TemporaryDirectory(prefix="cdc-signal-") as folder:
        path = Path(folder) / "signals.jsonl"
        signalled = with_file_channel(replace(config, max_duration_s=0.0), path)

        def start(offsets: Offsets, history: Sequence[str]) -> EngineFeed:
            feed = start_connector(signalled, offsets, history)
            feeds.append(RequestedSnapshot(feed, path, handed, topic, nudge))
            return feeds[-1]

        summary = EngineRun(signalled, tables, start, on_batch).run(handed)
    if troubles := [text for feed in feeds for text in feed.troubles]:
        raise EngineError(f"The snapshot was not taken. {' '.join(troubles)}")
    return summary


def ask_unread(config: EngineConfig) -> AskUnread | None:
    """Finds what was not read in topics or files of others; None if there is a database to query."""
    if not config.is_reader:
        return None

    def ask(offsets: Offsets) -> Unread:
        settings = reader_settings(config.properties)
        if settings.kind == FILES:
            folder = folder_of(settings.path, settings.options)
            return unread_files(folder, settings.pattern, offsets, config.name)
        return unread(settings, offsets)

    return ask


def start_connector(config: EngineConfig, offsets: Offsets, history: Sequence[str]) -> EngineFeed:
    """A connector in the embedded engine, with its database watched.

    Raises:
        EngineError: the extra `debezium` is not installed.
    """
    feed = DebeziumEngine(config, offsets, history)
    return WatchedFeed(feed, SourceWatch(partial(open_probe, config)))


def inbox_of(config: EngineConfig) -> Inbox:
    """Where signals wait in the lake for a run."""
    return Inbox(Location.of(config.lake), config.topic_prefix)


def with_waiting_signals(config: EngineConfig, start: EngineStart, handed: list[Signal]) -> EngineStart:
    """The start of a connector that also gets the signals that wait in the lake, if it reads a signal file.

    Args:
        handed: is given the signals that it gets by the file.
    """
    if "file" not in channels_of(config):
        return start

    def started(offsets: Offsets, history: Sequence[str]) -> EngineFeed:
        handed.extend(signals_in(signal_file(config)))
        feed = start(offsets, history)
        return ForwardedSignals(feed, inbox_of(config), signal_file(config), on_handed=handed.extend)

    return started
