"""Rows on their way through a chain of transforms."""

import json
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import InvalidValueError
from cdc_assets.publish.tombstones import deletes_of
from cdc_assets.typemap.connect import ConnectType, described

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]


class Column(NamedTuple):
    """Values and what they mean."""

    field: pa.Field
    array: pa.Array


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that go to one topic with one pair of schemas.

    Args:
        topic: where they go.
        rows: their indices in the batch that they come from, in increasing order.
        key: their keys.
        value: their values; null is a tombstone.
        headers: names and texts, as in the lake.
        header_key: the key's field as in the lake, which describes keys in headers.
        deletes: index in the batch of the delete that each is the tombstone of; -1 for none.
        added: further headers, with their types.
        partition: of each; None if the producer chooses.
        timestamp: milliseconds of each; None for the time of sending.
        value_nulls_described: whether values that are null have the schema of the others, and so are no tombstones.
        key_nulls_described: the same of keys.
    """

    topic: str
    rows: Numbers
    key: Column
    value: Column
    headers: pa.Array
    header_key: pa.Field
    deletes: Numbers
    added: tuple[Column, ...] = ()
    partition: pa.Array | None = None
    timestamp: pa.Array | None = None
    value_nulls_described: bool = False
    key_nulls_described: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, mask: Mask) -> "Part":
        """Some of the rows."""
        if mask.all():
            return self
        chosen = pa.array(np.flatnonzero(mask))

        def taken(array: pa.Array | None) -> pa.Array | None:
            return None if array is None else array.take(chosen)

        return replace(
            self,
            rows=self.rows[mask],
            key=Column(self.key.field, taken(self.key.array)),
            value=Column(self.value.field, taken(self.value.array)),
            headers=taken(self.headers),
            deletes=self.deletes[mask],
            added=tuple(Column(column.field, taken(column.array)) for column in self.added),
            partition=taken(self.partition),
            timestamp=taken(self.timestamp),
        )

    def by_topic(self, names: pa.Array) -> "list[Part]":
        """The rows by the topic that they are to go to; null and blank leave it as it is."""
        kept = pc.if_else(pc.equal(pc.utf8_trim_whitespace(names.fill_null("")), ""), self.topic, names)
        return [replace(self.where(is_equal(kept, name)), topic=name) for name in pc.unique(kept).to_pylist()]


class Transform(Protocol):
    """One transform of the chain."""

    def apply(self, part: Part) -> Sequence[Part]:
        """What comes out; rows that are in no part are left out.

        Raises:
            InvalidValueError: the transform fails for these rows.
        """


def part_of(topic: str, batch: pa.RecordBatch) -> Part:
    """All rows of a topic's batch."""
    key, value = (Column(batch.schema.field(name), batch.column(name)) for name in ("key", "value"))
    return Part(topic, np.arange(len(batch)), key, value, batch.column("headers"), key.field, deletes_of(batch))


def is_valid(array: pa.Array) -> Mask:
    """Which values are not null."""
    found: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def is_equal(array: pa.Array, text: str) -> Mask:
    """Which texts are a certain one."""
    found: Mask = pc.equal(array, text).fill_null(False).to_numpy(zero_copy_only=False)
    return found


def is_envelope(field: pa.Field) -> bool:
    """Whether values are change events."""
    return bool(pa.types.is_struct(field.type)) and described(field).name.endswith(".Envelope")


def child(column: Column, name: str) -> Column | None:
    """A field of structs; null where the struct is."""
    index = column.field.type.get_field_index(name) if pa.types.is_struct(column.field.type) else -1
    if index < 0:
        return None
    return Column(column.field.type.field(index), pc.struct_field(column.array, index))


def struct_of(name: str, about: ConnectType, columns: Sequence[Column], absent: Mask | None = None) -> Column:
    """Structs of columns.

    Args:
        name: of the field.
        about: its schema, apart from the fields.
        columns: one at least.
        absent: which structs are null.

    Raises:
        InvalidValueError: two fields have one name.
    """
    fields = tuple(column.field for column in columns)
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidValueError("transform", twice, "a new field name", "add it under another name")
    field = replace(about, fields=fields, arrow=None).to_field(name)
    mask = None if absent is None or not absent.any() else pa.array(absent)
    return Column(
        field, pa.StructArray.from_arrays([column.array for column in columns], fields=list(fields), mask=mask)
    )


def children(column: Column) -> list[Column]:
    """The fields of structs."""
    fields = [column.field.type.field(index) for index in range(column.field.type.num_fields)]
    return [Column(field, pc.struct_field(column.array, index)) for index, field in enumerate(fields)]


def filled(column: Column) -> Column:
    """Values with the schema's default in place of null, as a getter of Connect's structs returns them."""
    connect = described(column.field)
    if connect.default is None or column.array.null_count == 0:
        return column
    return Column(column.field, pc.fill_null(column.array, _default(connect, column.array.type)))


def _default(connect: ConnectType, kind: pa.DataType) -> pa.Scalar:
    value = json.loads(connect.default or "null")
    if pa.types.is_decimal(kind):
        unscaled = Decimal(int.from_bytes(b64decode(value), "big", signed=True))
        return pa.scalar(unscaled.scaleb(-kind.scale, Context(prec=80)), kind)
    if pa.types.is_timestamp(kind):
        return pa.scalar(value * 1000, pa.int64()).cast(kind)
    if pa.types.is_date32(kind):
        return pa.scalar(value, pa.int32()).cast(kind)
    return pa.scalar(b64decode(value) if connect.kind == "bytes" else value, kind)
