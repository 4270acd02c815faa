"""Record batches out of columns, in Kafka's format 2.

A batch is a head of 61 bytes and its records, each of which is

    length | attributes | timestamp | number | key length | key | value length | value | count of headers, headers

where numbers are zigzag varints, and timestamp and number are relative to the batch. What lies between keys and values is made for
all records of a batch at once, and Arrow joins it with them, so that no record becomes Python's objects.

*Why a batch never exceeds a limit.* Records are cut by `Columns.sizes`, in which each number counts with the most bytes that it
can have; compression is left out where it makes a batch no smaller.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from aiokafka import codec
from aiokafka.record.util import calc_crc32c

from cdc_assets.publish.run import Headers, Run

Numbers = npt.NDArray[Any]

HEAD_BYTES: Final = 61
"""Bytes of a batch besides its records."""
_FRAME_BYTES: Final = 31
"""The most that a record has besides key, value and headers: five bytes for each length and number, ten for a timestamp, and one."""
_HEAD: Final = struct.Struct(">qiibI")
_CHECKED: Final = struct.Struct(">hiqqqhii")
"""The part of the head that the checksum is of, with the records."""
_TRANSACTIONAL: Final = 0x10
_NOTHING: Final = pa.scalar(b"", pa.large_binary())
_KIND: Final = pa.large_binary()

CODECS: Final[Mapping[str, tuple[int, Callable[..., bytes], int]]] = {
    "gzip": (1, codec.gzip_encode, 6),
    "snappy": (2, codec.snappy_encode, 0),
    "lz4": (3, codec.lz4_encode, 0),
    "zstd": (4, codec.zstd_encode, 3),
}
"""By `compression.type`: the number in a batch, the function, and the level."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of one topic that wait to be sent.

    Args:
        keys: bytes of each; null if it has none.
        values: bytes of each; null is a tombstone.
        headers: count and headers of each as they are sent; of one row if they are alike.
        times: milliseconds since 1970; None, null and 0 for the time of sending.
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
        return cls(run.keys, run.values, _headers(run.headers), run.timestamps, chosen)

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

    def slice(self, start: int, stop: int) -> "Columns":
        """Neighbours of it, without their partitions."""
        if start == 0 and stop == len(self):
            return self
        own = slice(start, stop)
        headers = self.headers if len(self.headers) == 1 else self.headers[own]
        times = None if self.times is None else self.times[own]
        return Columns(self.keys[own], self.values[own], headers, times, None)

    def sizes(self) -> Numbers:
        """The most bytes that each has in a batch."""
        keys, values, headers = (_lengths(side).clip(0) for side in (self.keys, self.values, self.headers))
        found: Numbers = keys + values + headers + _FRAME_BYTES
        return found


class Batch:
    """A record batch for `AIOKafkaProducer.send_batch`, which asks a builder for what is here.

    Args:
        records: joined.
        count: number of records.
        first: timestamp that those of records are relative to.
        newest: the greatest timestamp.
        compression: a name of `CODECS`; empty for none.
        level: of compression; None for its default.
    """

    def __init__(
        self, records: Any, count: int, first: int, newest: int, compression: str = "", level: int | None = None
    ) -> None:
        self._records, self._count, self._first, self._newest = records, count, first, newest
        self._compression, self._level = compression, level
        self._producer = -1, -1, -1
        self._built: bytes | None = None
        self.bytes = len(records)

    def record_count(self) -> int:
        """Number of records."""
        return self._count

    def size(self) -> int:
        """Bytes of it before compression."""
        return HEAD_BYTES + self.bytes

    def close(self) -> None:
        """Nothing is added to it anyway."""

    def closed(self) -> bool:
        """Whether it takes no more records, so that it is sent at once."""
        return True

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer = producer_id, producer_epoch, base_sequence

    def _build(self) -> bytes:
        """Its bytes; a batch that is sent again is the same, which the broker knows by its sequence number."""
        if self._built is None:
            attributes, records = self._compressed()
            size, last = HEAD_BYTES + len(records), self._count - 1
            numbers = last, self._first, self._newest, *self._producer, self._count
            checked = b"".join((_CHECKED.pack(attributes, *numbers), records))
            self._built = _HEAD.pack(0, size - 12, -1, 2, calc_crc32c(checked)) + checked
            self._records = b""
        return self._built

    def _compressed(self) -> tuple[int, Any]:
        if not self._compression:
            return _TRANSACTIONAL, self._records
        number, encode, level = CODECS[self._compression]
        options = () if self._compression == "snappy" else (level if self._level is None else self._level,)
        packed = encode(bytes(self._records), *options)
        return (_TRANSACTIONAL | number, packed) if len(packed) < self.bytes else (_TRANSACTIONAL, self._records)


def batches(records: Columns, now: int, most: int, compression: str = "", level: int | None = None) -> Iterator[Batch]:
    """Batches of records of one partition, in their order.

    Args:
        now: milliseconds since 1970, for those that have no timestamp.
        most: bytes of a batch; a record that has more is in one of its own.
        compression: a name of `CODECS`; empty for none.
        level: of compression; None for its default.
    """
    ends = np.cumsum(records.sizes())
    start, before = 0, 0
    while start < len(ends):
        stop = max(start + 1, int(np.searchsorted(ends, before + most - HEAD_BYTES, "right")))
        yield _batch(records.slice(start, stop), now, compression, level)
        start, before = stop, int(ends[stop - 1])


def _batch(own: Columns, now: int, compression: str, level: int | None) -> Batch:
    count = len(own)
    times = np.full(count, now) if own.times is None else own.times.fill_null(0).to_numpy(zero_copy_only=False)
    times = np.where(times == 0, now, times)
    first = int(times[0])
    keys, values = _lengths(own.keys), _lengths(own.values)
    inside = [np.zeros((count, 1), np.int64), times - first, np.arange(count), keys]
    front, after = [varints(number) for number in inside[1:]], varints(values)
    framed = 1 + sum(used.sum(1) for _, used in (*front, after))
    length = framed + keys.clip(0) + values.clip(0) + _lengths(own.headers).clip(0)
    attributes = np.zeros((count, 1), np.uint8), np.ones((count, 1), bool)
    before = _bytes([varints(length), attributes, *front])
    headers = own.headers[0] if len(own.headers) == 1 else own.headers
    parts = [own.keys.fill_null(b""), _bytes([after]), own.values.fill_null(b""), headers, _NOTHING]
    joined = pc.binary_join_element_wise(before, *parts)
    return Batch(_data(joined), count, first, int(times.max()), compression, level)


def varints(numbers: Numbers) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Signed numbers as zigzag varints: a row of bytes for each, and which of them are used."""
    signed = numbers.astype(np.int64)
    rest = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    width = max(1, (int(rest.max(initial=0)).bit_length() + 6) // 7)
    found, used = np.empty((len(rest), width), np.uint8), np.ones((len(rest), width), bool)
    for at in range(width):
        low, rest = (rest & np.uint64(127)).astype(np.uint8), rest >> np.uint64(7)
        goes_on = rest != 0
        found[:, at] = low | (goes_on.astype(np.uint8) << 7)
        if at + 1 < width:
            used[:, at + 1] = goes_on
    return found, used


def _bytes(parts: Sequence[tuple[Numbers, npt.NDArray[np.bool_]]]) -> pa.Array:
    """Numbers side by side, as bytes of each row."""
    found, used = parts[0] if len(parts) == 1 else tuple(np.hstack(side) for side in zip(*parts, strict=True))
    offsets = np.zeros(len(found) + 1, np.int64)
    np.cumsum(used.sum(1), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(found[used])]
    return pa.Array.from_buffers(_KIND, len(found), buffers)


def _data(joined: pa.Array) -> Any:
    """All bytes of an array, one after the other."""
    offsets = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(joined.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def _lengths(array: pa.Array) -> Numbers:
    """Bytes of each; -1 of null."""
    found: Numbers = pc.binary_length(array).fill_null(-1).to_numpy(zero_copy_only=False)
    return found


def _headers(given: Sequence[Headers] | None) -> pa.Array:
    """Headers as they are sent; neighbours mostly share them, so each is written once."""
    distinct = {id(own): own for own in given or ()}
    if len(distinct) < 2:
        return pa.array([encoded_headers(next(iter(distinct.values()), []))], _KIND)
    texts = {number: encoded_headers(own) for number, own in distinct.items()}
    return pa.array([texts[id(own)] for own in given or ()], _KIND)


def encoded_headers(headers: Headers) -> bytes:
    """Their count and they themselves, as a record has them."""
    found = [_varint(len(headers))]
    for name, value in headers:
        text = name.encode()
        found += _varint(len(text)), text, _varint(-1 if value is None else len(value)), value or b""
    return b"".join(found)


def _varint(number: int) -> bytes:
    found, used = varints(np.array([number]))
    return found[used].tobytes()


def _filled(columns: Sequence[pa.Array | None], sizes: Sequence[int], kind: pa.DataType) -> pa.Array | None:
    """One column of several, null where one is missing; None if all are."""
    if all(column is None for column in columns):
        return None
    filled = [pa.nulls(size, kind) if one is None else one.cast(kind) for one, size in zip(columns, sizes, strict=True)]
    return pa.concat_arrays(filled)
