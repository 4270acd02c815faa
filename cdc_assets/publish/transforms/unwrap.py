"""`ExtractNewRecordState`: the row after the change in place of the envelope.

| event | what comes out |
|---|---|
| `c`, `r`, `u` | the row, with `__deleted` = `false` in the modes that rewrite |
| `d` | as the mode says: nothing, a null that has the row's schema, a tombstone, or the old row with `__deleted` = `true` |
| tombstone | nothing, except in `rewrite-with-tombstone`: itself, with the headers that its delete was given before its own |
| truncation | nothing |
| what is no change event | itself |
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from cdc_assets.config.settings.transforms import AddedField, UnwrapSettings
from cdc_assets.errors import InvalidValueError
from cdc_assets.publish.transforms.part import (
    Column,
    Mask,
    Part,
    child,
    children,
    filled,
    is_envelope,
    is_valid,
    struct_of,
)
from cdc_assets.typemap.connect import ConnectType, described

_TEXT = ConnectType("string")
_REWRITES = ("rewrite", "rewrite-with-tombstone")


class Unwrap:
    """See the module."""

    def __init__(self, settings: UnwrapSettings) -> None:
        self._settings = settings

    @property
    def needs_deletes(self) -> bool:
        """Whether tombstones have headers of their deletes."""
        return self._settings.deletes == "rewrite-with-tombstone" and bool(self._settings.headers)

    def apply(self, part: Part) -> Sequence[Part]:
        """See `Transform`."""
        present = is_valid(part.value.array)
        found = self._tombstones(part, present) if not present.all() else []
        if not present.any():
            return found
        events = part.where(present)
        return [*found, *(self._events(events) if is_envelope(part.value.field) else [events])]

    def _tombstones(self, part: Part, present: Mask) -> list[Part]:
        """Tombstones, with the headers of their deletes where these are among the rows."""
        if self._settings.deletes != "rewrite-with-tombstone":
            return []
        at = np.searchsorted(part.rows, part.deletes)
        follows = ~present & (part.deletes >= 0) & (part.rows[at] == part.deletes) & is_envelope(part.value.field)
        deletes = Column(part.value.field, part.value.array.take(pa.array(at[follows])))
        return [
            *self._with_headers(part.where(follows), self._headers(deletes)),
            *self._with_headers(part.where(~present & ~follows), []),
        ]

    def _with_headers(self, part: Part, shared: Sequence[Column]) -> Iterator[Part]:
        """Tombstones with headers of their deletes, and what they are given themselves."""
        if len(part):
            names = [added.name for added in self._settings.headers if added.field == "op"]
            own = [_constant(name, "d", len(part), optional=False) for name in names]
            yield replace(part, added=(*part.added, *shared, *own))

    def _headers(self, value: Column) -> list[Column]:
        return [column for added in self._settings.headers if (column := _copied(value, added))]

    def _events(self, part: Part) -> Iterator[Part]:
        part = replace(part, added=(*part.added, *self._headers(part.value)))
        after, before = _required(part, "after"), _required(part, "before")
        has_after, has_before = is_valid(after.array), is_valid(before.array)
        deletes = ~has_after & has_before
        if has_after.any():
            yield from self._rows(part.where(has_after), "after", "false")
        if deletes.any() and self._settings.deletes != "drop":
            yield from self._deletes(part.where(deletes), after.field)

    def _deletes(self, part: Part, row: pa.Field) -> Iterator[Part]:
        if self._settings.deletes in _REWRITES:
            yield from self._rows(part, "before", "true")
            return
        nothing = Column(row.with_name("value"), pa.nulls(len(part), row.type))
        is_typed = self._settings.deletes == "tombstone"
        for routed in self._routed(part, _required(part, "before")):
            chosen = nothing.array.slice(0, len(routed))
            yield replace(routed, value=Column(nothing.field, chosen), value_nulls_described=is_typed)

    def _rows(self, part: Part, image: str, deleted: str) -> Iterator[Part]:
        for routed in self._routed(part, _required(part, image)):
            row = _required(routed, image)
            columns = children(row)
            if self._settings.deletes in _REWRITES:
                columns = [filled(column) for column in columns] if self._settings.fills else columns
                columns.append(_constant("__deleted", deleted, len(routed)))
            columns += [column for added in self._settings.fields if (column := _copied(routed.value, added))]
            about = replace(described(row.field), optional=False, default=None)
            yield replace(routed, value=struct_of("value", about, columns))

    def _routed(self, part: Part, row: Column) -> list[Part]:
        name = self._settings.route_by
        if not name:
            return [part]
        column = child(row, name)
        if column is None or described(column.field).kind != "string":
            raise InvalidValueError(
                "route.by.field", name, f"a text column of {part.topic}", "correct it, or add a predicate"
            )
        return part.by_topic(filled(column).array)


def _required(part: Part, name: str) -> Column:
    found = child(part.value, name)
    if found is None or not pa.types.is_struct(found.field.type):
        raise InvalidValueError("transform", part.topic, f"events with {name}", "add a predicate")
    return found


def _constant(name: str, text: str, rows: int, *, optional: bool = True) -> Column:
    field = replace(_TEXT, optional=optional).to_field(name)
    return Column(field, pa.array(np.full(rows, text), pa.string()))


def _copied(value: Column, added: AddedField) -> Column | None:
    """A part of events under its new name, optional and without default; None if events do not have it."""
    struct = child(value, added.struct) if added.struct else value
    if struct is None:
        raise InvalidValueError("add.fields", added.struct, "a struct that events have", "correct it")
    found = child(struct, added.field) or child(value, added.field)
    if found is None:
        return None
    about = described(found.field)
    if about.kind == "struct":
        raise InvalidValueError("add.fields", added.field, "a field that is no struct", "name a field in it")
    return Column(replace(about, optional=True, default=None).to_field(added.name), found.array)
