"""Counts the rows of a slice by key range, while they are read.

A slice that is one range has all of its rows. Small adjacent ranges are read as one slice; their rows are distinguished where the
key is a whole number, since only then Arrow orders it as the server does.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.core.ports import KeyRange


class RangeCount:
    """Rows of the ranges that a slice covers.

    Args:
        ranges: where the table is cut, from its first key to its last.
        first: number of the slice's first range.
        last: number of its last range.
    """

    def __init__(self, ranges: Sequence[KeyRange], first: int, last: int) -> None:
        inner = [part.low or "" for part in ranges[first + 1 : last + 1]]
        self._is_one = first == last
        self._column = ranges[first].column if first < len(ranges) else None
        self._bounds = [int(text) for text in inner] if all(text.lstrip("-").isdigit() for text in inner) else None
        self._below = [0] * len(inner)
        """Rows that are below each bound."""

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same rows, counted."""
        for batch in batches:
            if not self._is_one and self._bounds is not None:
                self._count(batch)
            yield batch

    def _count(self, batch: pa.RecordBatch) -> None:
        at = batch.schema.get_field_index(self._column or "")
        if at < 0 or not pa.types.is_integer(batch.column(at).type):
            self._bounds = None
            return
        keys = batch.column(at)
        for place, bound in enumerate(self._bounds or ()):
            below = pc.sum(pc.less(keys, bound)).as_py() or 0
            self._below[place] += below + keys.null_count  # NULL sorts before every value

    def by_range(self, rows: int) -> tuple[int, ...] | None:
        """Rows of each range, once all are read; None if they cannot be distinguished.

        Args:
            rows: of the slice.
        """
        if self._bounds is None:
            return None
        ends = [*self._below, rows]
        return tuple(end - begin for begin, end in zip([0, *ends], ends, strict=False))
