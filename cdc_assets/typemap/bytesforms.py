"""Text as bytes: the inverse of `textforms`, a whole array at once.

Every value of padded base64 has a multiple of four characters, so the texts that lie one behind the other in an Arrow
array are decoded as one stream. Afterwards the bytes that padding stands for are left out.
"""

import numpy as np
import pyarrow as pa

from cdc_assets.kernels import Numbers, as_type, binaries, null_mask, numbers_of_offsets

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def _places(last: bytes) -> Numbers:
    table = np.zeros(256, dtype=np.uint8)
    table[np.frombuffer(_ALPHABET + last, dtype=np.uint8)] = np.arange(64)
    return table


_STANDARD, _URL_SAFE = _places(b"+/"), _places(b"-_")
_DIGITS = np.zeros(256, dtype=np.uint8)
_DIGITS[np.frombuffer(b"0123456789", dtype=np.uint8)] = np.arange(10)
_DIGITS[np.frombuffer(b"abcdef", dtype=np.uint8)] = np.arange(10, 16)
_DIGITS[np.frombuffer(b"ABCDEF", dtype=np.uint8)] = np.arange(10, 16)


def from_base64(array: pa.Array, *, url_safe: bool = False) -> pa.Array:
    """The bytes of padded base64 text.

    Raises:
        ValueError: a value's length is not a multiple of four.
    """
    offsets, text = _parts(array)
    lengths = np.diff(offsets)
    if (lengths % 4).any():
        raise ValueError("expected padded base64")
    bits = (_URL_SAFE if url_safe else _STANDARD)[text].reshape(-1, 4)
    decoded = np.empty((len(bits), 3), dtype=np.uint8)
    decoded[:, 0] = bits[:, 0] << 2 | bits[:, 1] >> 4
    decoded[:, 1] = bits[:, 1] << 4 | bits[:, 2] >> 2
    decoded[:, 2] = bits[:, 2] << 6 | bits[:, 3]
    keep = np.ones(decoded.shape, dtype=bool)
    keep[:, 1], keep[:, 2] = text[2::4] != ord("="), text[3::4] != ord("=")
    padding = np.concatenate([[0], np.cumsum(text == ord("="))])
    ends = offsets // 4 * 3 - padding[offsets]
    return binaries(ends, decoded[keep], null_mask(array), pa.binary())


def from_hexadecimal(array: pa.Array) -> pa.Array:
    """The bytes of hexadecimal digits."""
    offsets, text = _parts(array)
    half = _DIGITS[text].reshape(-1, 2)
    return binaries(offsets // 2, half[:, 0] << 4 | half[:, 1], null_mask(array), pa.binary())


def _parts(array: pa.Array) -> tuple[Numbers, Numbers]:
    """Offsets from 0 on, and the characters."""
    array = as_type(array, pa.string())
    offsets = numbers_of_offsets(array).astype(np.int64)
    data = np.frombuffer(array.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    return offsets - offsets[0], data
