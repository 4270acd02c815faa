"""Describes rows that hold null where their structure says that they never do.

There are such: a `datetime2(7)` that events cannot hold (`event.converting.failure.handling.mode`), a column that was dropped, rows that
were written before a column was added. Avro has no bytes for such a null, and Connect's JSON converter refuses it. So these rows, and no others,
have a schema in which the field may be null; it has no default there, which would be read in place of the null.

Records of one name must be alike in one schema, so a field is optional in all of them.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.kernels import Numbers
from cdc_assets.typemap.connect import described

FieldPath = tuple[str, str]
"""Name of a record, and of one of its fields."""


def by_description(field: pa.Field, array: pa.Array) -> Sequence[tuple[Numbers | None, pa.Field]]:
    """Numbers of rows with the field that describes them; None stands for all rows.

    Args:
        field: made by `ConnectType.to_field`.
        array: its values.
    """
    present = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    found: dict[FieldPath, Numbers] = {}
    for path, nulls in _nulls(field, array, present):
        found[path] = found[path] | nulls if path in found else nulls
    if not found:
        return [(None, field)]
    patterns, own = np.unique(np.column_stack(list(found.values())), axis=0, return_inverse=True)
    own = own.reshape(-1)
    return [
        (
            np.flatnonzero(own == number),
            _optional(field, {path for path, is_null in zip(found, pattern, strict=True) if is_null}),
        )
        for number, pattern in enumerate(patterns)
    ]


def _nulls(field: pa.Field, array: pa.Array, present: Numbers | None) -> Iterator[tuple[FieldPath, Numbers]]:
    """Required fields of records that are null in some rows, and these rows.

    Args:
        present: rows of which the record is there; None for all.
    """
    if not pa.types.is_struct(array.type) or b"connect.type" not in (field.metadata or {}):
        return
    if present is not None and not present.any():
        return
    connect = described(field)
    for index, child in enumerate(connect.fields):
        values, inside = array.field(index), present
        is_required = (child.metadata or {}).get(b"connect.optional") == b"false"
        if values.null_count and (is_required or pa.types.is_struct(values.type)):
            nulls = pc.is_null(values).to_numpy(zero_copy_only=False)
            missing = nulls if present is None else nulls & present
            if is_required and missing.any():
                yield (connect.name, child.name), missing
            inside = ~nulls if present is None else present & ~nulls
        yield from _nulls(child, values, inside)


def _optional(field: pa.Field, paths: set[FieldPath]) -> pa.Field:
    """A field with some fields of its records optional, and without their defaults."""
    if not paths or not pa.types.is_struct(field.type) or b"connect.type" not in (field.metadata or {}):
        return field
    name, children = described(field).name, []
    for child in field.type:
        child = _optional(child, paths)
        if (name, child.name) in paths:
            known = {key: text for key, text in (child.metadata or {}).items() if key != b"connect.default"}
            child = child.with_metadata(known | {b"connect.optional": b"true"})
        children.append(child)
    return field.with_type(pa.struct(children))
