"""Encoded rows of large tables, kept in blocks, so that a reader measures itself and not this server.

The rows of a table that a scan selects are encoded once, in blocks of `BLOCK` SQLite rowids, and
sent as bytes afterwards. Nothing is assumed about the query's condition or order; the data are asked:

- *Contiguous*: the condition selects `n` rows between the lowest rowid `a` and the highest `b`. If the table holds
  exactly `n` rows from `a` to `b`, the result is that range. Else the ordinary way is taken.
- *In order*: before a block is kept for an ORDER BY, SQLite proves that its rows ascend by the wanted columns in rowid
  order. How a block joins the row before it is asked at every read, since that row is another block's. One
  counter-example ends block service for that read.
- *Joins*: a LEFT JOIN on a unique key keeps rows; a block is used only if each of its rows found its partner, so that a
  later insertion into the joined table cannot change it.
- *Fresh*: a kept block carries the version of its rows (see `versions`), which every change of one of them raises. A reader
  looks at versions in the SQLite snapshot in which it reads rows, so it gets exactly the blocks of its snapshot, and
  only blocks that a change touched are encoded anew. A session with uncommitted changes gets no blocks: its versions may
  be taken back and come again for other rows.
"""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mssql_standin.contract import Query, ResultSink
from mssql_standin.sqltypes import Value
from mssql_standin.store.storage import Storage
from mssql_standin.store.temporary import is_temporary
from mssql_standin.wire import versions
from mssql_standin.wire.response import Response
from mssql_standin.wire.rowenc import Encoder, encoder_of
from mssql_standin.wire.scans import Scan, recognise
from mssql_standin.wire.versions import Version, Versions

BLOCK: Final = 4096
"""Rowids of a block."""
WORTHWHILE: Final = 2 * BLOCK
"""Rows below which the ordinary way is as good."""
LIMIT_BYTES: Final = 512 * 1024 * 1024
"""Of kept blocks, by default. A scan of more than fits in finds none of its blocks when it comes again, since they leave in the order
in which it reads them."""
_PATIENCE: Final = 3
"""Fruitless looks at a statement before the next ones are skipped."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Rowids, both ends included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Block:
    version: Version
    count: int
    rows: bytes


class Unordered(Exception):  # noqa: N818 - a finding, not an error
    """The rows of a block are not in the wanted order, or one of them has no partner in a join."""


class RowBlocks:
    """The blocks of one engine; implements `contract.RowBlocks`.

    Args:
        storage: the engine's.
        limit: most bytes of kept blocks.
    """

    def __init__(self, storage: Storage, limit: int = LIMIT_BYTES) -> None:
        self._storage, self._limit = storage, limit
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[object, int], _Block] = OrderedDict()
        self._bytes = 0
        self._fruitless: dict[str, int] = {}
        self.served = 0
        """Rows sent from blocks so far."""
        self.encoded = 0
        """Rows among them that had to be encoded first."""

    def send(
        self, connection: sqlite3.Connection, query: Query, values: Mapping[str, Value], sink: ResultSink
    ) -> int | None:
        """Send a query's whole result from blocks; None if that cannot be done, nothing is sent then."""
        if not isinstance(sink, Response) or sink.fault is not None or self._skip(query.sql):
            return None
        scan = recognise(query) if self._large(connection, query) else None
        if scan is None or not versions.watched(self._storage, connection, scan.tables, BLOCK):
            self._fruitless[query.sql] = self._fruitless.get(query.sql, 0) + 1
            return None
        with _Snapshot(connection):
            job = self._job(connection, scan, query, values)
            if job is None:
                self._fruitless[query.sql] = self._fruitless.get(query.sql, 0) + 1
                return None
            self._fruitless.pop(query.sql, None)
            sink.columns(query.columns)
            count = sink.blocks(job.blocks())
            self.served += count
            self.encoded += job.encoded
            return count

    # ---- is it worth the trouble -----------------------------------------------------------------------------

    def _skip(self, sql: str) -> bool:
        """Statements that never profit are looked at ever more rarely."""
        misses = self._fruitless.get(sql, 0)
        if misses < _PATIENCE:
            return False
        self._fruitless[sql] = misses + 1
        if len(self._fruitless) > 10_000:
            self._fruitless.clear()
        return misses & (misses - 1) != 0

    @staticmethod
    def _large(connection: sqlite3.Connection, query: Query) -> bool:
        """Whether the first table is worth it; temporary tables are one session's own and never watched."""
        tables = [relation.table for relation in query.relations if relation.table is not None]
        if not tables or any(is_temporary(table) for table in tables):
            return False
        highest = connection.execute(f"SELECT max(rowid) FROM t{tables[0].object_id}").fetchone()[0]
        return highest is not None and highest >= WORTHWHILE

    def _job(
        self, connection: sqlite3.Connection, scan: Scan, query: Query, values: Mapping[str, Value]
    ) -> "_Job | None":
        found = _contiguous(connection, scan, values)
        present = versions.of(connection, scan.tables, BLOCK) if found is not None else None
        if found is None or present is None:
            return None
        key = (scan.selected, scan.source, scan.order, tuple(query.columns))
        job = _Job(self, connection, scan, encoder_of(query.columns), key, present, found)
        try:
            job.prepare()
        except Unordered:
            return None
        return job

    # ---- the store -------------------------------------------------------------------------------------------

    def get(self, key: object, number: int, version: Version) -> _Block | None:
        """A kept block, if it is of this version."""
        with self._lock:
            block = self._blocks.get((key, number))
            if block is None or block.version != version:
                return None
            self._blocks.move_to_end((key, number))
            return block

    def put(self, key: object, number: int, block: _Block) -> None:
        """Keep a block; the least recently used ones make room."""
        with self._lock:
            old = self._blocks.pop((key, number), None)
            self._bytes += len(block.rows) - (len(old.rows) if old else 0)
            self._blocks[key, number] = block
            while self._bytes > self._limit and len(self._blocks) > 1:
                _, dropped = self._blocks.popitem(last=False)
                self._bytes -= len(dropped.rows)


class _Snapshot:
    """One SQLite snapshot for several statements."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._own = not connection.in_transaction

    def __enter__(self) -> None:
        if self._own:
            self._connection.execute("BEGIN")

    def __exit__(self, *exception: object) -> None:
        if self._own and self._connection.in_transaction:
            self._connection.execute("COMMIT")


def _contiguous(connection: sqlite3.Connection, scan: Scan, values: Mapping[str, Value]) -> _Range | None:
    """The rowids of the result, if it is worthwhile and has no holes."""
    if not scan.condition:
        row = connection.execute(f"SELECT min(rowid) FROM {scan.table}").fetchone()
        last = connection.execute(f"SELECT max(rowid) FROM {scan.table}").fetchone()[0]
        return _Range(row[0] // BLOCK * BLOCK, last // BLOCK * BLOCK + BLOCK - 1) if row[0] is not None else None
    first, last, count = connection.execute(
        f"SELECT min(s1.rowid), max(s1.rowid), count(*) FROM {scan.driving} WHERE {scan.condition}", values
    ).fetchone()
    if count < WORTHWHILE:
        return None
    between = f"SELECT count(*) FROM {scan.table} WHERE rowid BETWEEN ? AND ?"
    present = connection.execute(between, (first, last)).fetchone()[0]
    return _Range(first, last) if present == count else None


class _Job:
    """One result from blocks."""

    def __init__(
        self,
        store: RowBlocks,
        connection: sqlite3.Connection,
        scan: Scan,
        encoder: Encoder,
        key: object,
        present: Versions,
        wanted: _Range,
    ) -> None:
        self._store, self._connection, self._scan, self._encoder = store, connection, scan, encoder
        self._key, self._versions, self._wanted = key, present, wanted
        self.encoded = 0

    def _pieces(self) -> Iterator[tuple[int, _Range, bool]]:
        """(block number, its part of the range, whether it is the whole block)."""
        first, last = self._wanted.first, self._wanted.last
        for number in range(first // BLOCK, last // BLOCK + 1):
            start, end = number * BLOCK, number * BLOCK + BLOCK - 1
            yield number, _Range(max(start, first), min(end, last)), first <= start and end <= last

    def prepare(self) -> None:
        """Prove what is not known yet about order and partners, before anything is sent.

        Raises:
            Unordered: block service is impossible.
        """
        for number, part, whole in self._pieces():
            if not whole or self._kept(number) is None:
                self._prove(part)
            elif self._scan.order:
                self._prove_link(part)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Encoded rows, piece by piece."""
        for number, part, whole in self._pieces():
            block = self._kept(number) if whole else None
            if block is None:
                block = _Block(self._versions.of(number), *self._encode(part))
                self.encoded += block.count
                if whole:
                    self._store.put(self._key, number, block)
            if block.count:
                yield block.count, block.rows

    def _kept(self, number: int) -> _Block | None:
        return self._store.get(self._key, number, self._versions.of(number))

    def _encode(self, part: _Range) -> tuple[int, bytes]:
        text = f"SELECT {self._scan.selected} FROM {self._scan.source} WHERE s1.rowid BETWEEN ? AND ? ORDER BY s1.rowid"
        cursor = self._connection.execute(text, (part.first, part.last))
        try:
            return self._encoder(cursor)
        finally:
            cursor.close()

    def _prove(self, part: _Range) -> None:
        if len(self._scan.tables) > 1:
            text = f"SELECT 1 FROM {self._scan.source} WHERE s1.rowid BETWEEN ? AND ? AND s2.rowid IS NULL LIMIT 1"
            self._none(text, (part.first, part.last))
        if self._scan.order:
            self._prove_order(part)

    def _prove_link(self, part: _Range) -> None:
        """The first row of a part that is in order is not below the row before it."""
        first = self._connection.execute(
            f"SELECT min(rowid) FROM {self._scan.table} WHERE rowid BETWEEN ? AND ?", (part.first, part.last)
        ).fetchone()[0]
        if first is not None:
            self._prove_order(_Range(part.first, first))

    def _prove_order(self, part: _Range) -> None:
        """No row of the part is below the one before it. The first one's predecessor counts even if it is not wanted: a read
        of more rows would ask for it."""
        before = f"SELECT max(rowid) FROM {self._scan.table} WHERE rowid < ?"
        start = self._connection.execute(before, (part.first,)).fetchone()[0]
        span = _Range(part.first if start is None else start, part.last)
        if not self._ascends_without_holes(span):
            self._prove_by_window(span)

    def _ascends_without_holes(self, span: _Range) -> bool:
        """A quick proof for what is usual: every rowid of the range is taken, and no row is below the one before it.

        Counted are the neighbours that are in order for certain: where a NULL leaves it open, or a rowid is free, the
        count is too low, and the slow proof has to tell. It takes a tenth of that one's time.
        """
        if not self._scan.is_stored:
            return False
        here = ", ".join(self._scan.order)
        before = ", ".join("b." + text.removeprefix("s1.") for text in self._scan.order)
        text = (
            f"SELECT count(*) FROM {self._scan.table} AS b JOIN {self._scan.driving} ON s1.rowid = b.rowid + 1 "
            f"WHERE b.rowid BETWEEN ? AND ? AND ({before}) <= ({here})"
        )
        found = self._connection.execute(text, (span.first, span.last - 1)).fetchone()[0]
        return bool(found == span.last - span.first)

    def _prove_by_window(self, span: _Range) -> None:
        columns = [(f"o{place}", f"p{place}", text) for place, text in enumerate(self._scan.order)]
        listed = ", ".join(f"{text} AS {o}, lag({text}) OVER w AS {p}" for o, p, text in columns)
        inner = (
            f"SELECT {listed} FROM {self._scan.driving} WHERE s1.rowid BETWEEN ? AND ? WINDOW w AS (ORDER BY s1.rowid)"
        )
        below = " OR ".join(
            "(" + " AND ".join([*(f"{o} IS {p}" for o, p, _ in columns[:place]), _descends(*columns[place][:2])]) + ")"
            for place in range(len(columns))
        )
        self._none(f"SELECT 1 FROM ({inner}) WHERE {below} LIMIT 1", (span.first, span.last))

    def _none(self, text: str, bounds: tuple[int, int]) -> None:
        if self._connection.execute(text, bounds).fetchone() is not None:
            raise Unordered


def _descends(here: str, before: str) -> str:
    """NULL sorts first. The first row of a range has no predecessor and reads NULL there, which is below nothing."""
    return f"({here} < {before} OR ({here} IS NULL AND {before} IS NOT NULL))"
