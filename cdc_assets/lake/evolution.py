"""How a topic table's structure follows the events' structure.

Delta can add nullable fields, at any depth. Everything else an event schema
does is either no change for readers (a field that is no longer written stays as
a nullable one) or cannot be expressed (another type): then the topic goes on in
a new *generation*, a table of its own, and readers see both (design §3).

The lake declares nested fields nullable even where the event schema says that
they are required. Delta cannot loosen a field later, and a column that is
dropped or made nullable at the source must not force a new generation. What the
event schema said travels in the field's metadata (`connect.*`).
"""

from collections.abc import Iterable

import pyarrow as pa

REQUIRED = frozenset({"position", "window_id", "sequence"})
"""Top-level columns that no row lacks."""


def lake_schema(schema: pa.Schema) -> pa.Schema:
    """The structure a topic table is made with: only positions are NOT NULL."""
    return pa.schema([_nullable(field) if field.name not in REQUIRED else field for field in schema])


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(child) for child in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    return pa.field(field.name, kind, True, field.metadata)


def is_compatible(table: pa.Schema, events: pa.Schema) -> bool:
    """Whether rows of `events` fit a table of structure `table` once missing fields were added."""
    return _fits(list(table), list(events))


def _fits(old: Iterable[pa.Field], new: Iterable[pa.Field]) -> bool:
    known = {field.name: field.type for field in old}
    return all(_same(known[field.name], field.type) for field in new if field.name in known)


def _same(old: pa.DataType, new: pa.DataType) -> bool:
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return _fits(list(old), list(new))
    if pa.types.is_map(old) and pa.types.is_map(new):
        return _same(old.key_type, new.key_type) and _same(old.item_type, new.item_type)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return _same(old.value_type, new.value_type)
    return bool(old == new)


def fields_to_add(table: pa.Schema, events: pa.Schema) -> list[pa.Field]:
    """Top-level fields of `events` that hold something `table` lacks, in the lake's nullable form."""
    known = {field.name: field for field in table}
    return [
        _nullable(field)
        for field in events
        if field.name not in known or not _covers(known[field.name].type, field.type)
    ]


def _covers(old: pa.DataType, new: pa.DataType) -> bool:
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        known = {field.name: field.type for field in old}
        return all(field.name in known and _covers(known[field.name], field.type) for field in new)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return _covers(old.value_type, new.value_type)
    return True
