"""Folds events into a leaf of a table with a key, a portion of its rows at a time.

Rows of a leaf lie in the order of their keys, in each file and from file to file, and a key is in it once. So a portion of
consecutive rows and the events whose keys are not above its last one can be folded by themselves. What comes of them is written
before the next portion is read. A task thus holds the events about its leaf and one portion of rows,
whatever the size of the leaf; a portion that no event is about goes from file to file as it is. Events whose keys are
above all rows are portions of their own.

Files are written before it is known whether the task ends: until a commit names them they do not exist, so a crash at any
point leaves nothing but files that vacuum removes. Those of a job that failed are removed at once (`jobs`).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.lake.keys import BOUND_BYTES, bound_bytes
from cdc_assets.lake.location import Location
from cdc_assets.lake.row_shape import POSITION
from cdc_assets.mirror import leaves
from cdc_assets.mirror.files import GROUP_ROWS, FileWriter, last_rows
from cdc_assets.mirror.fold import COMMIT, Folded, Void, fold_keyed, lsns_of
from cdc_assets.mirror.leaves import Leaf, NewFile, new_name
from cdc_assets.mirror.shape import Shape
from cdc_assets.mirror.spans import Span, placed
from cdc_assets.mirror.texts import whole

_MEMORY_RATIO = 3
"""Bytes in memory for one in a file, of rows that come from no file."""


def by_key(shape: Shape, events: pa.Table, spans: Sequence[Span] = ()) -> pa.Table:
    """Events in the order of their keys, those of a key in the given order; of a position its LSN is left, or the end of its span.

    One column after the other is put in order, and given up before the next one: if the caller holds no reference, at most
    one of them is there twice.
    """
    columns, names = events.columns, events.column_names
    order = pc.array_sort_indices(shape.keys(events))  # stable
    del events
    for at, name in enumerate(names):
        column = whole(columns[at]).take(order)
        if name == POSITION:
            column = lsns_of(column)
            commits = [column] if spans and not shape.own_key else []
            column = placed(column, spans)
        columns[at] = column
        del column
    columns, names = [*columns, *commits], [*names, *([COMMIT] if commits else [])]
    return pa.Table.from_arrays(columns, names=names)


def folded_portions(
    shape: Shape, portions: Iterator[pa.Table], events: pa.Table, void: Void | None, doubt: str = ""
) -> Iterator[Folded]:
    """Fold events into rows, portion by portion.

    Args:
        portions: of rows that are in the order of their keys from first to last.
        events: as `by_key` returns them.
        doubt: see `PlannedStep`.

    Yields:
        Rows in the order of their keys, above all that came before.
    """
    keys, start = shape.keys(events), 0
    for rows in portions:
        if not rows.num_rows:
            continue
        end = _place_after(keys, start, shape.keys(rows.slice(rows.num_rows - 1))[0])
        if end > start or void is not None:
            yield fold_keyed(shape, rows, events.slice(start, end - start), void, doubt)
        else:
            yield Folded(rows, shape.versions.empty_table(), changed=False)
        start = end
    while start < len(keys):
        end = _place_after(keys, start, keys[min(start + GROUP_ROWS, len(keys)) - 1])
        yield fold_keyed(shape, shape.no_rows(), events.slice(start, end - start), void, doubt)
        start = end


def _place_after(keys: pa.Array, start: int, key: pa.Scalar) -> int:
    """First place from `start` on of sorted keys whose key is above another one."""
    low, high, wanted = start, len(keys), key.as_py()
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() <= wanted:
            low = middle + 1
        else:
            high = middle
    return low


def are_parted(location: Location, directory: str, shape: Shape, found: Sequence[Leaf]) -> bool:
    """Whether each leaf of a table holds the keys of its range only; a file that ends between rows of one bound, if that is as long as
    a bound can be, breaks the rule.

    Raises:
        LakeError: the lake cannot be read.
    """
    if not shape.keyed:
        return True
    parts = {part.name for part in shape.key}
    columns = pa.schema([field for field in shape.rows if field.name in parts])
    for leaf, following in pairwise(found):
        if leaf.bound == following.bound:
            return False
        if len(following.bound) == BOUND_BYTES:
            last = last_rows(location, directory, leaf.paths[-1], columns)
            if last.num_rows and bound_bytes(shape.keys(last)[-1].as_py()) >= following.bound:
                return False
    return True


class LeafWriter:
    """Writes rows, in the order of their keys, to the files that replace a leaf.

    A file ends where it has grown to the size of a leaf, if enough rows for another one are left, and only between two keys
    with different bounds: a leaf holds all rows of its bound.

    Args:
        leaf: which is replaced.
        rows: number of rows that are expected, if need be too great.
        attempt: see `leaves.new_attempt`.
    """

    def __init__(self, location: Location, directory: str, shape: Shape, leaf: Leaf, rows: int, attempt: str) -> None:
        self._location, self._directory, self._attempt = location, directory, attempt
        self._shape, self._leaf, self._left = shape, leaf, rows
        self._cut = 0
        self._writer: FileWriter | None = None
        self._last = b""
        """Bound of the newest row."""
        self._must = [column.name for column in shape.columns if not column.nullable]
        self.files: list[NewFile] = []
        self.nulls: set[str] = set()
        """Columns that should be NOT NULL and hold NULLs."""

    def write(self, rows: pa.Table) -> None:
        """Write rows whose keys are above all others."""
        self.nulls.update(name for name in self._must if rows[name].null_count)
        if not self._cut and rows.num_rows:
            self._cut = self._rows_of_a_file(rows)
        while rows.num_rows:
            count = self._count(rows)
            if not count:
                self._end()
                continue
            if self._writer is None:
                self._writer = self._opened(self._bound_of(rows, 0) if self.files else self._leaf.bound)
            self._writer.write(rows.slice(0, count))
            self._last = self._bound_of(rows, count - 1)
            rows, self._left = rows.slice(count), self._left - count

    def _count(self, rows: pa.Table) -> int:
        """How many rows come into the present file: if it is full, those that have the bound of its last one."""
        written = 0 if self._writer is None else self._writer.rows
        if written < self._cut:
            return int(min(rows.num_rows, self._cut - written))
        if 2 * self._left < self._cut:
            return int(rows.num_rows)
        low, high = 0, rows.num_rows
        while low < high:
            middle = (low + high) // 2
            if self._bound_of(rows, middle) <= self._last:
                low = middle + 1
            else:
                high = middle
        return low

    def _bound_of(self, rows: pa.Table, at: int) -> bytes:
        return bound_bytes(self._shape.keys(rows.slice(at, 1))[0].as_py())

    def _opened(self, bound: bytes) -> FileWriter:
        name = new_name(bound, self._attempt)
        return FileWriter(self._location, self._directory, name, self._shape.rows, self._shape.bounded)

    def _rows_of_a_file(self, rows: pa.Table) -> int:
        density = self._leaf.size / self._leaf.rows if self._leaf.rows else rows.nbytes / _MEMORY_RATIO / rows.num_rows
        return max(1, int(leaves.LEAF_BYTES / max(density, 1e-9)))

    def _end(self) -> None:
        if self._writer is not None:
            self.files.append(self._writer.end())
            self._writer = None

    def end(self) -> list[NewFile]:
        """End the last file; return all."""
        self._end()
        return self.files
