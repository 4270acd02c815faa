"""Arrow columns from the bytes that an engine's process made in Arrow's layout (`Column.java`); nothing is parsed or copied."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from cdc_assets.connectors.engine.schemas import topic_schema
from cdc_assets.core.repeated import repeated

_HEAD: Final = struct.Struct("<4i")
_REPEATED: Final = ("source", "transaction", "op")
"""Fields of an envelope whose texts are written to files as runs."""
_MIN_TIMES: Final = 1 << 15

Schema = Mapping[str, Any]


def fields_of(key: Schema | None, value: Schema | None) -> list[pa.Field]:
    """The columns of the events of one topic with one pair of Connect's schemas, in the order in which they come.

    Raises:
        EngineError: the lake has no type for a field.
    """
    fields = [field for field in topic_schema(key, value) if field.name in ("key", "value", "headers")]
    return [pa.field("n", pa.int64()), *fields]


def read_columns(fields: Sequence[pa.Field], body: bytes) -> pa.Table:
    """The events; instead of the position there is `n`, the index in the chunk.

    The bytes live as long as any column of the table does.

    Args:
        fields: from `fields_of`.
        body: the columns.
    """
    parts = _Parts(body)
    columns = {field.name: parts.array(field.type, field.name == "value") for field in fields}
    missing = {name: pa.nulls(len(columns["n"])) for name in ("key", "value") if name not in columns}
    schema = pa.schema([*fields, *(pa.field(name, array.type) for name, array in missing.items())])
    return pa.Table.from_arrays([*columns.values(), *missing.values()], schema=schema)


class _Parts:
    """Reads columns one after the other."""

    def __init__(self, body: bytes) -> None:
        self._body, self._buffer, self._at = body, pa.py_buffer(body), 0

    def array(self, kind: pa.DataType, is_event: bool = False, repeats: bool = False) -> pa.Array:
        """The next column.

        Args:
            kind: its type.
            is_event: whether it holds the events' values.
            repeats: whether its texts go into files as runs.
        """
        single, rows, nulls, size = _HEAD.unpack_from(self._body, self._at)
        self._at += _HEAD.size
        if nulls == rows:
            return pa.nulls(rows, kind)
        valid = self._take((rows + 7) // 8) if nulls else None
        if single:
            return _same(self._take(size).to_pybytes().decode(), rows, repeats)
        if pa.types.is_struct(kind):
            inner = [
                self.array(field.type, repeats=repeats or (is_event and field.name in _REPEATED)) for field in kind
            ]
            return pa.Array.from_buffers(kind, rows, [valid], nulls, children=inner)
        if pa.types.is_map(kind):
            ends, keys, items = self._take(4 * rows + 4), self.array(kind.key_type), self.array(kind.item_type)
            entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
            return pa.Array.from_buffers(kind, rows, [valid, ends], nulls, children=[entries])
        if pa.types.is_list(kind):
            ends = self._take(4 * rows + 4)
            return pa.Array.from_buffers(kind, rows, [valid, ends], nulls, children=[self.array(kind.value_type)])
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return pa.Array.from_buffers(kind, rows, [valid, self._take(4 * rows + 4), self._take(size)], nulls)
        return pa.Array.from_buffers(kind, rows, [valid, self._take((kind.bit_width * rows + 7) // 8)], nulls)

    def _take(self, size: int) -> pa.Buffer:
        found = self._buffer.slice(self._at, size)
        self._at += size + -size % 8
        return found


def _same(text: str, rows: int, repeats: bool) -> pa.Array:
    """A text in every row."""
    if not repeats or not text:
        return pa.repeat(text, rows)
    return repeated((text,), max(_MIN_TIMES, 1 << (rows - 1).bit_length())).array.slice(0, rows)
