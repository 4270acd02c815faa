"""What of a column's type a schema tells, which columns are a message key, and what people see of one (spec debezium-sqlserver §4.6).

All patterns are anchored and ignore letter case.

Message keys hold the values of their columns as they are, whatever the rules say, since they tell rows apart. So wherever
a key leaves the topics and mirrors, for people, logs, notifications or Dagster, `shown_key` decides what of it is seen.
"""

from collections.abc import Iterable, Iterator, Sequence

from cdc_assets.config.column_rules import hides, restricts
from cdc_assets.config.filters import Names
from cdc_assets.config.kinds import key_expressions
from cdc_assets.config.settings import EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
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


def message_key(table: TableId, columns: Sequence[str], entries: Iterable[str]) -> tuple[str, ...]:
    """Columns of a table that `message.key.columns` names, each once; none if it names none, then the table's own key holds.

    In the order of all entries, and those that one expression names in the table's order, as in the connector (measured).

    Args:
        columns: the table's columns.

    Raises:
        ConfigurationError: an expression does not compile, or takes too long.
    """
    found = (name for _, expressions in key_expressions(entries) for name in _named(table, columns, expressions))
    return tuple(dict.fromkeys(found))


def missing_key_columns(table: TableId, columns: Sequence[str], entries: Iterable[str]) -> Iterator[str]:
    """Columns that a table lacks of an entry of `message.key.columns` that names others of its columns, as written there."""
    for entry in entries:
        parts = list(key_expressions([entry]))
        lacking = [shown for shown, expressions in parts if not _named(table, columns, expressions)]
        if len(lacking) < len(parts):
            yield from lacking


def _named(table: TableId, columns: Sequence[str], expressions: Sequence[str]) -> list[str]:
    names = Names("message.key.columns", expressions)
    return [column for column in columns if names.match(f"{table.within_database}.{column}", f"{table}.{column}")]
