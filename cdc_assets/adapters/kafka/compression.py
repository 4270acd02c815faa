"""Compression of record batches, and how many records fill one.

The limit of a batch is that of its compressed bytes. How far records can be compressed is not known before, so the last batch of a
topic tells how many the next one gets; the first one gets what fits without compression. One that turns out too large is parted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import lz4.frame
import pyarrow as pa
from aiokafka import codec


def _lz4(records: Any, level: int) -> Any:
    """Blocks are independent, as Kafka wants them; threads go on meanwhile, which they do not with the client's own function."""
    return lz4.frame.compress(records, compression_level=level, block_linked=False, store_size=False)


def _zstd(records: Any, level: int) -> Any:
    return pa.Codec("zstd", compression_level=level).compress(records)


CODECS: Final[Mapping[str, tuple[int, Callable[..., Any], int]]] = {
    "gzip": (1, lambda records, level: codec.gzip_encode(bytes(records), level), 6),
    "snappy": (2, lambda records, _: codec.snappy_encode(records), 0),
    "lz4": (3, _lz4, 0),
    "zstd": (4, _zstd, 3),
}
"""By `compression.type`: the number in a batch, the function, and the level."""
_MOST_BYTES: Final = 4_000_000
"""Bytes of a batch's records before compression: consumers take them out of it at once."""
_MARGIN: Final = 0.8
"""Part of a limit that is aimed at, because records differ."""


@dataclass
class Compression:
    """Compression of a topic's batches.

    Args:
        name: of `CODECS`; empty for none.
        level: None for the codec's default.
    """

    name: str = ""
    level: int | None = None
    _ratio: float = field(default=1.0, init=False)
    """Bytes of the last batch by those of its records."""

    def room(self, limit: int) -> int:
        """Bytes of records that probably fit where there is room for so many compressed ones."""
        return max(limit, min(_MOST_BYTES, int(limit * _MARGIN / self._ratio)))

    def packed(self, records: Any) -> tuple[int, Any]:
        """The codec's number, and records of a batch as they are sent; 0 if they would not be smaller."""
        if not self.name:
            return 0, records
        number, encode, level = CODECS[self.name]
        packed = encode(records, level if self.level is None else self.level)
        self._ratio = min(1.0, len(packed) / len(records))
        return (number, packed) if len(packed) < len(records) else (0, records)
