"""Selects the column rules of Debezium that apply to a column (spec debezium-sqlserver §4.2, §4.6).

All patterns are anchored and ignore letter case.

Message keys hold the values of their columns as they are, whatever the rules say, since they tell rows apart. So wherever
a key leaves the topics and mirrors, for people, logs, notifications or Dagster, `shown_key` decides what of it is seen.
"""

from collections.abc import Iterable, Iterator, Sequence

from cdc_assets.config.filters import ColumnFilter, Names
from cdc_assets.config.settings import ColumnRule, EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.errors import ConfigurationError
from cdc_assets.typemap.jdbc import reported_type

_RANK = ("truncate", "mask", "hash", "hash_v2")
"""The connector looks for rules in this order of kinds, whatever the order of the file."""
PROPERTY_OF_RULE = {
    "truncate": "column.truncate.to.<length>.chars",
    "mask": "column.mask.with.<length>.chars",
    "hash": "column.mask.hash.<algorithm>.with.salt.<salt>",
    "hash_v2": "column.mask.hash.v2.<algorithm>.with.salt.<salt>",
}
"""For messages; without the salt, which is secret."""
MASKED = "(masked)"
"""Takes the place of a value that people do not see."""


def rule_for(table: TableId, column: Column, rules: Iterable[ColumnRule]) -> ColumnRule | None:
    """The mask, hash or truncation of a column, if any."""
    names = (f"{table.within_database}.{column.name}", f"{table}.{column.name}")
    ranked = sorted(rules, key=lambda rule: _RANK.index(rule.kind))
    return next((rule for rule in ranked if Names(PROPERTY_OF_RULE[rule.kind], rule.columns).match(*names)), None)


def hides(table: TableId, column: str, settings: EventSettings) -> bool:
    """Whether values of a column are not for people: a rule changes them, or the filters leave it out of events."""
    by_rule = rule_for(table, Column(column, "", 0), settings.column_rules) is not None
    return by_rule or not ColumnFilter(settings).accepts(table, column)


def shown_key(
    table: TableId, columns: Sequence[str], key: Sequence[str | None], settings: EventSettings
) -> tuple[str | None, ...]:
    """Values of a key as people may see them.

    Args:
        columns: names of its columns; if they are not known, which is so in old records, all is hidden that may have to be.
        key: its values in the server's text form.
    """
    if len(columns) != len(key):
        restricted = settings.column_rules or settings.column_include or settings.column_exclude
        return tuple(MASKED if restricted else value for value in key)
    return tuple(
        MASKED if hides(table, column, settings) else value for column, value in zip(columns, key, strict=True)
    )


def propagates_type(table: TableId, column: str, type_text: str, settings: EventSettings) -> bool:
    """Whether the schema includes the column's source type."""
    by_column = (f"{table.within_database}.{column}", f"{table}.{column}")
    by_type = (f"{table.within_database}.{type_text}", f"{table}.{type_text}")
    columns = Names("column.propagate.source.type", settings.propagate_columns)
    types = Names("datatype.propagate.source.type", settings.propagate_types)
    return columns.match(*by_column) or types.match(*by_type)


def source_types(schema: TableSchema) -> Iterator[str]:
    """The types of a table's columns, as `datatype.propagate.source.type` names them."""
    return map(reported_type, schema.columns)


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
        if Names("message.key.columns", (pattern.strip(),)).match(table.within_database, str(table)):
            return columns
    return None
