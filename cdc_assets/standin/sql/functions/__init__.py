"""The library of T-SQL functions, by theme; importing it defines them all."""

from cdc_assets.standin.sql.functions import (
    aggregates,
    conditional,
    dates,
    formats,
    hashes,
    instants,
    mathematics,
    metadata,
    permissions,
    searching,
    session,
    strings,
    tables,
    zones,
)

__all__ = [
    "aggregates",
    "conditional",
    "dates",
    "formats",
    "hashes",
    "instants",
    "mathematics",
    "metadata",
    "permissions",
    "searching",
    "session",
    "strings",
    "tables",
    "zones",
]
