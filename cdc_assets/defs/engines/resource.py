"""A capture by an embedded connector as a Dagster resource: settings, database, lake, and the engine itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_assets.adapters.databases.probe import open_probe
from cdc_assets.assembly.engine import run_engine, start_connector, with_waiting_signals
from cdc_assets.config.engine import EngineConfig, engine_config_of, load_engine_config, with_defaults
from cdc_assets.core.signal import Signal
from cdc_assets.engine.feed import EngineFeed, Offsets
from cdc_assets.engine.ledger import Batch
from cdc_assets.engine.overview import EngineOverview
from cdc_assets.engine.requested import RequestedSnapshot, with_file_channel
from cdc_assets.engine.run import EngineRun, EngineSummary
from cdc_assets.engine.source import WAKING, LogPoint, SourceProbe
from cdc_assets.engine.topics import notification_topic, with_notifications
from cdc_assets.errors import CdcError, ConfigurationError, EngineError
from cdc_assets.lake.audit import Turns
from cdc_assets.lake.topics import TopicTables


class ConnectorResource(dg.ConfigurableResource):  # type: ignore[type-arg] # the resource's value is the resource itself
    """A database that one of Debezium's connectors captures.

    Holds the path of the configuration, or properties with unresolved placeholders, so that no secret appears on
    Dagster's pages.
    """

    config_file: str = Field(default="", description="Debezium connector properties: JSON, properties or YAML.")
    properties: dict[str, Any] = Field(
        default={}, description="The properties themselves, with secrets as ${env:NAME}."
    )

    def settings(self) -> EngineConfig:
        """The settings, read now, with what runs by Dagster need.

        Heartbeats prove that the lake is complete up to a place of the log although nothing was changed there, and
        notifications announce snapshots. Both can be turned off by giving the properties.

        Raises:
            ConfigurationError: they cannot be read or are invalid.
        """
        read = load_engine_config(Path(self.config_file)) if self.config_file else engine_config_of(self.properties)
        if _reads_events_of_others(read):
            return read
        beat_ms = min(2000.0, 250 * read.idle_timeout_s) if read.idle_timeout_s else 2000.0
        beat = {"heartbeat.interval.ms": str(max(1, int(beat_ms)))}  # more often than a run counts as idle
        return with_notifications(with_defaults(read, beat | _without_waking(read)))

    @contextmanager
    def probe(self) -> Iterator[SourceProbe]:
        """A connection to the database for questions, closed at the end of the block.

        Raises:
            CdcError: the driver is not installed, or the database cannot be reached.
        """
        with open_probe(self.settings()) as probe:
            yield probe

    def overview(self, turns: Turns | None = None) -> EngineOverview:
        """What the lake says of the capture.

        Args:
            turns: of somebody who looks again and again.
        """
        return EngineOverview(self.settings(), turns=turns)

    def run(
        self,
        tables: TopicTables,
        tell: Callable[[Batch], None],
        *,
        idle_timeout_s: float | None = None,
        max_duration_s: float | None = None,
        signal: Signal | None = None,
        goal: LogPoint | None = None,
    ) -> EngineSummary:
        """Run the connector into the lake until nothing is new, or it has reached a goal.

        Args:
            tables: Delta tables to commit to.
            tell: called with each batch that is committed.
            idle_timeout_s: seconds without an event after which the run ends, instead of the configured ones; 0 is never.
            max_duration_s: seconds after which it ends, instead of the configured ones; 0 is never.
            signal: a request for a snapshot, which the run lasts for.
            goal: place of the log at which the run ends; not of events that others have read.

        Raises:
            CdcError: the connector has ended by itself, did not take the snapshot, or the lake cannot be written.
        """
        settings = self.settings()
        if idle_timeout_s is not None:
            settings = replace(settings, idle_timeout_s=idle_timeout_s)
        if max_duration_s is not None:
            settings = replace(settings, max_duration_s=max_duration_s)
        if signal is None and _reads_events_of_others(settings):
            return run_engine(settings, tables, tell)
        if signal is None:
            start = with_waiting_signals(settings, partial(start_connector, settings))
            return EngineRun(settings, tables, start, tell, goal=goal).run()
        return _run_with(settings, tables, tell, signal, self._nudge)

    def _nudge(self) -> None:
        """Let an idle connector read its signals; without a driver it does at the next change."""
        with suppress(CdcError), self.probe() as probe:
            probe.nudge()


def _reads_events_of_others(config: EngineConfig) -> bool:
    """Whether no connector runs here: the events are in topics or files (`config.reader`)."""
    return config.properties.get("connector.class", "").startswith("cdc_assets.")


def _without_waking(config: EngineConfig) -> dict[str, str]:
    """Messages that wake PostgreSQL's connector are no events, unless its messages are filtered in another way."""
    given = config.properties
    if config.kind != "postgresql" or "message.prefix.include.list" in given:
        return {}
    return {"message.prefix.exclude.list": WAKING}


def _run_with(
    settings: EngineConfig,
    tables: TopicTables,
    tell: Callable[[Batch], None],
    signal: Signal,
    nudge: Callable[[], None],
) -> EngineSummary:
    """A run that lasts until a requested snapshot is complete.

    Raises:
        ConfigurationError: the connector's notifications are turned off.
        EngineError: the snapshot was not taken.
    """
    if not (topic := notification_topic(settings)):
        raise ConfigurationError(
            "notification.enabled.channels",
            settings.properties.get("notification.enabled.channels"),
            "sink among them, by which the connector reports a snapshot",
            "remove the property, or add sink to it",
        )
    feeds: list[RequestedSnapshot] = []
    with TemporaryDirectory(prefix="cdc-signal-") as folder:
        path = Path(folder) / "signals.jsonl"
        signalled = with_file_channel(replace(settings, max_duration_s=0.0), path)

        def start(offsets: Offsets, history: Any) -> EngineFeed:
            feeds.append(RequestedSnapshot(start_connector(signalled, offsets, history), path, signal, topic, nudge))
            return feeds[-1]

        summary = EngineRun(signalled, tables, start, tell).run()
    if troubles := [text for feed in feeds for text in feed.troubles]:
        raise EngineError(f"The snapshot was not taken: {'; '.join(troubles)}. Next: see the connector's log.")
    return summary
