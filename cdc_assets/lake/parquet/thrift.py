"""Thrift's compact protocol, as far as Parquet's footers and page headers use it.

A struct is read into a dictionary by field number, without knowledge of what the fields mean: so a field that a later writer
adds is kept when a struct is changed and written again.
"""

from collections.abc import Mapping
from typing import Any, Final

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
"""Types of the protocol; a boolean field has only its type."""
_LONG_LIST: Final = 15
_SMALL_INTEGERS: Final = (I16, I32, I64)

Struct = dict[int, tuple[int, Any]]
"""Type and value by field number. The value of a list is the type of its elements and the elements."""


def read_struct(data: bytes, at: int = 0) -> tuple[Struct, int]:
    """The struct that begins there, and where it ends.

    Raises:
        ValueError: a type that Parquet does not use.
    """
    found: Struct = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = _read_integer(data, at)
        value, at = (kind == TRUE, at) if kind <= FALSE else _read(data, at, kind)
        found[number] = kind, value
    return found, at + 1


def _read(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in _SMALL_INTEGERS:
        return _read_integer(data, at)
    if kind == BINARY:
        size, at = _read_size(data, at)
        return data[at : at + size], at + size
    if kind == STRUCT:
        return read_struct(data, at)
    if kind in (LIST, SET):
        return _read_list(data, at)
    if kind == DOUBLE:
        return data[at : at + 8], at + 8
    if kind in (BYTE, TRUE, FALSE):
        return data[at], at + 1
    raise ValueError(f"Thrift type {kind}")


def _read_list(data: bytes, at: int) -> tuple[tuple[int, list[Any]], int]:
    size, kind, at = data[at] >> 4, data[at] & 15, at + 1
    if size == _LONG_LIST:
        size, at = _read_size(data, at)
    elements = []
    for _ in range(size):
        element, at = _read(data, at, kind)
        elements.append(element)
    return (kind, elements), at


def _read_size(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    if value < 128:
        return value, at + 1
    value, shift = value & 127, 7
    while True:
        at += 1
        value |= (data[at] & 127) << shift
        if data[at] < 128:
            return value, at + 1
        shift += 7


def _read_integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = _read_size(data, at)
    return (value >> 1) ^ -(value & 1), at


def struct_bytes(fields: Mapping[int, tuple[int, Any]]) -> bytes:
    """A struct as bytes; fields are written by their numbers."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


def _write_struct(out: bytearray, fields: Mapping[int, tuple[int, Any]]) -> None:
    last = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if kind <= FALSE:
            kind = TRUE if value else FALSE
        if number - last < _LONG_LIST + 1:
            out.append(number - last << 4 | kind)
        else:
            out.append(kind)
            _write_size(out, number << 1)
        last = number
        if kind > FALSE:
            _write(out, kind, value)
    out.append(0)


def _write(out: bytearray, kind: int, value: Any) -> None:
    if kind in _SMALL_INTEGERS:
        _write_size(out, value << 1 if value >= 0 else (-value << 1) - 1)
    elif kind == BINARY:
        _write_size(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        inner, elements = value
        if len(elements) < _LONG_LIST:
            out.append(len(elements) << 4 | inner)
        else:
            out.append(_LONG_LIST << 4 | inner)
            _write_size(out, len(elements))
        for element in elements:
            _write(out, inner, element)
    elif kind == DOUBLE:
        out += value
    else:
        out.append(value)


def size_bytes(value: int) -> bytes:
    """A number that is not negative, seven bits a byte, as sizes and runs are written."""
    out = bytearray()
    _write_size(out, value)
    return bytes(out)


def _write_size(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
