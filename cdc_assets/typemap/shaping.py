"""Masks, hashes and truncation of event values (spec debezium-sqlserver §4.6; checked against the 3.6.3 byte code).

| rule | character types | other types |
|---|---|---|
| mask | n asterisks, null too (so that a mask hides whether there is a value) | unchanged |
| hash v1 | hex digest of salt and the Java-serialised text, cut to the column's length | unchanged |
| hash v2 | hex digest of salt and UTF-8 text, cut to the column's length | unchanged |
| truncate | first n UTF-16 units, if the column is longer | bytes: first n bytes |

`uniqueidentifier` counts as a character type of length 36, as the JDBC driver
reports it. Hashing runs once per distinct value of a batch.
"""

import hashlib
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.config.settings import ColumnRule
from cdc_assets.core.schema import Column
from cdc_assets.errors import ConfigurationError
from cdc_assets.typemap.jdbc import reported_length

Shape = Callable[[pa.Array], pa.Array]

MASKED = frozenset({"char", "varchar", "nchar", "nvarchar", "text", "ntext", "xml", "uniqueidentifier", "sysname"})

_SHORT_STRING, _LONG_STRING = b"\xac\xed\x00\x05\x74", b"\xac\xed\x00\x05\x7c"
"""Java's stream header and the tags of a string of up to, and over, 65,535 bytes."""


def shape_of(column: Column, rule: ColumnRule) -> Shape | None:
    """The kernel that a rule applies after a column's conversion, or None if it does not change values.

    Raises:
        ConfigurationError: the digest is unknown.
    """
    if rule.kind == "truncate":
        return partial(truncated, limit=rule.length) if reported_length(column) > rule.length else None
    if column.type_name not in MASKED:
        return None
    if rule.kind == "mask":
        return partial(masked, length=rule.length)
    digest_name(rule.algorithm)
    return partial(hashed, rule=rule, limit=reported_length(column))


def parameters_of(column: Column, rule: ColumnRule) -> tuple[tuple[str, str], ...]:
    """Schema parameters that describe a rule."""
    if rule.kind != "truncate":
        return (("masked", "true"),)
    return (("truncateLength", str(rule.length)),) if reported_length(column) > rule.length else ()


def masked(array: pa.Array, *, length: int) -> pa.Array:
    """Asterisks in every row."""
    return pa.repeat(pa.scalar("*" * length, array.type), len(array))


def digest_name(algorithm: str) -> str:
    """Python's name of a Java digest, such as `sha256` of `SHA-256`.

    Raises:
        ConfigurationError: this machine does not provide the digest.
    """
    name = algorithm.lower()
    name = name.replace("sha3-", "sha3_") if name.startswith("sha3-") else name.replace("sha-", "sha").replace("/", "_")
    if name not in hashlib.algorithms_available or name.startswith("shake"):
        raise ConfigurationError(
            "column.mask.hash algorithm",
            algorithm,
            "a message digest such as SHA-256, SHA-512 or MD5",
            "change the name",
        )
    return name


def hashed(array: pa.Array, *, rule: ColumnRule, limit: int) -> pa.Array:
    """Salted digests, cut to `limit` digits; each distinct value is hashed once."""
    encoded = array.dictionary_encode()
    form = java_serialised if rule.kind == "hash" else str.encode
    name, salt = digest_name(rule.algorithm), rule.salt.encode()
    digests = [
        hashlib.new(name, salt + form(text), usedforsecurity=False).hexdigest()[:limit]
        for text in encoded.dictionary.to_pylist()
    ]
    return pa.array(digests, pa.string()).take(encoded.indices)


def java_serialised(text: str) -> bytes:
    """The output of Java's ObjectOutputStream for a string: a header and modified UTF-8."""
    data = b"".join(_modified(unit) for unit in _utf16_units(text)) if _needs_modified(text) else text.encode()
    if len(data) > 0xFFFF:
        return _LONG_STRING + len(data).to_bytes(8, "big") + data
    return _SHORT_STRING + len(data).to_bytes(2, "big") + data


def _needs_modified(text: str) -> bool:
    return "\0" in text or any(character > "\uffff" for character in text)


def _utf16_units(text: str) -> list[int]:
    raw = text.encode("utf-16-be")
    return [int.from_bytes(raw[index : index + 2], "big") for index in range(0, len(raw), 2)]


def _modified(unit: int) -> bytes:
    """One UTF-16 unit in modified UTF-8: zero takes two bytes, each half of a surrogate pair three."""
    return b"\xc0\x80" if unit == 0 else chr(unit).encode("utf-8", "surrogatepass")


def truncated(array: pa.Array, *, limit: int) -> pa.Array:
    """The first characters of strings, or bytes of binaries; other types are unchanged."""
    if pa.types.is_binary(array.type):
        return pc.binary_slice(array, 0, limit)
    if not pa.types.is_string(array.type):
        return array
    buffer = array.buffers()[2]
    astral = buffer is not None and bool((np.frombuffer(buffer, dtype=np.uint8) >= 0xF0).any())
    return _cut_units(array, limit) if astral else pc.utf8_slice_codeunits(array, 0, limit)


def _cut_units(array: pa.Array, limit: int) -> pa.Array:
    """Truncate at UTF-16 units, as Java counts; a lone surrogate at the end is dropped."""
    encoded = array.dictionary_encode()
    cut = [
        text.encode("utf-16-le")[: limit * 2].decode("utf-16-le", "ignore") for text in encoded.dictionary.to_pylist()
    ]
    return pa.array(cut, pa.string()).take(encoded.indices)
