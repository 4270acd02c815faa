"""Values of a mirror's rows that the new types of their columns cannot hold.

A table that is read again with another type of a column gets the rows that were read in one step, and its former rows end in it. In `current`
a value has the new type; in `history` a version has what it had. While the step is folded, a value that the new type does not hold exactly
lies in a column of its own beside it. Nothing that was read has such a value: the row differs from it, and its
version ends.
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.kernels import mask_of
from cdc_assets.mirror.natural import cast
from cdc_assets.mirror.shape import Shape, ShapeColumn
from cdc_assets.mirror.texts import in_form, plain_type, whole

_FORMER = "\0former:"
"""Prefix of the columns of former values; no column of a source has a NUL in its name."""


def with_former(shape: Shape, fields: Sequence[pa.Field]) -> Shape:
    """A shape with columns for former values.

    Args:
        fields: columns of the shape in the types that they have in the files.
    """
    extra = tuple(ShapeColumn(_FORMER + field.name, field.type) for field in fields)
    return replace(shape, columns=(*shape.columns, *extra)) if extra else shape


def former_rows(shape: Shape, fields: Sequence[pa.Field]) -> pa.Schema:
    """Columns of rows as the files have them."""
    own = {field.name: field for field in fields}
    return pa.schema([own.get(field.name, field) for field in shape.rows])


def converted(rows: pa.Table, shape: Shape, fields: Sequence[pa.Field]) -> pa.Table:
    """Rows of the files in the types of a shape `with_former`.

    Args:
        rows: with the columns `former_rows`.
    """
    for field in fields:
        old = _in_type(rows[field.name], field.type)
        new = cast(old, shape.rows.field(field.name).type)
        held = mask_of(pc.equal(cast(new, old.type), old))
        rows = rows.set_column(rows.schema.get_field_index(field.name), field.name, new)
        rows = rows.append_column(_FORMER + field.name, pc.if_else(pa.array(held), pa.scalar(None, old.type), old))
    return rows.select(with_former(shape, fields).rows.names) if fields else rows


def as_they_were(ended: pa.Table, fields: Sequence[pa.Field], history: pa.Schema) -> pa.Table:
    """Versions with their former values, in the types of `history`."""
    for field in fields:
        kind = history.field(field.name).type
        own, new = (_in_type(ended[name], kind) for name in (_FORMER + field.name, field.name))
        ended = ended.set_column(ended.schema.get_field_index(field.name), field.name, pc.coalesce(own, new))
    return ended


def _in_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    return cast(whole(in_form(column, plain_type(column.type))), kind)
