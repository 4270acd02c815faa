"""Maps a column of SQL Server to its event type, wire form and conversion (spec debezium-sqlserver §5)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from cdc_assets.config.settings import BinaryMode, EventSettings
from cdc_assets.core.schema import Column
from cdc_assets.typemap.connect import ConnectType
from cdc_assets.typemap.decimals import DECIMALS, decimal_form
from cdc_assets.typemap.temporal import TEMPORAL, Convert, temporal_form
from cdc_assets.typemap.textforms import base64, hexadecimal
from cdc_assets.typemap.wire import Wire, wire_of

BINARIES = frozenset({"binary", "varbinary", "image", "rowversion", "timestamp", "hierarchyid"})

_LITERAL = {
    "bit": "boolean",
    "tinyint": "int16",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "real": "float",
    "xml": "string",
    "uniqueidentifier": "string",
}


@dataclass(frozen=True)
class MappedColumn:
    """A column with all that is needed to convert its values to event values.

    Args:
        column: column of the source table.
        connect: event type without default; optional if the column is nullable, or computed (null in the log).
        wire: form in which it is queried and read.
        convert: function from the canonical form to the event value.
    """

    column: Column
    connect: ConnectType
    wire: Wire
    convert: Convert

    @property
    def large(self) -> bool:
        """Whether the log omits an unchanged value: `(max)`, xml, text, ntext, image."""
        return self.column.is_large


def same(array: pa.Array) -> pa.Array:
    """The canonical value, unchanged."""
    return array


def map_column(column: Column, settings: EventSettings) -> MappedColumn | None:
    """The mapping of a column, or None if events cannot hold its type.

    Not supported: sql_variant, geometry, geography and types unknown to this release.
    """
    wire = wire_of(column)
    if wire is None:
        return None
    connect, convert = _form(column, settings)
    return MappedColumn(column, replace(connect, optional=column.nullable or column.computed), wire, convert)


def _form(column: Column, settings: EventSettings) -> tuple[ConnectType, Convert]:
    name = column.type_name
    if name in TEMPORAL:
        return temporal_form(name, fraction_digits(column), settings.time_mode)
    if name in DECIMALS:
        return decimal_form(column, settings.decimal_mode)
    if name in BINARIES:
        return _BINARY[settings.binary_mode]
    if name == "float":
        return ConnectType("float" if column.precision is not None and column.precision <= 24 else "double"), same
    return ConnectType(_LITERAL.get(name, "string")), same


def fraction_digits(column: Column) -> int:
    """Digits of fractional seconds that the column stores."""
    if column.type_name in ("time", "datetime2", "datetimeoffset"):
        return 7 if column.scale is None else column.scale
    return 3 if column.type_name == "datetime" else 0


_BINARY: dict[BinaryMode, tuple[ConnectType, Callable[[pa.Array], pa.Array]]] = {
    "bytes": (ConnectType("bytes"), same),
    "base64": (ConnectType("string", form="base64"), base64),
    "base64-url-safe": (ConnectType("string", form="base64-url-safe"), partial(base64, url_safe=True)),
    "hex": (ConnectType("string", form="hex"), hexadecimal),
}
