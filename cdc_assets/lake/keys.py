"""The order of rows: each has a key that is one number or one piece of bytes, and compares as such.

A key is what tells rows apart: the columns of the message key, or, for a table without a key, all columns that the log
always holds. One integer or date is its own key. Everything else is encoded column by column so that the order of the
bytes is the order of the values, and two keys are equal exactly if all columns are: a first byte tells NULL, numbers
have fixed width, texts end with a pair of bytes that does not occur inside.

*Equality is the server's as far as it can be known.* Texts are compared without blanks at the end, as SQL Server does
in every collation. If the collation ignores case, ASCII, Latin-1, Greek and Cyrillic letters are compared in lower case;
not so in Turkish and Azeri, where I is not i, nor where two signs are one letter, as in Danish. Moments are compared by every digit
that their column's type holds, those with an offset by their instant. Bytes that differ by zeros at the end are two keys here and one on the server,
which so never has both. Other letters, accents, kana and width are compared exactly, even if the
collation does not: two keys that are wrongly taken for one would lose a row, and the reverse is harmless. For the log
names a row by the very text that the server stores: to change `straße` to `STRASSE` is a deletion of the one and a
creation of the other. Only READs may find a row under a text that an event of an older position still has to change;
until that event both are shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.schema import Column
from cdc_assets.kernels import Numbers, binaries, null_mask, numbers_of_offsets

_FOLDED = "^[\\x00-\\x7e\u00a0-\u00ff\u0391-\u03c9\u0400-\u045f]*$"
"""Texts whose letters have one lower-case form in every collation that ignores case."""
_OF_THEIR_OWN = (
    *("turkish", "azeri", "danish", "norwegian", "hungarian", "czech", "slovak", "croatian", "bosnian", "serbian"),
    *("vietnamese", "welsh", "maltese", "albanian", "uzbek", "turkmen", "traditional_spanish", "lithuanian"),
)
"""Languages with an i without dot, or with letters of two signs: `aA` is not `aa` in Danish."""
_CHARACTERS = frozenset({"char", "varchar", "nchar", "nvarchar", "text", "ntext", "sysname"})


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A column of a key.

    Args:
        name: column of the rows that holds its value.
        padded: whether blanks at the end do not count.
        folded: whether case does not count.
    """

    name: str
    padded: bool = False
    folded: bool = False


def key_part(name: str, column: Column | None) -> KeyPart:
    """How values of a column are compared.

    Args:
        name: column of the rows.
        column: the source's column; None if it is not known, then exactly.
    """
    if column is None or column.type_name not in _CHARACTERS:
        return KeyPart(name)
    collation = (column.collation or "").lower()
    ignores_case = "_ci" in collation and not any(language in collation for language in _OF_THEIR_OWN)
    return KeyPart(name, padded=True, folded=ignores_case)


def encode(table: pa.Table, parts: Sequence[KeyPart], kind: pa.DataType) -> pa.Array:
    """Keys of rows.

    Args:
        kind: `int64` if there is one integer or date that is never null, else `binary`.
    """
    columns = [_comparable(_whole(table[part.name]), part) for part in parts]
    if pa.types.is_integer(kind):
        only = columns[0]
        return (only.cast(pa.int32()) if pa.types.is_date(only.type) else only).cast(pa.int64())
    pieces = [_ordered_bytes(column) for column in columns]
    return pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, b"")


def as_bytes(keys: pa.Array) -> pa.Array:
    """Keys as bytes in the same order, of which none begins another."""
    if not pa.types.is_integer(keys.type):
        return keys
    return binaries(np.arange(len(keys) + 1) * 8, _fixed(keys).reshape(-1), None, pa.binary())


def is_number(kind: pa.DataType) -> bool:
    """Whether a key of one column of this type is a number."""
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind))


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _comparable(array: pa.Array, part: KeyPart) -> pa.Array:
    """Values of which equal ones are the same."""
    if not pa.types.is_string(array.type):
        return array
    if part.padded:
        array = pc.utf8_rtrim(array, " ")
    if part.folded:
        plain = pc.match_substring_regex(array, _FOLDED)
        array = pc.if_else(plain, pc.utf8_lower(array), pc.ascii_lower(array))
    return array


def _ordered_bytes(array: pa.Array) -> pa.Array:
    """Bytes that compare like the values: 0 for NULL, 1 and the value else."""
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        return _ended(array.cast(pa.binary()))
    matrix = _fixed(array)
    nulls = null_mask(array)
    rows, width = matrix.shape
    present = np.ones(rows, dtype=bool) if nulls is None else ~nulls
    whole = np.empty((rows, width + 1), dtype=np.uint8)
    whole[:, 0], whole[:, 1:] = present, matrix
    whole[~present, 1:] = 0
    return binaries(np.arange(rows + 1) * (width + 1), whole.reshape(-1), None, pa.binary())


def _ended(array: pa.Array) -> pa.Array:
    """Bytes of any length: a zero inside is followed by 0xff, and two zeros end them."""
    data = array.buffers()[2]
    offsets = numbers_of_offsets(array)
    has_zero = data is not None and bool((np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]] == 0).any())
    safe = pc.replace_substring(array, b"\0", b"\0\xff") if has_zero else array
    return pc.fill_null(pc.binary_join_element_wise(b"\1", safe, b"\0\0", b""), b"\0")


def _fixed(array: pa.Array) -> Numbers:
    """Big-endian bytes of numbers in which the order of the bytes is that of the values."""
    kind = array.type
    if pa.types.is_decimal(kind):
        return _decimal(array)
    if pa.types.is_floating(kind):
        return _floating(array)
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    wide = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return _big_endian(wide.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63))


def _big_endian(values: Numbers) -> Numbers:
    return np.ascontiguousarray(values.astype(">u8")).view(np.uint8).reshape(-1, 8)


def _floating(array: pa.Array) -> Numbers:
    values = pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0  # -0.0 is 0.0
    bits = np.ascontiguousarray(values).view(np.uint64)
    negative = bits >> np.uint64(63) == 1
    return _big_endian(np.where(negative, ~bits, bits | np.uint64(1 << 63)))


def _decimal(array: pa.Array) -> Numbers:
    array = pa.concat_arrays([pc.cast(array, pa.decimal128(38, array.type.scale))])
    halves = np.frombuffer(array.buffers()[1] or b"", dtype=np.uint64).reshape(-1, 2)[: len(array)]
    return np.hstack([_big_endian(halves[:, 1] ^ np.uint64(1 << 63)), _big_endian(halves[:, 0])])


def bound_bytes(key: object) -> bytes:
    """A key as bytes in whose order files are named; at most the first `BOUND_BYTES`."""
    if isinstance(key, int):
        return (key + (1 << 63)).to_bytes(8, "big")
    return bytes(key)[:BOUND_BYTES]  # type: ignore[call-overload, no-any-return]  # no number: bytes


BOUND_BYTES = 80
"""Bytes of a bound at most: it is part of a file's name. Keys that agree so far are never parted."""


def bound_key(bound: bytes, kind: pa.DataType) -> object:
    """The least key of a bound, comparable with keys of the type."""
    return int.from_bytes(bound, "big") - (1 << 63) if pa.types.is_integer(kind) else bound


def places_of(keys: pa.Array, bounds: Sequence[object]) -> list[int]:
    """Where sorted keys are to be parted so that part n is below bound n + 1.

    Args:
        keys: in ascending order.
        bounds: least keys of the parts, the first one unused.
    """
    places = [0]
    for bound in bounds[1:]:
        low, high = places[-1], len(keys)
        while low < high:
            middle = (low + high) // 2
            if keys[middle].as_py() < bound:
                low = middle + 1
            else:
                high = middle
        places.append(low)
    return [*places, len(keys)]


def ranges_of(keys: pa.Array, bounds: Sequence[object]) -> Numbers:
    """Number of the range in which each key lies, given the least keys of all ranges but the first."""
    if not bounds:
        return np.zeros(len(keys), dtype=np.int32)
    if pa.types.is_integer(keys.type):
        found: Numbers = np.searchsorted(np.array(bounds, dtype=np.int64), keys.to_numpy(), "right")
        return found.astype(np.int32)
    order = pc.array_sort_indices(keys).to_numpy()
    ranges = np.empty(len(keys), dtype=np.int32)
    ranges[order] = np.repeat(np.arange(len(bounds) + 1), np.diff(places_of(keys.take(order), [None, *bounds])))
    return ranges
