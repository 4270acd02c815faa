"""Where the tables of IO managers are, and what their topics are called: of a capture, of a connector's, or of neither."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import dagster as dg
import pyarrow as pa

from cdc_assets.config.settings import CaptureConfig, EventSettings, LakeSettings
from cdc_assets.defs.configuration import is_of_connector, settings_of
from cdc_assets.defs.keys import table_and_role
from cdc_assets.envelope.naming import sanitized
from cdc_assets.history.store import SCHEMA
from cdc_assets.lake.system_topics import history_directory, system_topics


class Home(Protocol):
    """A lake, as the IO managers of one capture see it."""

    @property
    def lake(self) -> LakeSettings:
        """Its place."""

    @property
    def prefix(self) -> str:
        """Topic prefix of the capture; empty if there is no configuration of one."""

    @property
    def has_lsns(self) -> bool:
        """Whether positions in its topics are LSNs."""

    @property
    def history_columns(self) -> pa.Schema:
        """Columns of the schema history."""

    def history(self, key: dg.AssetKey | None = None) -> str:
        """Directory of the schema history; without a configuration, of the capture that an asset's key names."""

    def topic(self, key: dg.AssetKey) -> str:
        """Topic of an asset's key, also of the assets of the capture as a whole if there is a configuration."""


@dataclass(frozen=True)
class BareLake:
    """A lake only: names follow from the keys of assets."""

    lake: LakeSettings
    delimiter: str
    prefix: str = ""
    has_lsns: bool = True
    history_columns: pa.Schema = SCHEMA

    def history(self, key: dg.AssetKey | None = None) -> str:
        """As `Home.history`."""
        return history_directory(key.path[0] if key else self.prefix)

    def topic(self, key: dg.AssetKey) -> str:
        """As `Home.topic`."""
        return _topic(key, EventSettings(key.path[0], self.delimiter))


@dataclass(frozen=True)
class CaptureLake:
    """The lake of a capture.

    Args:
        system: directories of the tables that belong to the capture as a whole, by short name.
        own_history: directory of the schema history.
        named: topic of the asset of a table, by its key.
    """

    lake: LakeSettings
    prefix: str
    system: Mapping[str, str]
    own_history: str
    named: Callable[[dg.AssetKey], str]
    has_lsns: bool = True
    history_columns: pa.Schema = SCHEMA

    @classmethod
    def of(cls, config: CaptureConfig) -> Self:
        """That of a capture from SQL Server."""
        prefix = config.events.topic_prefix
        system, history = system_topics(config), history_directory(prefix)
        return cls(config.lake, prefix, system, history, lambda key: _topic(key, config.events))

    def history(self, key: dg.AssetKey | None = None) -> str:
        """As `Home.history`."""
        del key
        return self.own_history

    def topic(self, key: dg.AssetKey) -> str:
        """As `Home.topic`."""
        system = self.system.get(key.path[1]) if len(key.path) == 2 else None
        return system or self.named(key)


def _topic(key: dg.AssetKey, events: EventSettings) -> str:
    return sanitized(events.topic_delimiter.join(table_and_role(key)[0]), events)


def home_of(config_file: str, properties: Mapping[str, Any], bare: BareLake) -> Home:
    """The home that the fields of an IO manager name.

    Args:
        bare: if there is no configuration.

    Raises:
        ConfigurationError: the configuration cannot be read, or is invalid.
    """
    if not config_file and not properties:
        return bare
    if is_of_connector(config_file or properties):
        from cdc_assets.defs.engines.home import lake_of_connector  # imports that other captures do not need

        return lake_of_connector(config_file, properties)
    return CaptureLake.of(settings_of(config_file, properties))
