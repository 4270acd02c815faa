"""How the columns of a mirror's tables follow those of the source."""

import pyarrow as pa

from cdc_assets.mirror.shape import OWN_OF_HISTORY, Shape


def is_widened(known: pa.Schema, wanted: pa.Schema) -> bool:
    """Whether a table becomes the wanted one by adding nullable columns only."""
    own = {field.name: field for field in known}
    for field in wanted:
        old = own.get(field.name)
        if old is None and not field.nullable:
            return False
        if old is not None and (old.type != field.type or (field.nullable and not old.nullable)):
            return False
    return True


def retyped_from(known: pa.Schema, shape: Shape) -> tuple[pa.Field, ...]:
    """Columns of a table that have another type in a shape, as the table has them."""
    new = {field.name: field.type for field in shape.rows}
    changed = [field for field in known if new.get(field.name, field.type) != field.type]
    return tuple(pa.field(field.name, field.type) for field in changed)


def history_schema(known: pa.Schema, shape: Shape) -> pa.Schema:
    """Columns of `history`: those of the shape, and those that earlier versions had.

    A column that has another type now has the wider one of both, or text if there is none: nothing that was recorded is
    lost.
    """
    old = {field.name: field for field in known if field.name not in OWN_OF_HISTORY}
    new = {field.name: field for field in shape.history if field.name not in OWN_OF_HISTORY}
    fields = [
        field.with_type(wider(old[name].type, field.type)) if name in old else field for name, field in new.items()
    ]
    fields += [field for name, field in old.items() if name not in new]
    return pa.schema([*fields, *(field for field in shape.history if field.name in OWN_OF_HISTORY)])


def wider(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """A type that holds the values of both."""
    if old == new:
        return new
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        scale = max(old.scale, new.scale)
        whole = max(old.precision - old.scale, new.precision - new.scale)
        return pa.decimal128(whole + scale, scale) if whole + scale <= 38 else pa.string()
    if pa.types.is_integer(old) and pa.types.is_integer(new):
        return old if old.bit_width > new.bit_width else new
    if pa.types.is_floating(old) and pa.types.is_floating(new):
        return pa.float64()
    if {old, new} == {pa.date32(), pa.timestamp("us")}:
        return pa.timestamp("us")
    return pa.string()
