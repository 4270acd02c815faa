"""The one table of configuration properties: it validates, builds the settings and writes `docs/configuration.md`."""

from dataclasses import replace

from cdc_assets.config.property import Property, find
from cdc_assets.config.table import (
    connection,
    elsewhere,
    events,
    kafka,
    lake,
    metrics,
    mirror,
    signals,
    snapshot,
    streaming,
    text,
)

_GROUPS: tuple[tuple[str, tuple[Property, ...]], ...] = (
    ("Connection", connection.CONNECTION + connection.SHOWN),
    ("What is captured", connection.FILTERS),
    ("Events", events.EVENTS),
    ("Events as text", text.TEXT),
    ("Schema history", events.HISTORY),
    ("Heartbeats and notifications", events.SIGNS),
    ("Signals and incremental snapshots", signals.SIGNALS),
    ("Snapshot", snapshot.SNAPSHOT + snapshot.CONFIGURED_SNAPSHOT),
    ("Streaming", streaming.STREAMING),
    ("Lake", lake.LAKE),
    ("Mirrors", mirror.MIRROR),
    ("Metrics", metrics.METRICS),
    ("Topics in Kafka", kafka.KAFKA),
    ("Not yet supported", elsewhere.REFUSED),
    ("Without effect here", elsewhere.IGNORED),
)

PROPERTIES: tuple[Property, ...] = tuple(replace(row, group=group) for group, rows in _GROUPS for row in rows)
"""Every property in documentation order."""


def property_of(name: str) -> Property:
    """The row for a property name as given in a file.

    Raises:
        ConfigurationError: the name is unknown; the message suggests the nearest ones.
    """
    return find(PROPERTIES, name)
