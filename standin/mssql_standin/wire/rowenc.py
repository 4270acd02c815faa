"""Rows to ROW tokens by a function written for the tuple of column types.

Neighbouring values of known size, and the length in front of a text, are packed by one `struct`
call; only a run with a NULL in it is put together value by value. Functions are cached by types.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from mssql_standin.contract import ResultColumn
from mssql_standin.sqltypes import (
    DECIMAL,
    LEGACY_LOB,
    SCALED_TIME,
    UNICODE,
    SqlType,
    Value,
    decimal_from_stored,
    offset_from_stored,
)
from mssql_standin.wire.collations import code_page
from mssql_standin.wire.typeinfo import (
    BIGVARBINARY,
    VARIANT_LIMIT,
    column_metadata,
    decimal_length,
    has_fixed_form,
    time_length,
)
from mssql_standin.wire.values import DAY_MINUTES, DAY_THIRDS, DAY_TICKS

ROW: Final = 0xD1

Encoder = Callable[[Iterable[Sequence[Value]]], tuple[int, bytes]]
"""Rows of stored values → (rows, their ROW tokens)."""

_MOST_SHAPES: Final = 2048
_GUID_FORMAT: Final = "4s2s2s2s6s"
_GUID_PARTS: Final = "{v}[12:16], {v}[10:12], {v}[8:10], {v}[6:8], {v}[0:6]"
"""The inverse of `sqltypes.GUID_ORDER` in slices."""


@dataclass(frozen=True, slots=True)
class _Field:
    """How a value of known size is packed: `struct` format and arguments for a value called {v}; length byte included."""

    format: str
    arguments: str


_SIMPLE: Final = {
    "bit": _Field("BB", "1, {v}"),
    "tinyint": _Field("BB", "1, {v}"),
    "smallint": _Field("Bh", "2, {v}"),
    "int": _Field("Bi", "4, {v}"),
    "bigint": _Field("Bq", "8, {v}"),
    "real": _Field("Bf", "4, {v}"),
    "float": _Field("Bd", "8, {v}"),
    "smallmoney": _Field("Bi", "4, {v}"),
    "money": _Field("BiI", "8, {v} >> 32, {v} & 0xFFFFFFFF"),
    "datetime": _Field("BiI", f"8, {{v}} // {DAY_THIRDS}, {{v}} % {DAY_THIRDS}"),
    "smalldatetime": _Field("BHH", f"4, {{v}} // {DAY_MINUTES}, {{v}} % {DAY_MINUTES}"),
    "date": _Field("BHB", "3, {v} & 0xFFFF, {v} >> 16"),
    "uniqueidentifier": _Field("B" + _GUID_FORMAT, "16, " + _GUID_PARTS),
}

_TIME_FORMATS: Final = {
    3: _Field("BHB", "3, (t := {t}) & 0xFFFF, t >> 16"),
    4: _Field("BI", "4, {t}"),
    5: _Field("BIB", "5, (t := {t}) & 0xFFFFFFFF, t >> 32"),
    6: _Field("BIH", "6, (t := {t}) & 0xFFFFFFFF, t >> 32"),
    7: _Field("BIHB", "7, (t := {t}) & 0xFFFFFFFF, t >> 32 & 0xFFFF, t >> 48"),
    8: _Field("BQ", "8, {t}"),
}


def _sized(sql_type: SqlType) -> _Field | None:
    """The field of a type of known size, or None."""
    if sql_type.name in _SIMPLE:
        return _SIMPLE[sql_type.name]
    if sql_type.name in DECIMAL:
        return _decimal(sql_type)
    if sql_type.name in SCALED_TIME:
        return _time(sql_type)
    return None


def _decimal(sql_type: SqlType) -> _Field:
    size = decimal_length(sql_type.precision)
    scaled = "(s := decimal_from_stored({v}))" if sql_type.is_wide_decimal else "(s := {v})"
    if size <= 8:
        return _Field("BBI" if size == 4 else "BBQ", f"{size + 1}, {scaled} >= 0, abs(s)")
    return _Field(f"BB{size}s", f"{size + 1}, {scaled} >= 0, abs(s).to_bytes({size}, 'little')")


def _time(sql_type: SqlType) -> _Field:
    size, divisor = time_length(sql_type.scale), 10 ** (7 - sql_type.scale)
    if sql_type.name == "datetimeoffset":
        return _Field(f"B{size + 5}s", f"{size + 5}, datetimeoffset({{v}}, {divisor}, {size})")
    ticks = "{v}" if sql_type.name == "time" else f"{{v}} % {DAY_TICKS}"
    clock = ticks if divisor == 1 else f"({ticks}) // {divisor}"
    if sql_type.name == "time":
        return _Field(_TIME_FORMATS[size].format, _TIME_FORMATS[size].arguments.replace("{t}", clock))
    field_ = _TIME_FORMATS[size + 3]
    return _Field(field_.format, field_.arguments.replace("{t}", f"({{v}} // {DAY_TICKS}) << {8 * size} | {clock}"))


def _datetimeoffset(stored: bytes, divisor: int, size: int) -> bytes:
    ticks, minutes = offset_from_stored(stored)
    days, clock = divmod(ticks, DAY_TICKS)
    return (clock // divisor).to_bytes(size, "little") + days.to_bytes(3, "little") + struct.pack("<h", minutes)


_PLP_NULL: Final = b"\xff" * 8


def _chunked(data: bytes) -> bytes:
    """A (max) value in one chunk; an empty one has none."""
    size = len(data)
    return struct.pack("<QI", size, size) + data + b"\0\0\0\0" if size else b"\0" * 12


_TEXT_POINTER: Final = b"\x10" + b"standin text ptr" + b"standin\0"


def _legacy_lob(data: bytes) -> bytes:
    return _TEXT_POINTER + struct.pack("<I", len(data)) + data


def _variant(data: bytes) -> bytes:
    """A sql_variant that holds a varbinary."""
    return struct.pack("<IBBH", len(data) + 4, BIGVARBINARY, 2, VARIANT_LIMIT - 9) + data


def _bytes_of(sql_type: SqlType) -> str:
    """Expression for the bytes of a text or binary value called {v}."""
    if sql_type.name in UNICODE:
        return "{v}.encode('utf-16-le', 'surrogatepass')"
    if sql_type.name in ("char", "varchar", "text"):
        page = code_page(sql_type.collation)
        return "({v}.encode() if {v}.isascii() else {v}.encode('" + page + "', 'replace'))"
    return "{v}"


def _whole(sql_type: SqlType) -> str | None:
    """Expression for the complete wire form of a type that is neither sized nor counted by two bytes."""
    data = _bytes_of(sql_type)
    if sql_type.is_max or sql_type.name in ("hierarchyid", "geometry", "geography"):
        return f"PLP_NULL if {{v}} is None else chunked({data})"
    if sql_type.name in LEGACY_LOB:
        return f"b'\\0' if {{v}} is None else legacy_lob({data})"
    if sql_type.name == "sql_variant":
        return f"b'\\0\\0\\0\\0' if {{v}} is None else variant({data})"
    if sql_type.name == "binary":  # stored at its full length
        return f"b'\\xff\\xff' if {{v}} is None else {struct.pack('<H', sql_type.length)!r} + {data}"
    return None


@dataclass(slots=True)
class _Run:
    """Neighbouring fields that one `struct` packs."""

    formats: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    nullable: list[str] = field(default_factory=list)
    """Names of values that must not be None."""
    slow: list[str] = field(default_factory=list)
    """The same, one expression for each field, any of which may be None."""


class _Writer:
    """Puts the source of an encoder together."""

    def __init__(self, row_token: bool) -> None:
        self.lines: list[str] = []
        self.pieces: list[str] = []
        self.names: dict[str, Any] = {
            "decimal_from_stored": decimal_from_stored,
            "datetimeoffset": _datetimeoffset,
            "chunked": _chunked,
            "legacy_lob": _legacy_lob,
            "variant": _variant,
            "PLP_NULL": _PLP_NULL,
        }
        self.run = _Run()
        if row_token:
            self._add(_Field("B", str(ROW)))

    def _add(self, part: _Field) -> None:
        self.run.formats.append(part.format)
        self.run.arguments.append(part.arguments)
        self.run.slow.append(f"{self._pack(part.format)}({part.arguments})")

    def _pack(self, format_: str) -> str:
        name = f"pack_{format_}"
        self.names[name] = struct.Struct("<" + format_).pack
        return name

    def column(self, place: int, sql_type: SqlType, nullable: bool) -> None:
        """Add the code for one column, whose value is called `v<place>`."""
        value = f"v{place}"
        sized, whole = _sized(sql_type), _whole(sql_type)
        if sized is not None and not nullable and has_fixed_form(sql_type):
            self._add(_Field(sized.format[1:], sized.arguments.partition(", ")[2].replace("{v}", value)))
        elif sized is not None:
            arguments = sized.arguments.replace("{v}", value)
            self.run.formats.append(sized.format)
            self.run.arguments.append(arguments)
            self.run.nullable.append(value)
            self.run.slow.append(f"(b'\\0' if {value} is None else {self._pack(sized.format)}({arguments}))")
        elif whole is not None:
            self.close_run()
            self.lines.append(f"b{place} = {whole.replace('{v}', value)}")
            self.pieces.append(f"b{place}")
        else:
            data = _bytes_of(sql_type).replace("{v}", value)
            self.lines.append(f"if {value} is None: b{place}, n{place} = b'', 65535")
            self.lines.append(f"else: b{place} = {data}; n{place} = len(b{place})")
            self._add(_Field("H", f"n{place}"))
            self.close_run()
            self.pieces.append(f"b{place}")

    def close_run(self) -> None:
        """End the fields that one `struct` packs."""
        run, self.run = self.run, _Run()
        if not run.formats:
            return
        piece = f"r{len(self.pieces)}"
        if run.arguments == [str(ROW)]:  # the same in every row; any other lone byte is a value
            self.pieces.append(repr(bytes((ROW,))))
            return
        fast = f"{self._pack(''.join(run.formats))}({', '.join(run.arguments)})"
        if run.nullable:
            missing = " or ".join(f"{name} is None" for name in run.nullable)
            self.lines.append(f"if {missing}: {piece} = {' + '.join(run.slow)}")
            self.lines.append(f"else: {piece} = {fast}")
        else:
            self.lines.append(f"{piece} = {fast}")
        self.pieces.append(piece)

    def function(self, columns: int) -> Encoder:
        """Compile."""
        self.close_run()
        values = "".join(f"v{place}, " for place in range(columns))
        body = "".join(f"        {line}\n" for line in self.lines)
        source = (
            "def encode(rows):\n    out = []\n"
            f"    for {values} in rows:\n{body}        out += ({''.join(f'{piece}, ' for piece in self.pieces)})\n"
            f"    return len(out) // {len(self.pieces)}, b''.join(out)\n"
        )
        exec(compile(source, "<row encoder>", "exec"), self.names)  # noqa: S102 - built from the types above only
        encoder: Encoder = self.names["encode"]
        return encoder


@lru_cache(maxsize=2048)
def row_encoder(types: tuple[SqlType, ...], nullable: tuple[bool, ...] = ()) -> Encoder:
    """The encoder for rows of these column types; without `nullable` every column may hold NULL."""
    return _encoder(types, nullable or (True,) * len(types), row_token=True)


def encoder_of(columns: Sequence[ResultColumn]) -> Encoder:
    """The encoder for rows under the COLMETADATA of these columns."""
    return row_encoder(tuple(column.type for column in columns), tuple(column.nullable for column in columns))


@dataclass(frozen=True, slots=True)
class Shape:
    """What is sent for a result set of certain columns."""

    columns: Sequence[ResultColumn]
    metadata: bytes
    """COLMETADATA."""
    encoder: Encoder


_SHAPES: Final[dict[int, Shape]] = {}


def shape_of(columns: Sequence[ResultColumn]) -> Shape:
    """The shape of a result set; that of a plan, whose columns are one and the same object, is made once.

    Kept by identity: the columns of a plan never change, and while a shape is kept its columns keep their identity.
    """
    found = _SHAPES.get(id(columns))
    if found is None:
        if len(_SHAPES) >= _MOST_SHAPES:
            _SHAPES.clear()
        found = _SHAPES[id(columns)] = Shape(columns, column_metadata(columns), encoder_of(columns))
    return found


@lru_cache(maxsize=2048)
def _value_encoder(sql_type: SqlType) -> Encoder:
    return _encoder((sql_type,), (True,), row_token=False)


def _encoder(types: tuple[SqlType, ...], nullable: tuple[bool, ...], row_token: bool) -> Encoder:
    writer = _Writer(row_token)
    for place, (sql_type, may_be_null) in enumerate(zip(types, nullable, strict=True)):
        writer.column(place, sql_type, may_be_null)
    return writer.function(len(types))


def encode_value(sql_type: SqlType, value: Value) -> bytes:
    """One value in its ROW form, for RETURNVALUE."""
    return _value_encoder(sql_type)(((value,),))[1]
