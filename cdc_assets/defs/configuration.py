"""How a resource names its capture's configuration: by the path of a file, or by the properties themselves.

Dagster shows the configuration of resources on its pages. So a file is referred to by its path, and among inline
properties secret ones must be placeholders, `${env:NAME}` or `${file:/path}`, which are kept unresolved until
the settings are read.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cdc_assets.config.engine import EngineConfig, engine_config_of, is_engine, is_engine_file, load_engine_config
from cdc_assets.config.load import config_of, literal_secrets, load_config
from cdc_assets.config.property import HIDDEN, shown_name
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import ConfigurationError

CaptureSource = str | Path | Mapping[str, Any]
"""A configuration file, or connector properties by name."""


def source_fields(capture: CaptureSource) -> dict[str, Any]:
    """The fields `config_file` and `properties` of a resource for a capture.

    Raises:
        ConfigurationError: a secret is given in plain text.
    """
    if isinstance(capture, str | Path):
        return {"config_file": str(capture)}
    if written := literal_secrets(capture):
        raise ConfigurationError(
            shown_name(written[0]),
            HIDDEN,
            "a placeholder, because Dagster shows the configuration of resources on its pages",
            "write ${env:NAME} or ${file:/path}, or name a configuration file",
        )
    return {"properties": dict(capture)}


def is_of_connector(capture: CaptureSource) -> bool:
    """Whether another connector than SQL Server's makes the capture, in the embedded engine.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    return is_engine_file(Path(capture)) if isinstance(capture, str | Path) else is_engine(capture)


def settings_of(config_file: str, properties: Mapping[str, Any]) -> CaptureConfig:
    """The settings, read now.

    Raises:
        ConfigurationError: neither or both are given, the file cannot be read, or it is invalid.
    """
    if bool(config_file) == bool(properties):
        given = "both" if config_file else "neither"
        raise ConfigurationError(
            "configuration of a capture", given, "config_file or properties", "give one of the two"
        )
    return load_config(config_file) if config_file else config_of(properties)


def engine_settings_of(config_file: str, properties: Mapping[str, Any]) -> EngineConfig:
    """The same of another connector's capture.

    Raises:
        ConfigurationError: they cannot be read, or are invalid.
    """
    return load_engine_config(Path(config_file)) if config_file else engine_config_of(properties)
