"""The plan for converting rows of one table structure to events, made once.

A plan is made on the driver from the table's structure and the settings, and sent to the tasks. Building events with it
needs no further look-ups.

Columns: those of the table that the capture instance captures and the column filters accept, in table order; all of
them if the filters accept none (as in the connector). Key columns that a filter excludes from the value are still read,
because the key holds them.

Topic table layout: `position`, `key`, `value`, `headers`,
`window_id`. A table without key has a `key` column of type string that is
always null, because neither Parquet nor Delta can hold a struct without fields.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cdc_assets.config.column_rules import restricts, rule_for
from cdc_assets.config.settings import EventSettings
from cdc_assets.core.identifiers import TableId, quote
from cdc_assets.core.schema import TableSchema
from cdc_assets.envelope.blocks import envelope_type
from cdc_assets.envelope.columns import EventColumn, event_columns, map_columns
from cdc_assets.envelope.naming import schema_name, topic_name
from cdc_assets.envelope.rules import message_key, missing_key_columns
from cdc_assets.errors import ConfigurationError
from cdc_assets.typemap.connect import struct
from cdc_assets.typemap.exact import coarse_by, exact_setting
from cdc_assets.typemap.mapping import MappedColumn
from cdc_assets.typemap.shaping import MASKED

Hidden = tuple[tuple[str, str], ...]
"""Columns that values do not show as they are, with what becomes of them: `EXCLUDED`, or the text of a rule."""
EXCLUDED = "exclude"
POSITION = pa.field("position", pa.string())
HEADERS = pa.field("headers", pa.map_(pa.string(), pa.string()))
WINDOW = pa.field("window_id", pa.int64())


@dataclass(frozen=True)
class ConnectorIdentity:
    """Identity of the writer of events.

    Args:
        name: connector name in the context headers.
        task_id: task id in the context headers.
        run_id: run id in the context headers; one per run of the capture.
    """

    name: str = "sqlserver"
    task_id: str = "0"
    run_id: str = ""


@dataclass(frozen=True)
class EventPlan:
    """Plan for converting rows of one table structure to events; picklable.

    Args:
        topic: name of the topic and of its lake table.
        columns: columns in the order in which they are read.
        key: names of the key's columns in key order; empty if there is none.
        topic_schema: schema of the batches of events.
        settings: settings from which the plan was made.
        connector: identity of the writer.
        warnings: messages for the operator, logged when the structure is recorded.
        hidden: without columns left out that identify rows, whose values keys hold as they are.
    """

    table: TableId
    topic: str
    columns: tuple[EventColumn, ...]
    key: tuple[str, ...]
    topic_schema: pa.Schema
    settings: EventSettings
    connector: ConnectorIdentity
    warnings: tuple[str, ...] = ()
    hidden: Hidden = ()

    def select_list(self, alias: str) -> str:
        """T-SQL expressions of the data columns in order, in forms that the bulk reader reads exactly."""
        return ", ".join(
            f"{column.mapped.wire.expression(column.name, alias)} AS {quote(column.name)}" for column in self.columns
        )

    @property
    def value_columns(self) -> tuple[int, ...]:
        """Indexes of the columns in values."""
        return tuple(index for index, column in enumerate(self.columns) if column.in_value)

    @property
    def key_columns(self) -> tuple[int, ...]:
        """Indexes of the key's columns in key order."""
        indexes = {column.name: index for index, column in enumerate(self.columns)}
        return tuple(indexes[name] for name in self.key)


def plan_events(
    schema: TableSchema, captured: Sequence[str] | None, settings: EventSettings, *, connector: ConnectorIdentity
) -> EventPlan:
    """Plan the conversion of a table's rows to events.

    Args:
        schema: structure of the source table.
        captured: columns of the capture instance in mask order; None means all of the table.
        settings: form of events.
        connector: identity of the writer.

    Raises:
        ConfigurationError: a name is not valid, two fields collide, or an expression takes too long.
    """
    warnings: list[str] = []
    bits = {name: bit for bit, name in enumerate(captured or [column.name for column in schema.columns])}
    warnings += _unknown(schema, bits)
    mapped = map_columns(schema, bits, settings, warnings)
    key = _key(schema, settings, mapped)
    warnings += _key_warnings(schema, key, mapped, settings)
    columns = event_columns(schema.table, mapped, bits, key, settings, warnings)
    topic = topic_name(schema.table, settings)
    layout = _topic_schema(topic, columns, key, settings)
    shown = {column.name: column.rule for column in columns if column.in_value}
    rules = {name: shown.get(name, "" if name in (schema.key or key) else EXCLUDED) for name in mapped}
    hidden = tuple((name, rule) for name, rule in rules.items() if rule)
    return EventPlan(schema.table, topic, columns, key, layout, settings, connector, tuple(warnings), hidden)


def hidden_columns(schema: TableSchema, captured: Sequence[str] | None, settings: EventSettings) -> Hidden:
    """See `EventPlan.hidden`; nothing if no plan can be made, so no events."""
    if not restricts(settings):
        return ()
    try:
        return plan_events(schema, captured, settings, connector=ConnectorIdentity()).hidden
    except ConfigurationError:
        return ()


def _unknown(schema: TableSchema, bits: Mapping[str, int]) -> list[str]:
    return [
        f"Column {name!r} of the capture table is not among the columns of {schema.table}; its values are excluded."
        for name in bits
        if schema.column(name) is None
    ]


def _key_warnings(
    schema: TableSchema, key: Sequence[str], mapped: Mapping[str, MappedColumn], settings: EventSettings
) -> Iterator[str]:
    remedy = "Next: set message.key.columns if this is not acceptable."
    lacking = [name for name in schema.key if name not in mapped]
    if lacking and not message_key(schema.table, tuple(mapped), settings.message_key_columns):
        yield f"The key of {schema.table} lacks {', '.join(lacking)}, so rows may share a key. {remedy}"
    if unknown := list(missing_key_columns(schema.table, tuple(mapped), settings.message_key_columns)):
        yield (
            f"The key of {schema.table} is {', '.join(key)}: it has no captured column that {'; '.join(unknown)} of "
            f"message.key.columns names, so rows may share a key. Next: correct it if this is not acceptable."
        )
    for name in key:
        column = mapped[name].column
        if column.computed:
            yield (
                f"Key column {name!r} of {schema.table} is computed, and the log does not hold computed columns: it is "
                f"null in the keys of changes. {remedy}"
            )
        if property_name := coarse_by(column, mapped[name].connect.to_field(name)):
            yield (
                f"Keys of {schema.table} do not hold every digit of column {name!r}, because of {property_name}: rows may share "
                f"a key, so there is no mirror of it and no compaction by key. Next: set {exact_setting(column)}."
            )
        rule = rule_for(schema.table, column, settings.column_rules)
        if rule is not None and rule.kind != "truncate" and column.type_name in MASKED:
            yield f"Key column {name!r} of {schema.table} is masked in values, but not in keys, because keys identify rows. {remedy}"


def _key(schema: TableSchema, settings: EventSettings, mapped: Mapping[str, MappedColumn]) -> tuple[str, ...]:
    wanted = message_key(schema.table, tuple(mapped), settings.message_key_columns)
    return wanted or tuple(name for name in schema.key if name in mapped)


def _topic_schema(topic: str, columns: Sequence[EventColumn], key: Sequence[str], settings: EventSettings) -> pa.Schema:
    mode = settings.schema_name_adjustment
    row = struct(schema_name(topic, "Value", mode), [column.field for column in columns if column.in_value])
    envelope = envelope_type(schema_name(topic, "Envelope", mode), row, settings)
    return pa.schema([POSITION, key_field(topic, columns, key, settings), envelope.to_field("value"), HEADERS, WINDOW])


def key_field(topic: str, columns: Sequence[EventColumn], key: Sequence[str], settings: EventSettings) -> pa.Field:
    """The `key` column: a struct of the key's fields, or an always null string."""
    if not key:
        return pa.field("key", pa.string())
    fields = {column.name: column.key_field for column in columns}
    name = schema_name(topic, "Key", settings.schema_name_adjustment)
    return struct(name, [fields[column] for column in key], optional=False).to_field("key")
