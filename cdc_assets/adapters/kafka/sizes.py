"""How large records are in a batch, and how large batches may be.

A topic's limit (`max.message.bytes`) is of a batch, after compression; the client's (`max.request.size`) is of a record, before it, as
of Java's producer. The client bounds its batches by one number for all topics (`batch.size`), before compression, and fails every record
of a batch that a broker refuses. So records of a topic whose limit is lower are flushed before a batch could exceed it (`producer`).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.adapters.kafka.rights import grant_hint
from cdc_assets.publish.records import Headers, Numbers, RecordSlice

HEAD_BYTES: Final = 61
"""Bytes of a batch besides its records."""
DEFAULT_BYTES: Final = 1_048_588
"""Kafka's default limit of a batch."""
_FRAME_BYTES: Final = 31
"""The most that a record has besides key, value and headers: five bytes for each length and number, ten for a timestamp, and one."""
_HEADER_BYTES: Final = 10
"""The most that a header has besides name and value."""


def record_sizes(records: RecordSlice) -> Numbers:
    """The most bytes that each record has in a batch."""
    found: Numbers = _lengths(records.keys) + _lengths(records.values) + _FRAME_BYTES
    return found if records.headers is None else found + _of_headers(records.headers)


def _lengths(array: pa.Array) -> Numbers:
    found: Numbers = pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _of_headers(given: Sequence[Headers]) -> Numbers:
    """Neighbours mostly share them, so each list is counted once."""
    known = {
        id(headers): sum(len(name.encode()) + len(value or b"") + _HEADER_BYTES for name, value in headers)
        for headers in {id(headers): headers for headers in given}.values()
    }
    return np.fromiter((known[id(headers)] for headers in given), np.int64, len(given))


class Limits:
    """Limits of topics and of the client.

    Args:
        topics: `max.message.bytes` of those whose limit is known.
        record: bytes of a record before compression, as the client takes it.
        batch: bytes of a batch of the client with several records.
        compressed: whether batches are compressed, so that a record that is larger than its topic takes may fit.
    """

    def __init__(self, topics: Mapping[str, int], record: int, batch: int, *, compressed: bool) -> None:
        self._topics, self._record, self._batch, self._compressed = topics, record, batch, compressed

    def is_low(self, topic: str) -> bool:
        """Whether the client's batches may be larger than a topic takes."""
        return self.of(topic) < self._batch

    def of(self, topic: str) -> int:
        """Bytes of a batch that a topic takes."""
        return self._topics.get(topic, DEFAULT_BYTES)

    def too_large(self, topic: str, sizes: Numbers) -> tuple[int, str]:
        """How many records come before the first that is too large, whatever the broker says, and the reason."""
        max_bytes = self._record if self._compressed else min(self._record, self.of(topic))
        wrong = sizes + HEAD_BYTES > max_bytes
        if not wrong.any():
            return len(sizes), ""
        at = int(np.argmax(wrong))
        size = int(sizes[at]) + HEAD_BYTES
        return at, self.beyond(topic, size) if size > self.of(topic) else self.beyond_client(size)

    def beyond_client(self, size: int) -> str:
        """Why the client does not take a record of so many bytes."""
        return f"it has {size:,} bytes, more than producer.max.request.size"

    def beyond(self, topic: str, size: int) -> str:
        """Why a topic does not take a record of so many bytes."""
        if topic not in self._topics:
            rights = grant_hint(["DESCRIBE_CONFIGS"], "topic", topic)
            return f"it has {size:,} bytes, and max.message.bytes of the topic cannot be read: that needs {rights}"
        return f"it has {size:,} bytes, and the topic takes {self._topics[topic]:,} (max.message.bytes)"
