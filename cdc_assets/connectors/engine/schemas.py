"""Arrow's schema of a topic from Connect's, and Arrow columns from an engine's lines.

A line of JSON (readers of files and topics) holds values in the form that Arrow reads fastest, so each field has two
types: the one it is read with and the one it has in the lake. The second is that of every topic table
(`typemap.connect`): Connect's literal types, the semantic type as metadata. Some Decimals have no type in the lake: those of more
than 38 digits, of an unknown number of digits, or with the point before or after them (PostgreSQL's `numeric(2, 5)`, Oracle's
`NUMBER(5, -2)`); it stays Connect's bytes, and its metadata say so.
"""

import io
import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from cdc_assets.envelope.plan import HEADERS, POSITION, WINDOW
from cdc_assets.errors import EngineError
from cdc_assets.typemap.connect import ConnectType, array, element_of

DECIMAL = "org.apache.kafka.connect.data.Decimal"
_LOGICAL: Mapping[str, pa.DataType] = {
    "org.apache.kafka.connect.data.Date": pa.date32(),
    "org.apache.kafka.connect.data.Timestamp": pa.timestamp("us"),
}
_MAX_DIGITS = 38
_MAX_DEPTH = 41
"""Levels of structures and lists at most; Delta's reader reads no more."""
ENTRIES = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())]))
"""Maps and headers as they are in a line."""
_BLOCK_BYTES = 1 << 20

Schema = Mapping[str, Any]
"""Connect's JSON form of a schema."""


def topic_schema(key: Schema | None, value: Schema | None) -> pa.Schema:
    """The columns of a topic's events; without `key` or `value` if these have none, whatever others have.

    Raises:
        EngineError: the lake cannot hold them.
    """
    pair = [field_of(name, schema) for name, schema in (("key", key), ("value", value)) if schema is not None]
    for field in pair:
        _check_structures(field.type, field.name, _MAX_DEPTH + 1)
    return pa.schema([POSITION, *pair, HEADERS, WINDOW])


def _check_structures(kind: pa.DataType, path: str, left: int) -> None:
    """Check that Parquet and Delta take the structures of a type, whose names they compare in any letter case.

    Args:
        left: levels that it may have, its values included.
    """
    if left == 0:
        problem = f"nests more than {_MAX_DEPTH} structures"
    elif pa.types.is_list(kind):
        return _check_structures(kind.value_type, path, left - 1)
    elif not pa.types.is_struct(kind):
        return None
    elif not kind.num_fields:
        problem = "is a structure without fields"
    elif len({field.name.lower() for field in kind}) < kind.num_fields:
        problem = "has two fields whose names differ in letter case at most"
    else:
        for field in kind:
            _check_structures(field.type, f"{path}.{field.name}", left - 1)
        return None
    raise EngineError(f"{path[:200]} {problem}, which no table of the lake can hold. Next: leave the column out.")


def field_of(name: str, schema: Schema) -> pa.Field:
    """The lake's field of a Connect schema.

    Raises:
        EngineError: the lake has no type for it.
    """
    kind = schema["type"]
    if kind == "array":
        if (items := schema["items"]["type"]) in ("array", "map"):
            raise EngineError(
                f"An array of {items}s has no form in the lake. Next: leave the column out (column.exclude.list)."
            )
        return array(name, _type_of(schema["items"]), optional=schema["optional"])
    if kind == "map":
        if schema["keys"]["type"] != "string" or schema["values"]["type"] != "string":
            raise EngineError(
                f"The field {name} is a map of {schema['keys']['type']} to {schema['values']['type']}; expected a map of "
                "texts. Next: have the connector write it as JSON, or leave it out (column.exclude.list)."
            )
        return pa.field(name, pa.map_(pa.string(), pa.string()), metadata=_type_of(schema).metadata())
    return _type_of(schema).to_field(name)


def _type_of(schema: Schema) -> ConnectType:
    kind, name, parameters = schema["type"], schema.get("name", ""), schema.get("parameters", {})
    native = _LOGICAL.get(name)
    if is_narrow(schema):
        native = pa.decimal128(int(parameters["connect.decimal.precision"]), int(parameters["scale"]))
    default = schema.get("default")
    return ConnectType(
        kind,
        name,
        schema.get("version", 0),
        tuple(parameters.items()),
        native,
        tuple(field_of(inner["field"], inner) for inner in schema.get("fields", ())),
        schema["optional"],
        None if default is None else json.dumps(default, ensure_ascii=False, separators=(",", ":")),
    )


def is_narrow(schema: Schema) -> bool:
    """Whether it is a Decimal that the lake's type holds: its digits are known, and its point lies among them."""
    if schema.get("name") != DECIMAL:
        return False
    digits, scale = decimal_parameter(schema, "connect.decimal.precision"), decimal_parameter(schema, "scale")
    return digits is not None and scale is not None and 0 < digits <= _MAX_DIGITS and 0 <= scale <= digits


def decimal_parameter(schema: Schema, name: str) -> int | None:
    """A number among a Decimal's parameters; None if there is none."""
    try:
        return int(schema["parameters"][name])
    except (KeyError, TypeError, ValueError):
        return None


def read_lines(schema: pa.Schema, data: bytes, longest: int) -> pa.Table:
    """Lines as columns in the lake's types; instead of the position there is `n`, the index in the chunk.

    Args:
        schema: of the topic, from `topic_schema`.
        longest: bytes of the longest line.

    Raises:
        EngineError: a line does not fit the schema.
    """
    fields = [field for field in schema if field.name in ("key", "value", "headers")]
    read = pa.schema([pa.field("n", pa.int64()), *(pa.field(field.name, _read_type(field)) for field in fields)])
    for name in {"key", "value"} - set(schema.names):  # always null there
        read = read.append(pa.field(name, pa.null()))
    try:
        table = pj.read_json(
            io.BytesIO(data),
            pj.ReadOptions(block_size=max(_BLOCK_BYTES, longest + 2)),
            pj.ParseOptions(explicit_schema=read, unexpected_field_behavior="error"),
        ).combine_chunks()
        columns = [_converted(whole(table.column(field.name)), field) for field in fields]
    except pa.ArrowException as error:
        raise EngineError(f"Events do not fit their own schema: {error}. Next: report this.") from error
    return pa.Table.from_arrays([whole(table.column("n")), *columns], schema=pa.schema([read.field("n"), *fields]))


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _read_type(field: pa.Field) -> pa.DataType:
    """The type that a field's values have in a line."""
    kind = field.type
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, _read_type(child)) for child in kind])
    if pa.types.is_map(kind):
        return ENTRIES
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _read_type(element_of(field))))
    if pa.types.is_decimal(kind) or pa.types.is_binary(kind) or pa.types.is_floating(kind):
        return pa.string()
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _converted(values: pa.Array, field: pa.Field) -> pa.Array:
    """Values as read, in the lake's type."""
    kind = field.type
    if pa.types.is_struct(kind):
        children = [_converted(values.field(place), child) for place, child in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())
    if pa.types.is_map(kind):
        entries = values.values
        missing = values.is_null() if values.null_count else None
        return pa.MapArray.from_arrays(values.offsets, entries.field(0), entries.field(1), type=kind, mask=missing)
    if pa.types.is_list(kind):
        missing = values.is_null() if values.null_count else None
        items = _converted(values.values, element_of(field))
        return pa.ListArray.from_arrays(values.offsets, items, type=kind, mask=missing)
    if pa.types.is_binary(kind):
        return pa.array([None if text is None else b64decode(text) for text in values.to_pylist()], pa.binary())
    if pa.types.is_timestamp(kind):
        return pc.multiply_checked(values, 1000).cast(kind)
    return values if values.type == kind else values.cast(kind)
