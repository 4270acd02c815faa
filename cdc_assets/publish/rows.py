"""Reads the rows of a topic in the order in which they are published: by window, and in a window by position.

*Which files.* Files of windows tell their window by their name, and a small one is a piece as a whole; if it turns out to have several row
groups, as wide rows that compress well have, one of these is read after the other. Compaction joins files, so of all others, and of large ones, the footer is
read, once, for the statistics of `window_id` in each row group. So a turn of the publisher opens the files of new
windows and those that compaction has mixed them into, never the whole table.

*In order with bounded memory.* A row group is a *piece* with a lower bound (its least window, and its least position). Pieces are
read in the order of their bounds; rows below the bound of the next piece cannot be preceded by any row that is not read
yet, so they are given away, and the rest waits. Files of windows do not overlap, so one piece waits at most, besides the one that is
read ahead; what compaction has mixed lies in few row groups.

*Rows that users append* have no window or no position, so they have no place among the events, and are passed over.

*The structure of an event* is that of its file: what a connector sent before a column was added has no such column. What
the fields mean is in the metadata of the table's schema.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from cdc_assets.errors import LakeError
from cdc_assets.lake.files import ROW_GROUP_ROWS
from cdc_assets.lake.reading import extent, opened, plain
from cdc_assets.lake.topics import TopicTables
from cdc_assets.publish.offset import END_OF_WINDOW, PublishOffset
from cdc_assets.publish.prefetch import prefetched
from cdc_assets.publish.reached import reached
from cdc_assets.publish.shared import OwnRows

_OF_WINDOW = re.compile(r"w(\d{10,})-")
_WHOLE_BYTES = 8_000_000
"""Bytes up to which the row groups of a file are not fetched before it is read."""
_ANY = (-1, 2**62)
"""Windows of a row group without statistics."""
_COLUMNS = ("position", "key", "value", "headers", "window_id")
_SOURCE = ("version", "connector", "name", "snapshot", "db", "schema", "table")
_REPEATED = ("headers.key_value.key", "headers.key_value.value", "value.op", *(f"value.source.{n}" for n in _SOURCE))
"""Texts that are few in a file; every topic's files hold them as numbers of a dictionary."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a file that are read at once.

    Args:
        directory: of the generation.
        group: number of the row group; None for a whole file.
        min_window: least window.
        max_window: greatest window.
        position: least position; empty if it is not known.
    """

    directory: str
    path: str
    group: int | None
    min_window: int
    max_window: int
    position: str

    @property
    def bound(self) -> PublishOffset:
        """No row of it comes before."""
        return self.min_window, self.position


class TopicRows:
    """Rows of one topic in all its generations.

    Args:
        tables: the lake's Delta tables.
        topic: its name.
    """

    def __init__(self, tables: TopicTables, topic: str) -> None:
        self._tables, self.topic = tables, topic
        self._known: dict[tuple[str, str], list[Piece]] = {}
        """Pieces of files whose footer was read."""
        self._directories: Sequence[str] = ()
        self._nothing: tuple[PublishOffset, int] | None = None
        """Place and window up to which the tables were found to have nothing after it."""

    def has_nothing(self, after: PublishOffset, until: int) -> bool:
        """Whether nothing was committed after a place up to a window that is complete; its tables are read once for each.

        Raises:
            LakeError: a table cannot be read.
        """
        if self._nothing != (after, until):
            self._directories = self._directories or self._tables.generations(self.topic)
            reached = max((self._tables.reached(directory) for directory in self._directories), default=-1)
            if reached > after[0] or (reached == after[0] and after[1] != END_OF_WINDOW):
                return False
            self._nothing = after, until
        return True

    def reached(self) -> int:
        """See `reached`."""
        return reached(self._tables, self.topic)

    def first_behind(self, place: PublishOffset, until: int, after: str = "") -> int | None:
        """The least number after a place, up to a window, of which a file has events; None if none has.

        Args:
            after: commit LSN after which events count; empty for all.

        Raises:
            LakeError: a table cannot be read.
        """
        first = place[0] + (place[1] == END_OF_WINDOW)
        found = list[int]()
        for directory in self._tables.generations(self.topic):
            handle = self._tables.open(directory)
            if handle is not None:
                pieces = self._pieces(directory, handle, self._known, after)
                found += (
                    max(first, piece.min_window)
                    for piece in pieces
                    if piece.max_window >= first and piece.min_window <= until
                )
        return min(found, default=None)

    def read(
        self,
        after: PublishOffset,
        until: int | None,
        newest: int | None = None,
        *,
        own: OwnRows | None = None,
        dictionaries: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Rows behind a place and up to a window, in order, each batch from one file.

        Args:
            newest: number of a commit that the tables have, as the manifest says; None if it says nothing.
            own: what keeps the rows that are wanted, of which none has the place of another; None if all are.
            dictionaries: whether texts that repeat come as numbers of their distinct values, as the file has them.

        Raises:
            LakeError: a file cannot be read; or the tables lack that commit, as those of a lake that went away meanwhile.
        """
        schemas: dict[str, pa.Schema] = {}
        pieces: list[Piece] = []
        reached = -1
        known = dict[tuple[str, str], list[Piece]]()
        self._directories = self._tables.generations(self.topic)
        for directory in self._directories:
            handle = self._tables.open(directory)
            if handle is None:
                continue
            number = self._tables.transaction(handle, directory)
            reached = reached if number is None else max(reached, number)
            schemas[directory] = pa.schema(handle.schema().to_arrow())
            for found in self._pieces(directory, handle, known):
                if found.max_window >= after[0] and (until is None or found.min_window <= until):
                    pieces.append(found)
        if newest is not None and reached < newest:
            raise LakeError(
                f"The manifest has commit {newest} of {self.topic}, but its tables end with {reached}. Next: see whether the lake's "
                "file system is mounted (lake.path); restore the table if it was removed"
            )
        self._known = known
        pieces.sort(key=lambda piece: piece.bound)
        batches = self._in_order(pieces, schemas, after, until, dictionaries)
        return once(batches if own is None else map(own, batches))

    def _pieces(
        self, directory: str, handle: DeltaTable, known: dict[tuple[str, str], list[Piece]], after: str = ""
    ) -> Iterator[Piece]:
        for row in pa.table(handle.get_add_actions(flatten=True)).to_pylist():
            path, rows = row["path"], row["num_records"] or 0
            if after and (row.get("max.position") or END_OF_WINDOW) <= after + END_OF_WINDOW:
                continue
            match = _OF_WINDOW.match(path)
            if match is not None and rows <= ROW_GROUP_ROWS and row["size_bytes"] <= _WHOLE_BYTES:
                yield Piece(directory, path, None, int(match[1]), int(match[1]), row.get("min.position") or "")
                continue
            place = directory, path
            known[place] = self._known.get(place) or list(self._groups(directory, path))
            yield from known[place]

    def _groups(self, directory: str, path: str) -> Iterator[Piece]:
        with opened(self._tables.location, directory, path) as parquet:
            yield from _groups_of(parquet, directory, path)

    def _in_order(
        self,
        pieces: Sequence[Piece],
        schemas: dict[str, pa.Schema],
        after: PublishOffset,
        until: int | None,
        dictionaries: bool,
    ) -> Iterator[pa.RecordBatch]:
        waiting = _Waiting()
        found = prefetched(
            partial(self._piece, piece, schemas[piece.directory], after, until, dictionaries) for piece in pieces
        )
        for number, (batch, rest) in enumerate(found, 1):
            while True:
                bounds = [piece.bound for piece in (*rest[:1], *pieces[number : number + 1])]
                yield from waiting.add(batch, min(bounds, default=None))
                if not rest:
                    break
                batch, _ = self._piece(rest[0], schemas[rest[0].directory], after, until, dictionaries)
                rest = rest[1:]

    def _piece(
        self, piece: Piece, schema: pa.Schema, after: PublishOffset, until: int | None, dictionaries: bool
    ) -> tuple[pa.RecordBatch, Sequence[Piece]]:
        """Rows of a piece, and what is left of it: row groups in the order of their bounds."""
        rest: list[Piece] = []
        texts = _REPEATED if dictionaries else ()
        with opened(self._tables.location, piece.directory, piece.path, texts) as parquet:
            if piece.group is None and parquet.num_row_groups > 1:
                found = _groups_of(parquet, piece.directory, piece.path)
                piece, *rest = sorted(found, key=lambda group: group.bound)
            groups = [piece.group or 0][: parquet.num_row_groups]
            table = plain(parquet.read_row_groups(groups, columns=list(_COLUMNS)))
        missing = set(_COLUMNS) - set(table.column_names)
        if missing:
            raise LakeError(
                f"{self._tables.location.uri(piece.directory)}/{piece.path} holds no events: it has no column "
                f"{', '.join(sorted(missing))}. Next: see who else writes into this table."
            )
        window, position = table["window_id"], table["position"]
        wanted = pc.or_(
            pc.greater(window, after[0]),
            pc.and_(pc.equal(window, after[0]), pc.greater(position, after[1])),
        )
        if until is not None:
            wanted = pc.and_(wanted, pc.less_equal(window, until))
        wanted = pc.fill_null(pc.and_(wanted, pc.is_valid(position)), False)
        table = table.select(list(_COLUMNS))
        table = table if pc.all(wanted, min_count=0).as_py() else table.filter(wanted)
        target = pa.schema([_narrowed(field, schema.field(field.name)) for field in table.schema])
        table = table.cast(target).combine_chunks()
        batches = table.to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=target), rest


class _Waiting:
    """Rows that were read and may have others before them that were not."""

    def __init__(self) -> None:
        self._held: dict[int, pa.RecordBatch] = {}
        self._order: list[tuple[int, str, int, int]] = []
        """Window, position, batch and row of each."""
        self._count = 0

    def add(self, batch: pa.RecordBatch, following: PublishOffset | None) -> Iterator[pa.RecordBatch]:
        """Rows that come before everything that is not read yet.

        Args:
            following: bound of that; None if all is read.
        """
        if not self._order and _is_next(batch, following):
            yield batch
            return
        windows, positions = batch.column("window_id").to_pylist(), batch.column("position").to_pylist()
        self._held[self._count] = batch
        self._order += zip(windows, positions, [self._count] * len(windows), range(len(windows)), strict=True)
        self._order.sort()
        self._count += 1
        ready = len(self._order) if following is None else bisect_left(self._order, following, key=itemgetter(0, 1))
        yield from _taken(self._held, self._order[:ready])
        self._order = self._order[ready:]
        self._held = {at: self._held[at] for at in {entry[2] for entry in self._order}}


def between(batch: pa.RecordBatch, low: str, high: str) -> pa.RecordBatch:
    """Rows whose positions lie between two."""
    positions = batch.column("position")
    wanted = pc.and_(pc.greater(positions, low), pc.less(positions, high))
    return batch if pc.all(wanted, min_count=0).as_py() else batch.filter(wanted)


def once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows in order without those that came before: an event may be there twice while another program's rewrite is not undone
    yet (`lake.foreign`). An event and its tombstone share a place."""
    last: PublishOffset | None = None
    seen: set[bool] = set()
    """Whether an event, and a tombstone, of the last place came."""
    for batch in batches:
        if not len(batch):
            continue
        windows, positions = batch.column("window_id"), batch.column("position")
        first = windows[0].as_py(), positions[0].as_py()
        same = pc.and_(pc.equal(windows[1:], windows[:-1]), pc.equal(positions[1:], positions[:-1]))
        if first == last or pc.any(same, min_count=0).as_py():
            batch, last, seen = _without_repeated(batch, last, seen)
        else:
            last, seen = (windows[-1].as_py(), positions[-1].as_py()), {not batch.column("value")[-1].is_valid}
        if len(batch):
            yield batch


def _without_repeated(
    batch: pa.RecordBatch, last: PublishOffset | None, seen: set[bool]
) -> tuple[pa.RecordBatch, PublishOffset | None, set[bool]]:
    """Rows that did not come before; the place of the last one, and what came of it."""
    windows, positions = batch.column("window_id").to_pylist(), batch.column("position").to_pylist()
    stays: list[bool] = []
    for place, is_tombstone in zip(
        zip(windows, positions, strict=True), batch.column("value").is_null().to_pylist(), strict=True
    ):
        if place != last:
            last, seen = place, set()
        stays.append(is_tombstone not in seen)
        seen = seen | {is_tombstone}
    return (batch if all(stays) else batch.filter(pa.array(stays))), last, seen


def _groups_of(parquet: pq.ParquetFile, directory: str, path: str) -> Iterator[Piece]:
    """The row groups of a file, by their statistics."""
    for group in range(parquet.num_row_groups):
        min_window, max_window = extent(parquet, group, "window_id") or _ANY
        position, _ = extent(parquet, group, "position") or ("", "")
        yield Piece(directory, path, group, min_window, max_window, position)


def _narrowed(found: pa.Field, described: pa.Field) -> pa.Field:
    """A file's field as the table describes it, with no more fields inside than the file has; numbers of texts stay."""
    kind = described.type
    if pa.types.is_dictionary(found.type):
        kind = pa.dictionary(found.type.index_type, kind)
    elif pa.types.is_struct(found.type) and pa.types.is_struct(kind):
        kind = pa.struct([_narrowed(child, kind.field(child.name)) for child in found.type])
    elif pa.types.is_map(found.type) and pa.types.is_map(kind):
        own = zip((found.type.key_field, found.type.item_field), (kind.key_field, kind.item_field), strict=True)
        kind = pa.map_(*(_narrowed(*pair) for pair in own))
    return pa.field(described.name, kind, described.nullable, described.metadata)


def _is_next(batch: pa.RecordBatch, following: PublishOffset | None) -> bool:
    """Whether all its rows are in their order, and before those of the next piece."""
    if not len(batch):
        return True
    windows, positions = batch.column("window_id"), batch.column("position")
    last = windows[-1].as_py(), positions[-1].as_py()
    if following is not None and last >= following:
        return False
    later = pc.greater(windows[1:], windows[:-1])
    same = pc.and_(pc.equal(windows[1:], windows[:-1]), pc.less_equal(positions[:-1], positions[1:]))
    return bool(pc.all(pc.or_(later, same), min_count=0).as_py())


def _taken(held: dict[int, pa.RecordBatch], order: Sequence[tuple[int, str, int, int]]) -> Iterator[pa.RecordBatch]:
    """Rows in their order, in runs from one piece."""
    for number, run in groupby(order, key=itemgetter(2)):
        rows = np.fromiter((entry[3] for entry in run), dtype=np.int64)
        if len(rows) == int(rows[-1]) - int(rows[0]) + 1 and bool((np.diff(rows) == 1).all()):
            yield held[number].slice(int(rows[0]), len(rows))
        else:
            yield held[number].take(pa.array(rows))
