"""The columns of a mirror: those of the source table in natural types, and those that show when a row came to be.

`current` has the source's columns, `_lsn` (of the commit that made the row what it is) and `_changed_at` (its time).
`history` has the same columns of a version that has ended, and from when to when it was the row.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from cdc_assets.lake.row_shape import AT, CHANGED_AT, RowColumn, RowShape

KEYLESS = "rows"
"""First word of the `key_text` of a table without a key."""

LSN = "_lsn"
FROM_LSN, TO_LSN, FROM_AT, TO_AT = "_valid_from_lsn", "_valid_to_lsn", "_valid_from", "_valid_to"
ENDED_BY, STEP = "_operation", "_step"
OWN = (LSN, CHANGED_AT)
OWN_OF_HISTORY = (FROM_LSN, TO_LSN, FROM_AT, TO_AT, ENDED_BY, STEP)

OF_KEY = "_key_"
"""Prefix of columns that hold values of the key that rows do not show, or show masked."""
COMMENT = "comment"
"""Key of a field's metadata under which Delta and Spark keep the comment of a column."""


_SOURCE = "cdc.source.column"


def comment_of(field: pa.Field) -> str:
    """Comment of a column in a Delta table, empty for none."""
    text: bytes = (field.metadata or {}).get(COMMENT.encode(), b"")
    return text.decode()


def is_of_source(field: pa.Field) -> bool:
    """Whether a column of a mirror holds a value of the source's present structure."""
    return _SOURCE.encode() in (field.metadata or {})


def has_bounds(kind: pa.DataType) -> bool:
    """Whether the least and the greatest of any values of a type can be written as JSON."""
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_string(kind))


@dataclass(frozen=True, slots=True)
class ShapeColumn(RowColumn):
    """A column of a mirror.

    Args:
        note: what the type cannot hold.
        source: name of the column in the source; empty if its structure is not known.
        source_type: its declared type.
        former: whether only an earlier life of the table had it.
        comment: what the source says about it.
    """

    note: str = ""
    source: str = ""
    source_type: str = ""
    former: bool = False
    comment: str = ""

    def field(self) -> pa.Field:
        """The column in a Delta table."""
        about = {_SOURCE: self.source, "cdc.source.type": self.source_type, "cdc.note": self.note}
        about[COMMENT] = self.comment
        metadata = {key: value for key, value in about.items() if value}
        return pa.field(self.name, self.type, self.nullable, metadata or None)


@dataclass(frozen=True)
class Shape(RowShape):
    """The structure of a mirror; picklable.

    Args:
        columns: in the source's order, then those of the key only.
    """

    columns: tuple[ShapeColumn, ...]

    def current_generation(self) -> "Shape":
        """The shape without columns that only earlier lives of the table had."""
        return replace(self, columns=tuple(column for column in self.columns if not column.former))

    def keeping(self, known: pa.Schema) -> "Shape":
        """The shape with columns that the mirror's table has and the source has no longer; they stay, as NULL."""
        names = {name.lower() for name in (*self.names, *OWN)}
        former = [field for field in known if field.name.lower() not in names]
        if not former:
            return self
        kept = [ShapeColumn(field.name, field.type, note="the source no longer has it") for field in former]
        return replace(self, columns=(*self.columns, *kept))

    def is_misspelt(self, known: pa.Schema) -> bool:
        """Whether the mirror's table has a column that another one of the source differs from by letter case only: Delta has not both."""
        own = {name.lower(): name for name in self.names}
        return any(own.get(name.lower(), name) != name for name in known.names)

    @cached_property
    def current(self) -> pa.Schema:
        """Columns of `current`."""
        return pa.schema(
            [column.field() for column in self.columns] + [pa.field(LSN, pa.string(), False), pa.field(CHANGED_AT, AT)]
        )

    @cached_property
    def history(self) -> pa.Schema:
        """Columns of `history`."""
        ends = [pa.field(FROM_LSN, pa.string(), False), pa.field(TO_LSN, pa.string(), False)]
        times = [pa.field(FROM_AT, AT), pa.field(TO_AT, AT)]
        own = [pa.field(ENDED_BY, pa.string(), False), pa.field(STEP, pa.int64(), False)]
        return pa.schema([column.field().with_nullable(True) for column in self.columns] + ends + times + own)

    @cached_property
    def rows(self) -> pa.Schema:
        """Columns of `current` in memory: all nullable, without metadata."""
        return pa.schema([*self.values, pa.field(LSN, pa.string()), pa.field(CHANGED_AT, AT)])

    @cached_property
    def versions(self) -> pa.Schema:
        """Columns of `history` in memory, without the step."""
        ends = [pa.field(name, pa.string()) for name in (FROM_LSN, TO_LSN)]
        times = [pa.field(name, AT) for name in (FROM_AT, TO_AT)]
        return pa.schema([*self.values, *ends, *times, pa.field(ENDED_BY, pa.string())])

    @cached_property
    def bounded(self) -> list[str]:
        """Columns of the key whose least and greatest values every file of `current` tells."""
        own = {column.name: column for column in self.columns}
        key = [own[part.name] for part in self.key] if self.keyed else []
        return [one.name for one in key if not one.nullable and has_bounds(one.type) and one.name.isidentifier()]

    @property
    def key_text(self) -> str:
        """What a mirror's leaves depend on: another text needs them rebuilt."""
        types = {column.name: str(column.type) for column in self.columns}
        parts = [f"{part.name} {types[part.name]} {part.padded:d}{part.folded:d}" for part in self.key]
        return f"{'key' if self.keyed else KEYLESS} {self.key_type}: {', '.join(parts)}"

    def as_events(self, rows: pa.Table) -> pa.Table:
        """Rows as the events that would make them."""
        count = rows.num_rows
        columns = [rows[name] for name in self.names]
        columns += [rows[LSN], pa.repeat(pa.scalar("c", pa.string()), count), rows[CHANGED_AT]]
        columns += [pa.repeat(pa.scalar(False), count) for _ in self.large]
        return pa.Table.from_arrays(columns, schema=self.events)

    def as_rows(self, events: pa.Table, lsn: pa.ChunkedArray) -> pa.Table:
        """Rows that events made, each with the LSN of its commit."""
        columns = [events[name] for name in self.names]
        return pa.Table.from_arrays([*columns, lsn, events[CHANGED_AT]], schema=self.rows)

    def ended(self, rows: pa.Table, lsn: pa.Array, at: pa.Array, operation: pa.Array) -> pa.Table:
        """Versions that ended at an LSN; texts stay in the form in which they come."""
        columns = [rows[name] for name in self.names]
        columns += [rows[LSN], lsn, rows[CHANGED_AT], at, operation]
        return pa.Table.from_arrays(columns, names=self.versions.names)

    def no_rows(self) -> pa.Table:
        """An empty table."""
        return self.rows.empty_table()
