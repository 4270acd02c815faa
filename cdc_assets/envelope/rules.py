"""What of a column's type a schema tells, which columns are a message key, and what people see of one (spec debezium-sqlserver §4.6).

All patterns are anchored and ignore letter case.

Message keys hold the values of their columns as they are, whatever the rules say, since they tell rows apart. So wherever
a key leaves the topics and mirrors, for people, logs, notifications or Dagster, `shown_key` decides what of it is seen.
"""

from collections.abc import Iterable, Iterator, Sequence

from cdc_assets.config.column_rules import hides, restricts
from cdc_assets.config.filters import Names
from cdc_assets.config.settings import EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets.errors import ConfigurationError
from cdc_assets.typemap.jdbc import reported_type

MASKED = "(masked)"
"""Takes the place of a value that people do not see."""


def shown_key(
    table: TableId, columns: Sequence[str], key: Sequence[str | None], settings: EventSettings
) -> tuple[str | None, ...]:
    """Values of a key as people may see them.

    Args:
        columns: names of its columns; if they are not known, which is so in old records, all is hidden that may have to be.
        key: its values in the server's text form.
    """
    if len(columns) != len(key):
        return tuple(MASKED if restricts(settings) else value for value in key)
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
