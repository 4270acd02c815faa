"""How large records and batches may be.

A topic's limit (`max.message.bytes`) is of a batch, after compression; the client's (`max.request.size`) is of a record, before it, as
of Java's producer. So a record that is larger than its topic takes is compressed before it is refused.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from cdc_assets.adapters.kafka.batches import HEAD_BYTES, batches
from cdc_assets.adapters.kafka.columns import Columns
from cdc_assets.adapters.kafka.compression import Compression
from cdc_assets.adapters.kafka.rights import given_by

DEFAULT_BYTES: Final = 1_048_588
"""Kafka's default limit of a batch."""
_BATCH_BYTES: Final = 1_000_000
"""The most bytes of a batch with several records, after compression."""


class Limits:
    """Limits of topics and of the client.

    Args:
        topics: `max.message.bytes` of those that could be asked for it.
        most: bytes of a record before compression.
        compression: name and level.
    """

    def __init__(self, topics: Mapping[str, int], most: int, compression: tuple[str, int | None]) -> None:
        self._topics, self._most, self._compression = topics, most, compression

    def of_batch(self, topic: str) -> int:
        """Bytes of a batch with several records."""
        return min(self._of(topic), self._most, _BATCH_BYTES)

    def too_large(self, topic: str, records: Columns) -> tuple[int, str]:
        """How many records come before the first that is too large, and what is told of it."""
        sizes, limit = records.sizes() + HEAD_BYTES, self._of(topic)
        for at in np.flatnonzero(sizes > min(limit, self._most)).tolist():
            size = int(sizes[at])
            if size > limit and (size > self._most or not self._fits(records.slice(at, 1), limit)):
                return at, self._beyond(topic, size)
            if size > self._most:
                return at, f"it has {size:,} bytes, more than producer.max.request.size"
        return len(sizes), ""

    def _of(self, topic: str) -> int:
        return self._topics.get(topic, DEFAULT_BYTES)

    def _fits(self, record: Columns, limit: int) -> bool:
        [batch] = batches(record, 0, limit, Compression(*self._compression))
        return batch.size() <= limit

    def _beyond(self, topic: str, size: int) -> str:
        if topic not in self._topics:
            rights = given_by(["DESCRIBE_CONFIGS"], "topic", topic)
            return f"it has {size:,} bytes, and max.message.bytes of the topic cannot be asked for: it needs {rights}"
        return f"it has {size:,} bytes, and the topic takes {self._topics[topic]:,} (max.message.bytes)"
