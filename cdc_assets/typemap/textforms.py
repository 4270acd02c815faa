"""Bytes as text: base64 and hexadecimal, a whole array at once.

Base64 works on groups of three bytes. Each value is copied into a buffer padded to a multiple of three, so that all
values are encoded as one stream; afterwards padded ends are overwritten with `=`. There is no loop over values.
"""

import numpy as np
import pyarrow as pa

from cdc_assets.kernels import Numbers, as_type, binaries, null_mask, numbers_of_offsets

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_STANDARD = np.frombuffer(_ALPHABET + b"+/", dtype=np.uint8)
_URL_SAFE = np.frombuffer(_ALPHABET + b"-_", dtype=np.uint8)
_HEX = np.frombuffer(b"".join(b"%02x" % value for value in range(256)), dtype=np.uint16)
"""Two hexadecimal digits of each byte value."""


def base64(array: pa.Array, *, url_safe: bool = False) -> pa.Array:
    """Padded base64 text of binary values."""
    array = as_type(array, pa.binary())
    offsets = numbers_of_offsets(array).astype(np.int64)
    lengths = np.diff(offsets)
    groups = (lengths + 2) // 3
    ends = np.zeros(len(array) + 1, dtype=np.int64)
    np.cumsum(groups, out=ends[1:])
    padded = _laid_out(_data(array, offsets), lengths, ends[:-1] * 3 - (offsets[:-1] - offsets[0]), int(ends[-1]) * 3)
    encoded = _encode(padded, _URL_SAFE if url_safe else _STANDARD)
    encoded[ends[1:][lengths % 3 == 1] * 4 - 2] = ord("=")
    encoded[ends[1:][lengths % 3 != 0] * 4 - 1] = ord("=")
    return binaries(ends * 4, encoded, null_mask(array), pa.string())


def _data(array: pa.Array, offsets: Numbers) -> Numbers:
    return np.frombuffer(array.buffers()[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]


def _laid_out(data: Numbers, lengths: Numbers, shifts: Numbers, size: int) -> Numbers:
    """Each value's bytes copied with its offset into a buffer of zeros."""
    padded = np.zeros(size, dtype=np.uint8)
    if data.size:
        padded[np.arange(data.size) + np.repeat(shifts, lengths)] = data
    return padded


def _encode(padded: Numbers, alphabet: Numbers) -> Numbers:
    first, second, third = (padded[index::3] for index in range(3))
    encoded = np.empty((len(first), 4), dtype=np.uint8)
    encoded[:, 0] = alphabet[first >> 2]
    encoded[:, 1] = alphabet[((first & 3) << 4) | (second >> 4)]
    encoded[:, 2] = alphabet[((second & 15) << 2) | (third >> 6)]
    encoded[:, 3] = alphabet[third & 63]
    return encoded.reshape(-1)


def hexadecimal(array: pa.Array) -> pa.Array:
    """Lower-case hexadecimal text of binary values."""
    array = as_type(array, pa.binary())
    offsets = numbers_of_offsets(array).astype(np.int64)
    text = _HEX[_data(array, offsets)].view(np.uint8)
    return binaries((offsets - offsets[0]) * 2, text, null_mask(array), pa.string())


def byte_digits(values: Numbers) -> Numbers:
    """Two lower-case hexadecimal digits of each byte, as they lie in memory, in a number of 16 bits."""
    found: Numbers = _HEX.take(values)
    return found
