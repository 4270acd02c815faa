"""Chooses the probe of a capture's database."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.databases.mysql import MySqlProbe
from cdc_assets.connectors.databases.oracle import OracleProbe
from cdc_assets.connectors.databases.postgres import PostgresProbe
from cdc_assets.connectors.engine.source import SourceProbe
from cdc_assets.errors import EngineError

_PROBES: Mapping[str, Callable[[EngineConfig], SourceProbe]] = {
    "mysql": MySqlProbe,
    "mariadb": MySqlProbe,
    "postgresql": PostgresProbe,
    "oracle": OracleProbe,
}


@contextmanager
def open_probe(config: EngineConfig) -> Iterator[SourceProbe]:
    """A connection to the database, closed at the end of the block.

    Raises:
        CdcError: its driver is not installed, it cannot be reached, or nothing is known of such databases.
    """
    kind = _PROBES.get(config.kind)
    if kind is None:
        raise EngineError(
            f"The database of {config.properties.get('connector.class', '')} cannot be queried for the end of its log. "
            f"Next: nothing; only these can: {', '.join(_PROBES)}."
        )
    probe = kind(config)
    try:
        yield probe
    finally:
        probe.close()
