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

from cdc_assets.kernels import Numbers
from cdc_assets.mirror.fold import equal_rows
from cdc_assets.mirror.shape import FROM_LSN, TO_LSN

MAX_CHANGED = 1000
"""Rows of a leaf that are listed; all others are only counted."""
COUNT = "__count"
"""Column of rows: how many there are, of the mirror's with a key how many have it, of the server's without a key."""


@dataclass(frozen=True, slots=True)
class Found:
    """What differs in a leaf.

    Args:
        rows: how many the server has.
        mirrored: how many the mirror has.
        server: rows of the server that the mirror has otherwise, or not, as an Arrow IPC stream.
        mirror: rows of the mirror that the server has otherwise, or not.
        more: number of rows that differ and are not listed.
    """

    rows: int
    mirrored: int
    server: bytes
    mirror: bytes
    more: int = 0


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


def compare_keyed(server: pa.Table, read: pa.Array, mirror: pa.Table, known: pa.Array, names: Sequence[str]) -> Found:
    """Compare rows by their keys; rows of the mirror that share one are never right.

    Args:
        read: keys of the server's rows; a row that moved while it was read may be there twice.
        known: keys of the mirror's rows.
        names: columns that are compared.
    """
    at = pc.index_in(read, value_set=known)
    matched = np.flatnonzero(np.asarray(pc.is_valid(at)))
    places = at.take(pa.array(matched))
    same = equal_rows(server.take(pa.array(matched)), mirror.take(places), names)
    counted = pc.value_counts(known)
    twice = counted.filter(pc.greater(counted.field("counts"), 1))
    agreeing = read.take(pa.array(matched[same]))
    agreeing = agreeing.filter(pc.invert(pc.is_in(agreeing, value_set=twice.field("values"))))
    counts = pc.fill_null(twice.field("counts").take(pc.index_in(known, value_set=twice.field("values"))), 1)
    mirror = mirror.append_column(COUNT, counts)
    differs = np.asarray(pc.invert(pc.is_in(read, value_set=agreeing)))
    otherwise = np.asarray(pc.invert(pc.is_in(known, value_set=agreeing)))
    return _found(server, mirror, np.flatnonzero(differs), np.flatnonzero(otherwise))


def compare_multiset(
    server: pa.Table, read: pa.Array, mirror: pa.Table, known: pa.Array, names: Sequence[str]
) -> Found:
    """Compare rows without a key: how many of each there are; see `compare_keyed`."""
    del names
    here, first_here, there, first_there = *_counted(read), *_counted(known)
    differing = {code for code in here.keys() | there.keys() if here.get(code) != there.get(code)}
    chosen = sorted((first_here[code], here[code]) for code in differing if code in here)
    other = sorted((first_there[code], there[code]) for code in differing if code in there)
    found = _found(
        _with_counts(server, chosen),
        _with_counts(mirror, other),
        np.arange(len(chosen)),
        np.arange(len(other)),
    )
    return Found(server.num_rows, mirror.num_rows, found.server, found.mirror, found.more)


def _counted(codes: pa.Array) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """How often each code occurs, and where first."""
    counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(codes).to_pylist()}
    firsts = pc.index_in(pa.array(list(counts), codes.type), value_set=codes).to_pylist()
    return counts, dict(zip(counts, firsts, strict=True))


def _with_counts(rows: pa.Table, chosen: Sequence[tuple[int, int]]) -> pa.Table:
    taken = rows.take(pa.array([at for at, _ in chosen], pa.int64()))
    return taken.append_column(COUNT, pa.array([count for _, count in chosen], pa.int64()))


def _found(server: pa.Table, mirror: pa.Table, differs: Numbers, otherwise: Numbers) -> Found:
    more = max(0, len(differs) - MAX_CHANGED, len(otherwise) - MAX_CHANGED)
    return Found(
        server.num_rows,
        mirror.num_rows,
        pack(server.take(pa.array(differs[:MAX_CHANGED], pa.int64()))),
        pack(mirror.take(pa.array(otherwise[:MAX_CHANGED], pa.int64()))),
        more,
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


def was_so_often(count: int, versions: Sequence[Row], since: str) -> bool:
    """Whether a mirror without a key had a row so often at some LSN from `since` on."""
    lives = [(str(version[FROM_LSN]), str(version[TO_LSN] or "~")) for version in versions]
    moments = {since, *(moment for life in lives for moment in life if since < moment < "~")}
    return any(sum(start <= moment < end for start, end in lives) == count for moment in moments)
