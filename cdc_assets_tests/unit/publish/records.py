"""Records of every form, made at random."""

import os
import random

import numpy as np
import pyarrow as pa

from cdc_assets.adapters.kafka.batches import Batch, batches
from cdc_assets.adapters.kafka.columns import Columns
from cdc_assets.adapters.kafka.compression import Compression
from cdc_assets.publish.run import Headers, Run

EXAMPLES = int(os.environ.get("CDC_LAW_EXAMPLES", "20"))
NOW = 1_700_000_000_000
SIZES = [0, 1, 63, 64, 65, 200, 8191, 8192]

Fields = tuple[bytes | None, bytes | None, Headers, int]


def data(chance: random.Random) -> bytes | None:
    """A key, or a value of a record or of a header."""
    size = chance.choice(SIZES)
    return chance.choice([None, chance.randbytes(size), b"like" * (size // 4)])


def some(chance: random.Random) -> tuple[Run, list[Fields]]:
    """A run, and what is to be read of it."""
    count = chance.randint(1, 40)
    texts = ["", "a", "name äöü", "n" * 70]
    distinct: list[Headers] = [[(chance.choice(texts), data(chance)) for _ in range(number)] for number in range(4)]
    headers = chance.choice([None, [distinct[1]] * count, [chance.choice(distinct) for _ in range(count)]])
    moments = [None, 0, 1, NOW, NOW - 10**9, NOW + 3, 2**53]
    times = chance.choice([None, [chance.choice(moments) for _ in range(count)]])
    keys, values = ([data(chance) for _ in range(count)] for _ in range(2))
    run = Run(
        1,
        pa.array(map(str, range(count))),
        *(pa.array(side, pa.large_binary()) for side in (keys, values)),
        headers,
        timestamps=None if times is None else pa.array(times, pa.int64()),
    )
    expected = zip(
        keys,
        values,
        headers or [[]] * count,
        [NOW if time is None else time for time in times or [None] * count],
        strict=True,
    )
    return run, list(expected)


def batch(records: int, size: int = 10) -> Batch:
    """A batch of so many records, of so many bytes each."""
    values = pa.array([b"x" * size] * records, pa.large_binary())
    [made] = batches(
        Columns.of(Run(1, pa.array(np.arange(records).astype(str)), values, values)), 1, 10**9, Compression()
    )
    return made
