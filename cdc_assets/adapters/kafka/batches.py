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
from typing import Any, Final, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from aiokafka import codec

from cdc_assets.publish.run import Headers, Run, binary

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

    def sizes(self) -> Numbers:
        """The most bytes that each has in a batch."""
        found: Numbers = _lengths(self.keys).clip(0) + _lengths(self.values).clip(0) + _lengths(self.headers)
        return found + np.int64(_FRAME_BYTES)


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
            checked = _CHECKED.pack(attributes, *numbers)
            checksum = google_crc32c.extend(google_crc32c.value(checked), records)
            self._built = b"".join((_HEAD.pack(0, size - 12, -1, 2, checksum), checked, records))
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
    edges = _edges(np.cumsum(records.sizes()), most - HEAD_BYTES)
    begins, counts = edges[:-1], np.diff(edges)
    times = np.full(len(records), now)
    if records.times is not None:
        given = records.times.fill_null(0).to_numpy(zero_copy_only=False)
        times = np.where(given == 0, now, given)
    relative = times - np.repeat(times[begins], counts), np.arange(len(records)) - np.repeat(begins, counts)
    framed = _framed(records, *relative)
    for start, count in zip(begins.tolist(), counts.tolist(), strict=True):
        own = times[start : start + count]
        data = _data(framed.slice(start, count))
        yield Batch(data, count, int(own[0]), int(own.max()), compression, level)


def _edges(ends: Numbers, most: int) -> Numbers:
    """Where batches begin, and the end of the last one.

    Args:
        ends: bytes of all records up to the end of each.
        most: bytes of the records of a batch.
    """
    edges, before = [0], 0
    while edges[-1] < len(ends):
        edges.append(max(edges[-1] + 1, int(np.searchsorted(ends, before + most, "right"))))
        before = int(ends[edges[-1] - 1])
    return np.array(edges)


def _framed(own: Columns, times: Numbers, numbers: Numbers) -> pa.Array:
    """Records as they are in batches, times and numbers relative to these."""
    keys, values = _lengths(own.keys), _lengths(own.values)
    inside, after = [varints(numbers) for numbers in (times, numbers, keys)], varints(values)
    framed = sum(part.lengths for part in (*inside, after)) + 1
    length = framed + keys.clip(0) + values.clip(0) + _lengths(own.headers)
    before = _bytes([varints(length), varints(np.zeros(len(own))), *inside])
    headers = own.headers[0] if len(own.headers) == 1 else own.headers
    parts = [before, own.keys, _bytes([after]), own.values, headers, _NOTHING]
    return pc.binary_join_element_wise(*parts, null_handling="replace", null_replacement="")


class Varints(NamedTuple):
    """Numbers as they are sent."""

    found: Numbers
    """A row of bytes for each."""
    used: npt.NDArray[np.bool_]
    """Which of them."""
    lengths: Numbers
    """How many."""


def varints(numbers: Numbers) -> Varints:
    """Signed numbers as zigzag varints."""
    signed = numbers.astype(np.int64)
    rest = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    width = max(1, (int(rest.max(initial=0)).bit_length() + 6) // 7)
    shape = len(rest), width
    found, used, lengths = np.empty(shape, np.uint8), np.ones(shape, bool), np.ones(len(rest), np.int64)
    for at in range(width):
        low, rest = rest.astype(np.uint8) & np.uint8(127), rest >> np.uint64(7)
        if at + 1 < width:
            goes_on = rest != 0
            low |= goes_on.view(np.uint8) << np.uint8(7)
            used[:, at + 1] = goes_on
            lengths += goes_on
        found[:, at] = low
    return Varints(found, used, lengths)


def _bytes(parts: Sequence[Varints]) -> pa.Array:
    """Numbers side by side, as bytes of each row."""
    found, used = parts[0][:2]
    if len(parts) > 1:
        found, used = np.hstack([part.found for part in parts]), np.hstack([part.used for part in parts])
    offsets = np.zeros(len(found) + 1, np.int64)
    np.cumsum(sum(part.lengths for part in parts), out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(found[used])]
    return pa.Array.from_buffers(_KIND, len(found), buffers)


def _offsets(array: pa.Array) -> Numbers:
    return np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array) + 1]


def _data(joined: pa.Array) -> Any:
    """All bytes of an array, one after the other."""
    offsets = _offsets(joined)
    return joined.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _lengths(array: pa.Array) -> Numbers:
    """Bytes of each; -1 of null."""
    if not len(array):
        return np.zeros(0, np.int64)
    found = np.diff(_offsets(array))
    if array.null_count:
        found[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return found


def _headers(given: Sequence[Headers] | None) -> pa.Array:
    """Headers as they are sent; neighbours mostly share them, so each is written once."""
    if not given or given.count(given[0]) == len(given):
        return pa.array([encoded_headers(given[0] if given else [])], _KIND)
    texts = {id(own): encoded_headers(own) for own in {id(own): own for own in given}.values()}
    return pa.array([texts[id(own)] for own in given], _KIND)


def encoded_headers(headers: Headers) -> bytes:
    """Their count and they themselves, as a record has them."""
    found = [_varint(len(headers))]
    for name, value in headers:
        text = name.encode()
        found += _varint(len(text)), text, _varint(-1 if value is None else len(value)), value or b""
    return b"".join(found)


def _varint(number: int) -> bytes:
    return varints(np.array([number])).found.tobytes()


def _filled(columns: Sequence[pa.Array | None], sizes: Sequence[int], kind: pa.DataType) -> pa.Array | None:
    """One column of several, null where one is missing; None if all are."""
    if all(column is None for column in columns):
        return None
    filled = [pa.nulls(size, kind) if one is None else one.cast(kind) for one, size in zip(columns, sizes, strict=True)]
    return pa.concat_arrays(filled)
