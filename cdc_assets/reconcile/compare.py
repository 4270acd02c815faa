"""Where rows of the server and of a mirror differ: the pure part of a comparison.

*In flight.* The server is read a little later than the mirror, while others write. A difference counts only if at no LSN
since the one that the mirror had reached before the read the mirror was as the server was read: then the row that was
read has never been in the log. The mirror must have passed the read first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.kernels import mask_of
from cdc_assets.mirror.fold import equal_rows
from cdc_assets.mirror.shape import FROM_LSN, TO_LSN

MAX_CHANGED = 1000
"""Rows of a leaf that are listed of those that the server has, and of those that only the mirror has; all others are only counted."""
COUNT = "__count"
"""Column of rows: how many there are with the key, or without a key how many there are of each."""


@dataclass(frozen=True, slots=True)
class Found:
    """What differs in a leaf.

    Both sides are cut at the same keys: if a row is listed on one side only, the other side lacks it.

    Args:
        rows: how many the server has.
        mirrored: how many the mirror has.
        server: rows of the server that the mirror has otherwise, or not, as an Arrow IPC stream; one for each key.
        mirror: rows of the mirror that the server has otherwise, or not; likewise.
        more: number of keys that differ and are not listed.
        more_absent: number of those of them that only the mirror has.
    """

    rows: int
    mirrored: int
    server: bytes
    mirror: bytes
    more: int = 0
    more_absent: int = 0


def pack(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpack(data: bytes) -> pa.Table:
    """Inverse of `pack`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


@dataclass(frozen=True, slots=True)
class Side:
    """Rows of one side.

    Args:
        keys: what identifies each of them.
    """

    rows: pa.Table
    keys: pa.Array

    def counts(self, keys: pa.Array) -> pa.Array:
        """How many rows each of some keys has."""
        counted = pc.value_counts(self.keys)
        return pc.fill_null(counted.field("counts").take(pc.index_in(keys, value_set=counted.field("values"))), 0)

    def listed(self, keys: pa.Array) -> bytes:
        """The first row of each of some keys that it has, with their number."""
        keys = keys.filter(pc.is_in(keys, value_set=self.keys))
        rows = self.rows.take(pc.index_in(keys, value_set=self.keys))
        return pack(rows.append_column(COUNT, self.counts(keys)))


def compare_keyed(server: Side, mirror: Side, names: Sequence[str], *, unique: bool = True) -> Found:
    """Compare rows by their keys; rows of the mirror that share one are never right.

    Args:
        names: columns that are compared.
        unique: whether no two rows of the server share a key. Then it may be there twice if it moved while it was read; else a mirror
            cannot hold both.
    """
    at = pc.index_in(server.keys, value_set=mirror.keys)
    matched = pa.array(np.flatnonzero(mask_of(pc.is_valid(at))))
    same = equal_rows(server.rows.take(matched), mirror.rows.take(at.take(matched)), names)
    agreeing = pc.unique(server.keys.take(matched).filter(pa.array(same)))
    for side in (mirror,) if unique else (mirror, server):
        agreeing = agreeing.filter(pc.equal(side.counts(agreeing), 1))
    here = pc.unique(server.keys)
    return _found(server, mirror, here.filter(pc.invert(pc.is_in(here, value_set=agreeing))))


def compare_multiset(server: Side, mirror: Side, names: Sequence[str], *, unique: bool = False) -> Found:
    """Compare rows without a key: how many of each there are; see `compare_keyed`."""
    del names, unique
    here = pc.unique(server.keys)
    return _found(server, mirror, here.filter(pc.not_equal(server.counts(here), mirror.counts(here))))


def _found(server: Side, mirror: Side, here: pa.Array) -> Found:
    """What differs, given the keys of those rows that the server has."""
    absent = pc.unique(mirror.keys.filter(pc.invert(pc.is_in(mirror.keys, value_set=server.keys))))
    first = (keys.take(pc.array_sort_indices(keys)[:MAX_CHANGED]) for keys in (here, absent))
    listed = pa.concat_arrays(list(first))
    return Found(
        server.rows.num_rows,
        mirror.rows.num_rows,
        server.listed(listed),
        mirror.listed(listed),
        len(here) + len(absent) - len(listed),
        max(0, len(absent) - MAX_CHANGED),
    )


Row = Mapping[str, object]


def was_so(row: Row | None, versions: Sequence[Row], since: str, names: Sequence[str]) -> bool:
    """Whether the mirror had a row, or lacked it, at some LSN from `since` on.

    Args:
        row: as the server was read; None if it had none.
        versions: all versions of its key that did not end before.
    """
    if row is not None:
        return any(all(version[name] == row[name] for name in names) for version in versions)
    ordered = sorted((str(version[FROM_LSN]), str(version[TO_LSN] or "~")) for version in versions)
    reached = since
    for start, end in ordered:
        if start > reached:
            return True
        reached = max(reached, end)
    return reached < "~"


def were_so_many(count: int, versions: Sequence[Row]) -> bool:
    """Whether one row may have been read so often under a key: at most once in each of its versions, for it may move with each change."""
    return count <= max(1, len(versions))


def was_so_often(count: int, versions: Sequence[Row], since: str) -> bool:
    """Whether a mirror without a key had a row so often at some LSN from `since` on."""
    lives = [(str(version[FROM_LSN]), str(version[TO_LSN] or "~")) for version in versions]
    moments = {since, *(moment for life in lives for moment in life if since < moment < "~")}
    return any(sum(start <= moment < end for start, end in lives) == count for moment in moments)
