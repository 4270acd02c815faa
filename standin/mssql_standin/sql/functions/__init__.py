"""The library of T-SQL functions, by theme; importing it defines them all."""

from mssql_standin.sql.functions import (
    aggregates,
    conditional,
    dates,
    hashes,
    instants,
    mathematics,
    metadata,
    permissions,
    session,
    strings,
    tables,
)

__all__ = [
    "aggregates",
    "conditional",
    "dates",
    "hashes",
    "instants",
    "mathematics",
    "metadata",
    "permissions",
    "session",
    "strings",
    "tables",
]
