"""Which of Debezium's column rules apply to a column (spec debezium-sqlserver §4.2, §4.6).

All patterns are anchored and ignore letter case.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from cdc_assets.config.settings import ColumnRule, EventSettings, FilterSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column
from cdc_assets.errors import ConfigurationError


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern.strip(), re.IGNORECASE)
    except re.error as error:
        raise ConfigurationError(
            "regular expression", pattern, f"one that compiles ({error})", "mend the pattern"
        ) from error


def matches(patterns: Iterable[str], *names: str) -> bool:
    """Whether any pattern matches the whole of any name."""
    return any(_compiled(pattern).fullmatch(name) for pattern in patterns for name in names)


def column_wanted(table: TableId, column: str, filters: FilterSettings) -> bool:
    """Whether values hold the column."""
    name = f"{table.within_database}.{column}"
    if filters.column_include:
        return matches(filters.column_include, name)
    return not matches(filters.column_exclude, name)


_RANK = ("truncate", "mask", "hash", "hash_v2")
"""The connector looks for rules in this order of kinds, whatever the order of the file."""


def rule_for(table: TableId, column: Column, rules: Iterable[ColumnRule]) -> ColumnRule | None:
    """The one mask, hash or truncation of a column."""
    names = (f"{table.within_database}.{column.name}", f"{table}.{column.name}")
    ranked = sorted(rules, key=lambda rule: _RANK.index(rule.kind))
    return next((rule for rule in ranked if matches(rule.columns, *names)), None)


def propagates_type(table: TableId, column: str, type_text: str, settings: EventSettings) -> bool:
    """Whether the schema tells the column's source type."""
    by_column = (f"{table.within_database}.{column}", f"{table}.{column}")
    by_type = (f"{table.within_database}.{type_text}", f"{table}.{type_text}")
    return matches(settings.propagate_columns, *by_column) or matches(settings.propagate_types, *by_type)


def message_key(table: TableId, entries: Iterable[str]) -> tuple[str, ...] | None:
    """Columns of the first entry of `message.key.columns` that matches the table, as written there.

    Raises:
        ConfigurationError: an entry has no `:`.
    """
    for entry in entries:
        pattern, separator, names = entry.rpartition(":")
        columns = tuple(name.strip() for name in names.split(",") if name.strip())
        if not separator or not columns:
            raise ConfigurationError(
                "message.key.columns", entry, "table regex:column,column", "write one entry per table, split by ;"
            )
        if matches((pattern,), table.within_database, str(table)):
            return columns
    return None
