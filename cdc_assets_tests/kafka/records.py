"""Records of every form, made at random."""

import random

import pyarrow as pa

from cdc_assets.publish.records import Headers, RecordSlice

NOW = 1_700_000_000_000
_SIZES = [0, 1, 63, 64, 65, 200, 8191, 8192]

Fields = tuple[bytes | None, bytes | None, Headers, int | None]


def data(chance: random.Random) -> bytes | None:
    """A key, or a value of a record or of a header."""
    size = chance.choice(_SIZES)
    return chance.choice([None, chance.randbytes(size), b"like" * (size // 4)])


def some(chance: random.Random) -> tuple[RecordSlice, list[Fields]]:
    """Records, and what is to be read of it; None for the time of sending."""
    count = chance.randint(1, 40)
    texts = ["", "a", "name äöü", "n" * 70]
    distinct: list[Headers] = [[(chance.choice(texts), data(chance)) for _ in range(number)] for number in range(4)]
    headers = chance.choice([None, [distinct[1]] * count, [chance.choice(distinct) for _ in range(count)]])
    times = chance.choice([None, [chance.choice([None, 1, NOW, NOW - 10**9, NOW + 3]) for _ in range(count)]])
    keys, values = ([data(chance) for _ in range(count)] for _ in range(2))
    records = RecordSlice(
        1,
        pa.array(map(str, range(count))),
        *(pa.array(side, pa.large_binary()) for side in (keys, values)),
        headers,
        timestamps=None if times is None else pa.array(times, pa.int64()),
    )
    return records, list(zip(keys, values, headers or [[]] * count, times or [None] * count, strict=True))
