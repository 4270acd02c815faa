"""Structure of captured tables as the catalogue describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn

NEVER_IN_BEFORE_IMAGE = frozenset({"text", "ntext", "image"})
"""Types whose old value the log never contains."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a source table.

    Args:
        name: as in the catalogue.
        type_name: system type in lower case without length, such as `nvarchar`; for an alias type its base type.
        ordinal: position in the table, from 1 (`sys.columns.column_id` order).
        nullable: whether NULL is allowed.
        length: declared length in characters (char types) or bytes (binary types); -1 for `(max)`; None elsewhere.
        precision: decimal precision, or None.
        scale: decimal scale or fractional-second digits, or None.
        identity: whether the column is an identity column.
        computed: whether the column is computed (NULL in change tables).
        default: default expression in catalogue form such as `((1))`, or None.
        alias: name of the alias type the column was declared with, or None.
        collation: collation name of a character column, or None.
        description: what the server's `MS_Description` says; two columns that differ in it only are equal.
    """

    name: str
    type_name: str
    ordinal: int
    nullable: bool = True
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    identity: bool = False
    computed: bool = False
    default: str | None = None
    alias: str | None = None
    collation: str | None = None
    description: str | None = field(default=None, compare=False)

    @property
    def is_large(self) -> bool:
        """Whether the log omits an unchanged value: `(max)`, xml, text, ntext, image."""
        return self.length == -1 or self.type_name in {"xml", *NEVER_IN_BEFORE_IMAGE}


def declared_type(column: Column) -> str:
    """The column's type as written in DDL, such as `decimal(10, 2)`; an alias type as its base type."""
    if column.length is not None:
        return f"{column.type_name}({'max' if column.length < 0 else column.length})"
    if column.precision is not None:
        return f"{column.type_name}({column.precision}, {column.scale})"
    return column.type_name if column.scale is None else f"{column.type_name}({column.scale})"


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Columns and key of a source table.

    Args:
        object_id: `sys.objects.object_id`; distinguishes a re-created table from the old one.
        columns: in ordinal order.
        key: names of the primary key's columns in key order, or of the first unique index; empty if there is none.
        description: of the table, as of its columns.
    """

    table: TableId
    object_id: int
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    description: str | None = field(default=None, compare=False)

    def column(self, name: str) -> Column | None:
        """The column with exactly that name, or None."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def descriptions(self) -> tuple[str | None, ...]:
        """Of the table and of each of its columns; what a cache by structure has to distinguish besides."""
        return (self.description, *(column.description for column in self.columns))

    def described(self, texts: Mapping[int, str]) -> Self:
        """The structure with these descriptions, by ordinal of the column; 0 is the table."""
        columns = tuple(replace(column, description=texts.get(column.ordinal)) for column in self.columns)
        return replace(self, columns=columns, description=texts.get(0))

    def to_data(self) -> dict[str, Any]:
        """As JSON data, an object for each dataclass; `dataclasses.asdict` takes ten times as long."""
        data = {
            "table": _fields(self.table),
            "object_id": self.object_id,
            "columns": [_fields(column) for column in self.columns],
            "key": list(self.key),
        }
        return data | ({"description": self.description} if self.description else {})

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_data`, also after a round trip through JSON.

        Raises:
            KeyError, TypeError: the data are of another form.
        """
        columns = tuple(Column(**column) for column in data["columns"])
        description = data.get("description")
        return cls(TableId(**data["table"]), data["object_id"], columns, tuple(data["key"]), description)


def _fields(record: TableId | Column) -> dict[str, Any]:
    """A flat dataclass as JSON data; without a description that is not there."""
    values = {name: getattr(record, name) for name in record.__slots__}
    if values.get("description", "") is None:
        del values["description"]
    return values


@dataclass(frozen=True, slots=True)
class InstanceId:
    """Which capture instance: its name is not enough, for it may be given again when the instance is dropped.

    Args:
        name: unique in its database while it exists.
        created: when it was made, server time without zone.
        change_table_id: object id of its change table.
    """

    name: str
    created: datetime | None = None
    change_table_id: int | None = None


@dataclass(frozen=True, slots=True)
class CaptureInstance:
    """One row of `cdc.change_tables` with its columns.

    Args:
        table: source table.
        source_object_id: `object_id` of the source table; a different one means a re-created table of that name.
        name: capture instance name; its change table is `cdc.[<name>_CT]`.
        start_lsn: low-water mark: changes at or after it can be read.
        columns: captured column names in `captured_columns` order, which is the bit order of the update mask.
        created: when the instance was made, server time.
        column_ids: ids of these columns in the source table; a column that was dropped and made again has another one.
        altered: LSN of the newest statement that changed the table since (`cdc.ddl_history`), or None.
        change_table_id: object id of its change table; None if unknown.
    """

    table: TableId
    source_object_id: int
    name: str
    start_lsn: Lsn
    columns: tuple[str, ...] = field(default=())
    created: datetime | None = None
    column_ids: tuple[int, ...] = field(default=())
    altered: Lsn | None = None
    change_table_id: int | None = None

    @property
    def identity(self) -> InstanceId:
        """Distinguishes it from another instance of its name."""
        return InstanceId(self.name, self.created, self.change_table_id)

    @property
    def age(self) -> tuple[Lsn, datetime]:
        """Sorts the instances of a table, the oldest first."""
        return self.start_lsn, self.created or datetime.min  # noqa: DTZ901 - server time without zone on both sides

    @property
    def change_table(self) -> TableId:
        """The table that holds its change rows."""
        return TableId(self.table.database, "cdc", f"{self.name}_CT")


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    """Options with which a capture instance was created, other than its columns (`cdc.change_tables`).

    Args:
        role: gating role, or None.
        net_changes: whether net changes can be queried.
        index: unique index that identifies rows, or None for the primary key.
        filegroup: file group of the change table, or None for the default one.
        partition_switch: whether partitions may be switched.
    """

    role: str | None = None
    net_changes: bool = False
    index: str | None = None
    filegroup: str | None = None
    partition_switch: bool = True
