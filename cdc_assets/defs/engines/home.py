"""The lake of a capture by an embedded connector, as its IO managers see it."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from cdc_assets.connectors.engine.staging import HISTORY, history_directory
from cdc_assets.connectors.engine.topics import system_topics
from cdc_assets.defs.configuration import engine_settings_of
from cdc_assets.defs.homes import CaptureLake
from cdc_assets.defs.keys import table_and_role


def lake_of_connector(config_file: str, properties: Mapping[str, Any]) -> CaptureLake:
    """The lake of a configuration. Positions are numbers of batches, and a connector keeps its schema history in its own form.

    Raises:
        ConfigurationError: it cannot be read, or is invalid.
    """
    config = engine_settings_of(config_file, properties)
    prefix = config.topic_prefix

    def named(key: dg.AssetKey) -> str:
        parts = list(table_and_role(key)[0])
        if len(parts) == 4 and parts[0] == prefix:  # prefix, database, schema, table: the topic has no database
            del parts[1]
        return config.delimiter.join(parts)

    system, history = system_topics(config), history_directory(prefix)
    return CaptureLake(config.lake, prefix, system, history, named, has_lsns=False, history_columns=HISTORY)
