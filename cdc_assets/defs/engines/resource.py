"""A capture by an embedded connector as a Dagster resource: settings, database, lake, and the engine itself."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_assets.assembly.engine import run_engine, run_engine_for
from cdc_assets.config.engine import EngineConfig, with_defaults
from cdc_assets.connectors.databases.probe import open_probe
from cdc_assets.connectors.engine.ledger import Batch
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.connectors.engine.run import EngineSummary
from cdc_assets.connectors.engine.source import WAKING, LogPoint, SourceProbe
from cdc_assets.connectors.engine.topics import with_notifications
from cdc_assets.core.signal import Signal
from cdc_assets.defs.configuration import engine_settings_of
from cdc_assets.errors import CdcError
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
        read = engine_settings_of(self.config_file, self.properties)
        if read.is_reader:
            return read
        beat_ms = min(2000.0, 250 * read.idle_timeout_s) if read.idle_timeout_s else 2000.0
        own = {"heartbeat.interval.ms": str(max(1, int(beat_ms)))}  # more often than a run counts as idle
        if read.kind == "postgresql" and "message.prefix.include.list" not in read.properties:
            own["message.prefix.exclude.list"] = WAKING  # what wakes the connector is no event
        return with_notifications(with_defaults(read, own))

    def probe(self) -> AbstractContextManager[SourceProbe]:
        """A connection to the database for questions; see `open_probe`."""
        return open_probe(self.settings())

    def overview(self, turns: Turns | None = None) -> EngineOverview:
        """What the lake says of the capture; see `EngineOverview`."""
        return EngineOverview(self.settings(), turns=turns)

    def run(
        self,
        tables: TopicTables,
        on_batch: Callable[[Batch], None],
        *,
        limits: Mapping[str, Any] | None = None,
        signal: Signal | None = None,
        goal: LogPoint | None = None,
    ) -> EngineSummary:
        """Run the connector into the lake until nothing is new, or up to a goal, or until a snapshot is taken; see `assembly.engine`.

        Args:
            limits: when the run ends, instead of the configured times: fields of the settings.
            signal: a request for a snapshot, which the run lasts for.
        """
        settings = replace(self.settings(), **(limits or {}))
        if signal is None:
            return run_engine(settings, tables, on_batch, goal)
        return run_engine_for(signal, settings, tables, on_batch, self._nudge)

    def _nudge(self) -> None:
        """Let an idle connector read its signals; without a driver it does at the next change."""
        with suppress(CdcError), self.probe() as probe:
            probe.nudge()
