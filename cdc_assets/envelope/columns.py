"""The columns that are read from a table, and the handling of their values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from cdc_assets.config.column_rules import rule_for, rule_text
from cdc_assets.config.filters import ColumnFilter
from cdc_assets.config.settings import ColumnRule, EventSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.envelope.json_text import joined, value_pieces
from cdc_assets.envelope.naming import adjusted
from cdc_assets.envelope.rules import propagates_type
from cdc_assets.errors import ConfigurationError
from cdc_assets.typemap.connect import ConnectType
from cdc_assets.typemap.defaults import NotALiteralError, default_value, fallback_value
from cdc_assets.typemap.jdbc import reported_length, reported_scale, reported_type
from cdc_assets.typemap.mapping import BINARIES, MappedColumn, map_column
from cdc_assets.typemap.moments import OutOfRangeError
from cdc_assets.typemap.shaping import Shape, parameters_of, shape_of

_SOURCE = "__debezium.source.column."


@dataclass(frozen=True)
class EventColumn:
    """A column that is read, with the destination of its value.

    Args:
        mapped: type, wire form and conversion.
        field: event field in values.
        key_field: event field in keys, which no mask or truncation touches.
        bit: bit in the update mask, from 0.
        in_value: whether values hold it; False for a key column that a filter excludes.
        shape: mask, hash or truncation after the conversion.
        required: event value, one row, in place of a NULL that a NOT NULL column cannot have.
        placeholder: event value, one row, for a value that the log does not contain; None if it always does.
        rule: what `shape` makes of values (`rule_text`); empty without one.
    """

    mapped: MappedColumn
    field: pa.Field
    key_field: pa.Field
    bit: int
    in_value: bool
    shape: Shape | None = None
    required: pa.Array | None = None
    placeholder: pa.Array | None = None
    rule: str = ""

    @property
    def name(self) -> str:
        """Name of the table's column."""
        return self.mapped.column.name


def map_columns(
    schema: TableSchema, bits: Mapping[str, int], settings: EventSettings, warnings: list[str]
) -> dict[str, MappedColumn]:
    """Captured columns whose type events can hold, in table order; the others go into `warnings`."""
    found: dict[str, MappedColumn] = {}
    for column in schema.columns:
        mapped = map_column(column, settings) if column.name in bits else None
        if mapped is not None:
            found[column.name] = mapped
        elif column.name in bits:
            warnings.append(
                f"Column {column.name!r} of {schema.table} has type {column.type_name}, which events cannot hold; "
                f"it is excluded."
            )
    return found


def event_columns(
    table: TableId,
    mapped: Mapping[str, MappedColumn],
    bits: Mapping[str, int],
    key: Sequence[str],
    settings: EventSettings,
    warnings: list[str],
) -> tuple[EventColumn, ...]:
    """Columns that values or keys hold, in table order.

    Raises:
        ConfigurationError: two columns would have one field name.
    """
    columns = ColumnFilter(settings)
    wanted = {name for name in mapped if columns.accepts(table, name)}
    if not wanted:
        warnings.append(f"All columns of {table} were excluded by the column filters; all are captured instead.")
        wanted = set(mapped)
    made = tuple(
        _event_column(table, column, bits[name], name in wanted, settings, warnings)
        for name, column in mapped.items()
        if name in wanted or name in key
    )
    _check_fields(table, made)
    return made


def _event_column(
    table: TableId, mapped: MappedColumn, bit: int, in_value: bool, settings: EventSettings, warnings: list[str]
) -> EventColumn:
    column = mapped.column
    canonical = _default(table, column, warnings)
    default = _converted(mapped, canonical, table, warnings)
    connect = _with_default(mapped.connect, default)
    rule = rule_for(table, column, settings.column_rules)
    name = adjusted(column.name, settings.field_name_adjustment)
    shape = None if rule is None else shape_of(column, rule)
    required = None
    if not connect.optional:
        required = default if default is not None else mapped.convert(fallback_value(column))
    return EventColumn(
        mapped,
        connect.with_parameters(_parameters(table, column, rule, settings)).to_field(name),
        connect.to_field(name),
        bit,
        in_value,
        shape,
        required,
        _placeholder(mapped, settings) if mapped.large else None,
        "" if rule is None or shape is None else rule_text(rule),
    )


def _default(table: TableId, column: Column, warnings: list[str]) -> pa.Array | None:
    try:
        return default_value(column)
    except NotALiteralError as error:
        warnings.append(
            f"Default {column.default} of {table}.{column.name} ({column.type_name}) is not part of the schema: {error}."
        )
        return None


def _converted(
    mapped: MappedColumn, canonical: pa.Array | None, table: TableId, warnings: list[str]
) -> pa.Array | None:
    if canonical is None:
        return None
    try:
        return mapped.convert(canonical)
    except OutOfRangeError as error:
        warnings.append(f"Default of {table}.{mapped.column.name} is not part of the schema: {error}.")
        return None


def _with_default(connect: ConnectType, default: pa.Array | None) -> ConnectType:
    if default is None:
        return connect
    text = joined(value_pieces(connect.to_field("default"), default, defaults=False), 1)[0].as_py()
    return replace(connect, default=text)


def _placeholder(mapped: MappedColumn, settings: EventSettings) -> pa.Array:
    text = settings.unavailable_value
    if mapped.column.type_name in BINARIES:
        return mapped.convert(pa.array([text.encode()], pa.binary()))
    return pa.array([text], pa.string())


def _parameters(
    table: TableId, column: Column, rule: ColumnRule | None, settings: EventSettings
) -> tuple[tuple[str, str], ...]:
    """Schema parameters of a column's rule and of its propagated source type.

    The connector applies one rule per column, the first of truncation, mask, propagation, hash: a truncation or mask
        hides the source type, and a propagated type switches a hash off, so that the plain value is published. The
        former is the same here; a hash is always applied.
    """
    parameters = () if rule is None else parameters_of(column, rule)
    if rule is not None and rule.kind in ("truncate", "mask"):
        return parameters
    if propagates_type(table, column.name, reported_type(column), settings):
        return (*_source_type(column), *parameters)
    return parameters


def _source_type(column: Column) -> tuple[tuple[str, str], ...]:
    scale = reported_scale(column)
    return (
        (_SOURCE + "type", reported_type(column).upper()),
        (_SOURCE + "length", str(reported_length(column))),
        *(() if scale is None else ((_SOURCE + "scale", str(scale)),)),
        (_SOURCE + "name", column.name),
    )


def _check_fields(table: TableId, columns: Sequence[EventColumn]) -> None:
    seen: dict[str, str] = {}
    for column in columns:
        other = seen.setdefault(column.field.name.lower(), column.name)
        if other != column.name:
            raise ConfigurationError(
                "field name",
                column.field.name,
                f"names in {table} that differ by more than letter case",
                f"exclude {other} or {column.name} by column.exclude.list",
            )
