"""The lake of a capture by an embedded connector, as its IO managers see it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import dagster as dg
import pyarrow as pa

from cdc_assets.config.engine import EngineConfig, engine_config_of, load_engine_config
from cdc_assets.config.settings import LakeSettings
from cdc_assets.defs.keys import table_and_role
from cdc_assets.engine.staging import HISTORY, history_directory
from cdc_assets.engine.topics import system_topics


@dataclass(frozen=True)
class ConnectorLake:
    """See `homes.Home`. Positions are numbers of batches, and a connector keeps its schema history in its own form."""

    config: EngineConfig
    has_lsns: bool = False
    history_columns: pa.Schema = HISTORY

    @classmethod
    def of(cls, config_file: str, properties: Mapping[str, Any]) -> Self:
        """The lake of a configuration.

        Raises:
            ConfigurationError: it cannot be read, or is invalid.
        """
        return cls(load_engine_config(Path(config_file)) if config_file else engine_config_of(properties))

    @property
    def lake(self) -> LakeSettings:
        """As `Home.lake`."""
        return self.config.lake

    @property
    def prefix(self) -> str:
        """As `Home.prefix`."""
        return self.config.topic_prefix

    def history(self, key: dg.AssetKey | None = None) -> str:
        """As `Home.history`."""
        del key
        return history_directory(self.prefix)

    def topic(self, key: dg.AssetKey) -> str:
        """As `Home.topic`, for assets without metadata."""
        if len(key.path) == 2 and (system := system_topics(self.config).get(key.path[1])):
            return system
        parts = list(table_and_role(key)[0])
        if (
            len(parts) == 4 and parts[0] == self.prefix
        ):  # prefix, database, schema, table: the connector's topic has no database
            del parts[1]
        return (self.config.properties.get("topic.delimiter") or ".").join(parts)
