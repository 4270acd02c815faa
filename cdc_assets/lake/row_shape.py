"""The rows that events are about: their columns, what tells them apart, and the form in which events of them are read (`lake.events`)."""

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from cdc_assets.lake.keys import KeyPart, encode, is_number

CHANGED_AT = "_changed_at"
POSITION, OPERATION, MISSING = "\0position", "\0op", "\0missing:"
"""Columns of events: position in the topic, `c`, `u`, `d` or `r`, and whether the log omitted a column's value. They lie beside the
source's, which may have any name, `__op` too, but none with a NUL."""

AT = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column of rows.

    Args:
        name: as in the source; a key's value that events hold in the key alone is in `_key_<name>`.
        nullable: whether a row may lack a value.
        large: whether events may omit an unchanged value.
    """

    name: str
    type: pa.DataType
    nullable: bool = True
    large: bool = False


@dataclass(frozen=True)
class RowShape:
    """The structure of rows; picklable.

    Args:
        columns: with the source's values.
        key: what tells rows apart.
        keyed: whether the key identifies a row; otherwise rows are a multiset.
        own_key: whether it is the table's own. If it is the message key alone, an event with which a row gets another one may
            omit values that only events with the former key have.
    """

    columns: tuple[RowColumn, ...]
    key: tuple[KeyPart, ...]
    keyed: bool = True
    own_key: bool = True

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns with the source's values."""
        return [column.name for column in self.columns]

    @cached_property
    def large(self) -> list[str]:
        """Names of the columns whose value an event may omit."""
        return [column.name for column in self.columns if column.large]

    @cached_property
    def values(self) -> list[pa.Field]:
        """Columns with the source's values: all nullable, without metadata."""
        return [pa.field(column.name, column.type) for column in self.columns]

    @cached_property
    def events(self) -> pa.Schema:
        """Columns of events in the types of the rows."""
        own = [pa.field(POSITION, pa.string()), pa.field(OPERATION, pa.string()), pa.field(CHANGED_AT, AT)]
        return pa.schema([*self.values, *own, *(pa.field(MISSING + name, pa.bool_()) for name in self.large)])

    @cached_property
    def event_names(self) -> list[str]:
        """Names of the columns of events."""
        return list(self.events.names)

    @cached_property
    def key_type(self) -> pa.DataType:
        """Type of `keys`: a number if one column that is never null holds it, else bytes."""
        own = {column.name: column for column in self.columns}
        first = own[self.key[0].name]
        is_one = len(self.key) == 1 and is_number(first.type) and not first.nullable
        return pa.int64() if is_one and self.keyed else pa.binary()

    def keys(self, table: pa.Table) -> pa.Array:
        """Keys of rows or events."""
        return encode(table, self.key, self.key_type)
