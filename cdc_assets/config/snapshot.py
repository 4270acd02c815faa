"""How tables are read as a whole, from properties: what is set for single tables, too."""

import re
from collections.abc import Iterator
from typing import Any, cast

from cdc_assets.config.found import Found, of_pattern
from cdc_assets.config.properties import property_of
from cdc_assets.config.settings import SnapshotSettings
from cdc_assets.core.identifiers import unquoted
from cdc_assets.errors import ConfigurationError, InvalidValueError

_ENTRY = re.compile(r"""(?:\[[^\]]*\]|"[^"]*"|\\,|[^,])+""")
"""One item of a comma list; commas in brackets, in quotes or after a backslash are part of a name."""


def snapshot_settings(values: dict[str, Any], found: Found) -> SnapshotSettings:
    """The settings, with those of single tables."""
    parse = property_of("snapshot.max.threads.multiplier").parse
    by_table = _by_table(found, "snapshot.max.threads.multiplier.<table>")
    multipliers = tuple((table, cast(int, parse(text))) for table, text in by_table)
    settings = SnapshotSettings(**values, overrides=_overrides(found), multipliers=multipliers)
    if settings.mode == "configuration_based" and not (settings.data or settings.schema or settings.start_stream):
        raise ConfigurationError(
            "snapshot.mode",
            settings.mode,
            "at least one of snapshot.mode.configuration.based.snapshot.data, .snapshot.schema and .start.stream",
            "set one of them to true",
        )
    return settings


def _overrides(found: Found) -> tuple[tuple[str, str], ...]:
    """Statements by table, in the order of the list; a listed table without one is read like any other (spec
    debezium-sqlserver §2.4)."""
    statements = dict(_by_table(found, "snapshot.select.statement.overrides.<table>"))
    listed = _overridden(found)
    for table in statements:
        if table not in listed:
            raise ConfigurationError(
                f"snapshot.select.statement.overrides.{table}",
                "(a statement)",
                "a table that snapshot.select.statement.overrides lists",
                f"add {table} to that list",
            )
    return tuple((table, statements[table]) for table in listed if table in statements)


def _overridden(found: Found) -> list[str]:
    text = next((text for _, row, text in found if row.name == "snapshot.select.statement.overrides"), "")
    return [_bare(entry.replace(r"\,", ",")) for entry in _ENTRY.findall(text) if entry.strip()]


def without_statement(found: Found) -> Iterator[tuple[str, str]]:
    """Warn of listed tables whose statement is missing, as Debezium does."""
    given = dict(_by_table(found, "snapshot.select.statement.overrides.<table>"))
    name = "snapshot.select.statement.overrides"
    for table in _overridden(found):
        if table not in given:
            yield name, f"{table} is read like any other table, because {name}.{table} is missing"


def unsafe_isolation(found: Found) -> Iterator[tuple[str, str]]:
    """Warn of an isolation level that is accepted and not used."""
    name = "snapshot.isolation.mode"
    if any(row.name == name and text.strip().lower() == "read_uncommitted" for _, row, text in found):
        yield (
            name,
            "read_uncommitted is read as read_committed: a row of a transaction that is rolled back would stay in its topic "
            "for good, and a scan may skip rows that nobody changes",
        )


def _by_table(found: Found, pattern: str) -> Iterator[tuple[str, str]]:
    return ((_bare(holes["table"]), text) for _, holes, text in of_pattern(found, pattern))


def _bare(table: str) -> str:
    try:
        return unquoted(table)
    except InvalidValueError as error:
        raise ConfigurationError(error.what, table, error.expected, error.hint) from None
