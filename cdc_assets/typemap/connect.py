"""Kafka Connect's types as Arrow fields with metadata.

The lake's field holds the value; these metadata keys hold the other parts of Connect's schema, so that the schema can
be printed from the Arrow schema alone:

| key | holds |
|---|---|
| `connect.type` | Connect's type as its JSON converter prints it: `int32`, `float`, `bytes`, `struct` … |
| `connect.optional` | `true` or `false` |
| `connect.name`, `connect.version` | semantic type, if any |
| `connect.parameters` | JSON object of texts, in order |
| `connect.default` | JSON text of the default as it stands in a payload |
| `lake.form` | encoding of a text without semantic type: `hex`, `base64`; not part of the schema |
| `connect.items` | of an array: JSON object of its element's metadata, because Delta keeps none for elements |

Connect's own logical types become native types of the lake: Decimal is `decimal128(p, s)`, Date is `date32`, Timestamp
is `timestamp[us]` without zone (SQL Server's local types are wall-clock readings, and Debezium treats them as UTC; with
a zone readers would shift them). Delta and Spark share no type for Time, so it stays `int32` milliseconds. All Arrow
fields are nullable: a null struct has null children, regardless of Connect's schema.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

LITERALS: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
"""Connect's literal types and their types in the lake."""


@dataclass(frozen=True)
class ConnectType:
    """One Connect schema without its field name.

    Args:
        kind: Connect's type name, as in `LITERALS`, or `struct`.
        name: semantic type or struct name; empty if none.
        version: schema version; 0 if none.
        parameters: ordered pairs.
        arrow: the lake's type if it differs from the literal's.
        fields: of a struct.
        optional: whether the value may be null.
        default: JSON text of the default as in a payload, or None.
        form: see `lake.form`; empty if the type is sufficient.
    """

    kind: str
    name: str = ""
    version: int = 0
    parameters: tuple[tuple[str, str], ...] = ()
    arrow: pa.DataType | None = None
    fields: tuple[pa.Field, ...] = ()
    optional: bool = True
    default: str | None = None
    form: str = ""

    def data_type(self) -> pa.DataType:
        """The Arrow type that holds the value."""
        if self.kind == "struct":
            return pa.struct(self.fields)
        return self.arrow if self.arrow is not None else LITERALS[self.kind]

    def to_field(self, name: str) -> pa.Field:
        """The Arrow field of that name."""
        return pa.field(name, self.data_type(), nullable=True, metadata=self.metadata())

    def metadata(self) -> dict[str, str]:
        """The field's metadata: everything but the value's type."""
        found = {"connect.type": self.kind, "connect.optional": "true" if self.optional else "false"}
        if self.name:
            found["connect.name"] = self.name
        if self.version:
            found["connect.version"] = str(self.version)
        if self.parameters:
            found["connect.parameters"] = json.dumps(dict(self.parameters), ensure_ascii=False)
        if self.default is not None:
            found["connect.default"] = self.default
        if self.form:
            found["lake.form"] = self.form
        return found

    def required(self) -> "ConnectType":
        """The same type, not optional."""
        return replace(self, optional=False)

    def with_parameters(self, more: Sequence[tuple[str, str]]) -> "ConnectType":
        """The same type with parameters appended."""
        return replace(self, parameters=(*self.parameters, *more)) if more else self


def semantic(kind: str, name: str) -> ConnectType:
    """A literal type with a semantic name; all of Debezium's have version 1."""
    return ConnectType(kind, name, 1)


def struct(name: str, fields: Sequence[pa.Field], *, version: int = 0, optional: bool = True) -> ConnectType:
    """A struct type."""
    return ConnectType("struct", name, version, fields=tuple(fields), optional=optional)


def array(name: str, element: ConnectType, *, optional: bool = True) -> pa.Field:
    """An array field; read its element back with `element_of`."""
    metadata = {
        "connect.type": "array",
        "connect.optional": "true" if optional else "false",
        "connect.items": json.dumps(element.metadata()),
    }
    return pa.field(name, pa.list_(element.to_field("element")), nullable=True, metadata=metadata)


def element_of(field: pa.Field) -> pa.Field:
    """The field of an array's elements, with its metadata."""
    element: pa.Field = field.type.value_field
    return element.with_metadata(json.loads((field.metadata or {})[b"connect.items"]))


def described(field: pa.Field) -> ConnectType:
    """The Connect type of a field, from its metadata.

    Raises:
        KeyError: the field was not made by `ConnectType.to_field`.
    """
    found = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    kind = found["connect.type"]
    return ConnectType(
        kind,
        found.get("connect.name", ""),
        int(found.get("connect.version", "0")),
        tuple(json.loads(found.get("connect.parameters", "{}")).items()),
        field.type,
        tuple(field.type.field(index) for index in range(field.type.num_fields)) if kind == "struct" else (),
        found.get("connect.optional", "true") == "true",
        found.get("connect.default"),
        found.get("lake.form", ""),
    )
