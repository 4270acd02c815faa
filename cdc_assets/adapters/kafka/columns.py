"""Records of one topic that wait to be sent, as columns, so that none of them becomes Python's objects."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from cdc_assets.adapters.kafka.varints import BYTES, Numbers, lengths, varint
from cdc_assets.publish.run import Headers, Run, binary

_FRAME_BYTES: Final = 31
"""The most that a record has besides key, value and headers: five bytes for each length and number, ten for a timestamp, and one."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of one topic that wait to be sent.

    Args:
        keys: bytes of each; null if it has none.
        values: bytes of each; null is a tombstone.
        headers: count and headers of each as they are sent; of one row if they are alike.
        times: milliseconds since 1970; None and null for the time of sending.
        partitions: those that are chosen; None if the key chooses all, null and -1 where it does.
    """

    keys: pa.Array
    values: pa.Array
    headers: pa.Array
    times: pa.Array | None
    partitions: pa.Array | None

    @classmethod
    def of(cls, run: Run) -> "Columns":
        """What is sent of a run."""
        chosen = run.partitions
        if run.partition >= 0:
            own = pa.scalar(run.partition, pa.int32())
            chosen = pa.repeat(own, len(run)) if chosen is None else chosen.cast(pa.int32()).fill_null(own)
        return cls(binary(run.keys), binary(run.values), _headers(run.headers), run.timestamps, chosen)

    @classmethod
    def joined(cls, parts: "Sequence[Columns]") -> "Columns":
        """All records of several, in their order."""
        if len(parts) == 1:
            return parts[0]
        keys, values = (
            pa.concat_arrays([part.keys for part in parts]),
            pa.concat_arrays([part.values for part in parts]),
        )
        headers = parts[0].headers
        if any(len(part.headers) != 1 or part.headers != headers for part in parts):
            headers = pa.concat_arrays([part.all_headers() for part in parts])
        times, partitions = (
            _filled([getattr(part, name) for part in parts], [len(part) for part in parts], kind)
            for name, kind in (("times", pa.int64()), ("partitions", pa.int32()))
        )
        return cls(keys, values, headers, times, partitions)

    def __len__(self) -> int:
        return len(self.keys)

    def all_headers(self) -> pa.Array:
        """Headers, of each."""
        return pa.repeat(self.headers[0], len(self)) if len(self.headers) == 1 else self.headers

    def take(self, rows: Numbers) -> "Columns":
        """Some rows of it, without their partitions."""
        at = pa.array(rows)
        headers = self.headers if len(self.headers) == 1 else self.headers.take(at)
        times = None if self.times is None else self.times.take(at)
        return Columns(self.keys.take(at), self.values.take(at), headers, times, None)

    def slice(self, start: int, count: int) -> "Columns":
        """Neighbours of it, without their partitions."""
        headers = self.headers if len(self.headers) == 1 else self.headers.slice(start, count)
        times = None if self.times is None else self.times.slice(start, count)
        return Columns(self.keys.slice(start, count), self.values.slice(start, count), headers, times, None)

    def sizes(self) -> Numbers:
        """The most bytes that each has in a batch."""
        found: Numbers = lengths(self.keys).clip(0) + lengths(self.values).clip(0) + lengths(self.headers)
        return found + np.int64(_FRAME_BYTES)


def _headers(given: Sequence[Headers] | None) -> pa.Array:
    """Headers as they are sent; neighbours mostly share them, so each is written once."""
    if not given or given.count(given[0]) == len(given):
        return pa.array([encoded_headers(given[0] if given else [])], BYTES)
    texts = {id(own): encoded_headers(own) for own in {id(own): own for own in given}.values()}
    return pa.array([texts[id(own)] for own in given], BYTES)


def encoded_headers(headers: Headers) -> bytes:
    """Their count and they themselves, as a record has them."""
    found = [varint(len(headers))]
    for name, value in headers:
        text = name.encode()
        found += varint(len(text)), text, varint(-1 if value is None else len(value)), value or b""
    return b"".join(found)


def _filled(columns: Sequence[pa.Array | None], sizes: Sequence[int], kind: pa.DataType) -> pa.Array | None:
    """One column of several, null where one is missing; None if all are."""
    if all(column is None for column in columns):
        return None
    filled = [pa.nulls(size, kind) if one is None else one.cast(kind) for one, size in zip(columns, sizes, strict=True)]
    return pa.concat_arrays(filled)
