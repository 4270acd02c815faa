"""Adapts a topic table's structure to the events' structure.

Delta can add nullable fields, at any depth. Any other change of an event schema either does not affect readers (a field
that is no longer written stays as a nullable one) or cannot be expressed (another type): then the topic continues in a
new *generation*, a separate table, and readers see both.

The lake declares nested fields nullable even where the event schema says that they are required. Delta cannot make a
field nullable later, and a column that is dropped or made nullable at the source must not force a new generation. The
event schema's nullability is in the field's metadata (`connect.*`).

The same type with another meaning counts as another type: a `datetime` in milliseconds and a `datetime2(7)` in
nanoseconds are both int64, but must not share a column; nor may hexadecimal digits and base64. A field without metadata
of its meaning, such as one that Spark computed, is compared by its type.

The key of events is one value: with other fields it is another one, even where Delta could add them. Who folds events by key would take a
row with the key (1, NULL) and the same one with (1, 'x') for two. So these lie in different generations.
"""

from collections.abc import Iterable

import pyarrow as pa

REQUIRED = frozenset({"position", "window_id", "sequence"})
"""Top-level columns that are never null."""


def lake_schema(schema: pa.Schema) -> pa.Schema:
    """The structure of a new topic table: only positions are NOT NULL."""
    return pa.schema([_nullable(field) if field.name not in REQUIRED else field for field in schema])


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(child) for child in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    return pa.field(field.name, kind, True, field.metadata)


def is_compatible(table: pa.Schema, events: pa.Schema) -> bool:
    """Whether rows of `events` fit a table of structure `table` after missing fields are added."""
    return _has_same_key(table, events) and _fits(list(table), list(events))


def _has_same_key(table: pa.Schema, events: pa.Schema) -> bool:
    """Whether the keys of events have the same fields; any table fits that holds no topic."""
    if "position" not in table.names or "position" not in events.names:
        return True
    kinds = [schema.field("key").type for schema in (table, events) if "key" in schema.names]
    names = [{field.name for field in kind} for kind in kinds if pa.types.is_struct(kind)]
    return len(names) < 2 or names[0] == names[1]


def _fits(old: Iterable[pa.Field], new: Iterable[pa.Field]) -> bool:
    """Whether fields fit; names that differ only in letter case cannot be in one Delta table."""
    known = {field.name.lower(): field for field in old}
    return all(_same(known[field.name.lower()], field) for field in new if field.name.lower() in known)


def _same(old: pa.Field, new: pa.Field) -> bool:
    """Whether a field's values can share a column with the old ones: same type and same meaning."""
    if old.name != new.name:
        return False
    if pa.types.is_struct(old.type) and pa.types.is_struct(new.type):
        return _fits(list(old.type), list(new.type))
    described = all(b"connect.type" in (field.metadata or {}) for field in (old, new))
    return _same_type(old.type, new.type) and (
        not described or (meaning(old), _form(old)) == (meaning(new), _form(new))
    )


def _form(field: pa.Field) -> bytes:
    """Encoding of a text, such as `hex`; empty for a plain one."""
    return bytes((field.metadata or {}).get(b"lake.form", b""))


def _same_type(old: pa.DataType, new: pa.DataType) -> bool:
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return _fits(list(old), list(new))
    if pa.types.is_map(old) and pa.types.is_map(new):
        return _same_type(old.key_type, new.key_type) and _same_type(old.item_type, new.item_type)
    if pa.types.is_list(old) and pa.types.is_list(new):
        return _same_type(old.value_type, new.value_type)
    return bool(old == new)


def meaning(field: pa.Field) -> str:
    """Semantic type of a value, such as `io.debezium.time.MicroTimestamp` for an int64; empty for a plain value."""
    return str((field.metadata or {}).get(b"connect.name", b"").decode())


def fields_to_add(table: pa.Schema, events: pa.Schema) -> list[pa.Field]:
    """Top-level fields of `events` with content that `table` lacks, in the lake's nullable form.

    A struct that the table has contains only the missing fields: Delta refuses to merge fields whose metadata differ,
        such as one that has become optional.
    """
    return _missing(list(table), list(events))


def _missing(old: Iterable[pa.Field], new: Iterable[pa.Field]) -> list[pa.Field]:
    known = {field.name: field for field in old}
    found = []
    for field in new:
        if field.name not in known:
            found.append(_nullable(field))
        elif inner := _inner_missing(known[field.name].type, field.type):
            found.append(known[field.name].with_type(inner))
    return found


def _inner_missing(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """A nested type reduced to the missing fields; None if nothing is missing."""
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        fields = _missing(list(old), list(new))
        return pa.struct(fields) if fields else None
    if pa.types.is_list(old) and pa.types.is_list(new):
        inner = _inner_missing(old.value_type, new.value_type)
        return None if inner is None else pa.list_(old.value_field.with_type(inner))
    return None
