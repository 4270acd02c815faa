"""Topic tables of other connectors as inputs and outputs of Spark assets."""

from functools import cached_property
from pathlib import Path

import dagster as dg
from pydantic import PrivateAttr

from cdc_assets.config.engine import EngineConfig, engine_config_of, load_engine_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.defs.envelope_io import EnvelopeIOManager
from cdc_assets.defs.keys import table_and_role
from cdc_assets.engine.topics import system_topics
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.location import Location
from cdc_assets.lake.topics import TopicTables


class ConnectorIOManager(EnvelopeIOManager):
    """Loads topic tables of a capture by an embedded connector as Spark data frames, and appends data frames to them.

    `from_lsn` and `to_lsn` are SQL Server's and refused here: positions of these tables are numbers of batches.
    """

    _tables: TopicTables | None = PrivateAttr(default=None)

    @cached_property
    def _settings(self) -> EngineConfig:
        if self.from_lsn or self.to_lsn:
            raise ConfigurationError(
                "from_lsn", self.from_lsn or self.to_lsn, "nothing: these tables have no LSNs", "remove it"
            )
        return load_engine_config(Path(self.config_file)) if self.config_file else engine_config_of(self.properties)

    @cached_property
    def _config(self) -> CaptureConfig | None:
        return None

    def tables(self, application: str) -> TopicTables:
        """The lake's tables; `application` identifies the writer in commits."""
        settings = self._settings.lake
        return TopicTables(Location.of(settings), application, settings)

    def sink(self) -> TopicTables:
        """The tables that a run commits its batches to."""
        if self._tables is None:
            self._tables = self.tables(self._settings.topic_prefix)
        return self._tables

    def topic(self, key: dg.AssetKey) -> str:
        """The topic of an asset key without metadata; also of the assets of the capture as a whole."""
        config = self._settings
        if len(key.path) == 2 and (system := system_topics(config).get(key.path[1])):
            return system
        parts = list(table_and_role(key)[0])
        if len(parts) == 4:  # prefix, database, schema, table: the connector's topic has no database
            del parts[1]
        return (config.properties.get("topic.delimiter") or ".").join(parts)
