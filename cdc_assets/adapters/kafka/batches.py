"""Record batches out of columns, in Kafka's format 2.

A batch is a head of 61 bytes and its records, each of which is

    length | attributes | timestamp | number | key length | key | value length | value | count of headers, headers

where numbers are zigzag varints, and timestamp and number are relative to the batch. What lies between keys and values is made for
all records of a batch at once, and Arrow joins it with them, so that no record becomes Python's objects.

*Why a batch never exceeds a limit.* Records are cut by `Columns.sizes`, in which each number counts with the most bytes that it
can have. With compression more are tried, and a batch that is too large nonetheless is parted, at the least into single records, which
are not compressed where that makes them no smaller.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.adapters.kafka.columns import Columns
from cdc_assets.adapters.kafka.compression import Compression
from cdc_assets.adapters.kafka.varints import BYTES, Numbers, data, joined_bytes, lengths, varints

HEAD_BYTES: Final = 61
"""Bytes of a batch besides its records."""
_HEAD: Final = struct.Struct(">qiibI")
_CHECKED: Final = struct.Struct(">hiqqqhii")
"""The part of the head that the checksum is of, with the records."""
_TRANSACTIONAL: Final = 0x10
_LAST_SEQUENCE: Final = 0x7FFFFFFF
"""The number of a record after which the next one is 0, as in Java and in the broker. aiokafka goes on at -2^31, which is refused."""
_NOTHING: Final = pa.scalar(b"", BYTES)


class Batch:
    """A record batch for `AIOKafkaProducer.send_batch`, which asks a builder for what is here, and `requests`, which asks for its parts.

    Args:
        records: joined, and compressed.
        count: number of records.
        first: timestamp that those of records are relative to.
        newest: the greatest timestamp.
        codec: its number; 0 for none.
    """

    def __init__(self, records: Any, count: int, first: int, newest: int, codec: int = 0) -> None:
        self._records, self._count, self._first, self._newest = records, count, first, newest
        self._codec = codec
        self._producer = -1, -1, -1
        self.bytes = len(records)

    def record_count(self) -> int:
        """Number of records."""
        return self._count

    def size(self) -> int:
        """Bytes of it."""
        return HEAD_BYTES + self.bytes

    @property
    def number(self) -> int:
        """Number of its first record among those of its partition; -1 before it is sent."""
        return self._producer[2]

    def close(self) -> None:
        """Nothing is added to it anyway."""

    def closed(self) -> bool:
        """Whether it takes no more records, so that it is sent at once."""
        return True

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer = producer_id, producer_epoch, base_sequence & _LAST_SEQUENCE

    def parts(self) -> tuple[bytes, bytes, Any]:
        """Its bytes, unjoined."""
        numbers = self._count - 1, self._first, self._newest, *self._producer, self._count
        checked = _CHECKED.pack(_TRANSACTIONAL | self._codec, *numbers)
        checksum = google_crc32c.extend(google_crc32c.value(checked), self._records)
        return _HEAD.pack(0, self.size() - 12, -1, 2, checksum), checked, self._records


def batches(records: Columns, now: int, most: int, compression: Compression) -> Iterator[Batch]:
    """Batches of records of one partition, in their order.

    Args:
        now: milliseconds since 1970, for those that have no timestamp.
        most: bytes of a batch; a record that has more is in one of its own.
        compression: of the topic.
    """
    limit = most - HEAD_BYTES
    edges = _edges(np.cumsum(records.sizes()), compression.room(limit))
    begins, counts = edges[:-1], np.diff(edges)
    times = np.full(len(records), now)
    if records.times is not None:
        times = records.times.cast(pa.int64()).fill_null(now).to_numpy(zero_copy_only=False)
    relative = times - np.repeat(times[begins], counts), np.arange(len(records)) - np.repeat(begins, counts)
    framed = _framed(records, *relative)
    for start, count in zip(begins.tolist(), counts.tolist(), strict=True):
        codec, packed = compression.packed(data(framed.slice(start, count)))
        if len(packed) > limit and count > 1:
            half = count // 2
            for part in (records.slice(start, half), records.slice(start + half, count - half)):
                yield from batches(part, now, most, compression)
        else:
            own = times[start : start + count]
            yield Batch(packed, count, int(own[0]), int(own.max()), codec)


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
    keys, values = lengths(own.keys), lengths(own.values)
    inside, after = [varints(numbers) for numbers in (times, numbers, keys)], varints(values)
    framed = sum(part.lengths for part in (*inside, after)) + 1
    length = framed + keys.clip(0) + values.clip(0) + lengths(own.headers)
    before = joined_bytes([varints(length), varints(np.zeros(len(own))), *inside])
    headers = own.headers[0] if len(own.headers) == 1 else own.headers
    parts = [before, own.keys, joined_bytes([after]), own.values, headers, _NOTHING]
    return pc.binary_join_element_wise(*parts, null_handling="replace", null_replacement="")
