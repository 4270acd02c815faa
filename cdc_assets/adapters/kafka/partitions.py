"""Chooses partitions as Java's producer does: by murmur2 of the serialised key, a random one for a record without a key."""

import importlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cdc_assets.adapters.kafka.columns import Columns

Numbers = npt.NDArray[Any]

_RANDOM: Final = np.random.default_rng()


def by_partition(records: Columns, count: int) -> Iterator[tuple[int, Columns]]:
    """Records of each partition, in their order.

    Args:
        count: number of the topic's partitions.
    """
    chosen = records.partitions
    if count == 1 and chosen is None:
        yield 0, records
        return
    numbers = np.full(len(records), -1) if chosen is None else chosen.fill_null(-1).to_numpy(zero_copy_only=False)
    if (numbers < 0).any():
        numbers = np.where(numbers < 0, _of_keys(records, count), numbers)
    distinct = np.unique(numbers).tolist()
    if len(distinct) == 1:
        yield distinct[0], records
        return
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], distinct, "right").tolist()
    start = 0
    for number, end in zip(distinct, ends, strict=True):
        yield number, records.take(order[start:end])
        start = end


def _of_keys(records: Columns, count: int) -> Numbers:
    murmur2 = importlib.import_module("confluent_kafka").murmur2
    drawn = _RANDOM.integers(count, size=len(records)).tolist()
    keys = records.keys.to_pylist()
    return np.array([n if key is None else murmur2(key, count) for key, n in zip(keys, drawn, strict=True)])
