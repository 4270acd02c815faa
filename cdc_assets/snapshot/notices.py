"""Notifications of a snapshot (spec debezium-sqlserver §10.1).

What is done is recorded together with its notifications. What is about to be
done is published before, and again if it is repeated after a crash.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cdc_assets.config.filters import Names
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.notification import Notification, Outbox
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.snapshot_state import SnapshotRun, SnapshotSlice, SnapshotTable


class Notices:
    """Makes the notifications of snapshots.

    Args:
        outbox: sends notifications that are not recorded.
        listed: the include list of tables. A signal table that it leaves out is captured, but not among `data_collections`.
    """

    def __init__(self, ledger: Ledger, outbox: Outbox, listed: Names) -> None:
        self._ledger, self._outbox, self._listed = ledger, outbox, listed

    def send(self, notifications: Iterable[Notification]) -> None:
        """Send notifications that no row of the manifest records."""
        for notification in notifications:
            self._outbox.send(notification)

    def began(self, run: SnapshotRun) -> Notification:
        """Notification that the snapshot is planned."""
        return self._of(run, "STARTED")

    def ended(self, run: SnapshotRun, kind: str) -> Notification:
        """Notification of the end: `COMPLETED`, or `ABORTED` if it was given up or a table failed."""
        return self._of(run, kind)

    def unplanned(self, signal: str, failed: Iterable[TableId]) -> Iterator[Notification]:
        """Notifications of tables that could not be planned."""
        for table in failed:
            data = {"scanned_collection": str(table), "total_rows_scanned": "0", "status": "SQL_EXCEPTION"}
            yield self._ledger.notice("Initial Snapshot", "TABLE_SCAN_COMPLETED", signal, **data)

    def aborted_without_tables(self, signal: str, unplanned: Iterable[Notification]) -> Iterator[Notification]:
        """Notifications of a snapshot requested by a signal, of which no table can be read."""
        yield self._ledger.notice("Initial Snapshot", "STARTED", signal)
        yield from unplanned
        yield self._ledger.notice("Initial Snapshot", "ABORTED", signal)

    def reading(self, run: SnapshotRun, slices: Sequence[SnapshotSlice]) -> Iterator[Notification]:
        """Notifications of slices that are about to be read."""
        chunks = _chunks(run)
        names = self._names(other for other in run.tables if other.ranges)
        for entry in slices:
            table, chunk = str(entry.table), chunks[entry.number]
            if chunk.index == 0:
                yield self._of(run, "IN_PROGRESS", current_collection_in_progress=table, data_collections=names)
            if chunk.count > 1:
                data = {"current_collection_in_progress": table, "total_rows_scanned": "0"}
                yield self._of(run, "TABLE_CHUNK_IN_PROGRESS", **data, **chunk.data())

    def read(self, before: SnapshotRun, after: SnapshotRun, slices: Sequence[SnapshotSlice]) -> Iterator[Notification]:
        """Notifications of slices that are committed.

        Args:
            before: state of the snapshot before the round.
            after: state of the snapshot after the round.
            slices: slices of the round.
        """
        chunks, failed, scanned = _chunks(after), dict(after.failed), dict(after.scanned)
        names = self._names(after.tables)

        def ended(table: TableId, status: str) -> Notification:
            data = {"scanned_collection": str(table), "data_collections": names}
            rows = str(scanned.get(table, 0))
            return self._of(after, "TABLE_SCAN_COMPLETED", **data, total_rows_scanned=rows, status=status)

        for entry in slices:
            chunk = chunks[entry.number]
            if entry.table in failed:
                continue
            if chunk.count > 1:
                data = {"scanned_collection": str(entry.table), "data_collections": names}
                yield self._of(after, "TABLE_CHUNK_COMPLETED", **data, status="SUCCEEDED", **chunk.data())
            if chunk.index == chunk.count - 1:
                yield ended(entry.table, "SUCCEEDED")
        for table in failed.keys() - dict(before.failed).keys():
            yield ended(table, "SQL_EXCEPTION")

    def _names(self, tables: Iterable[SnapshotTable]) -> str:
        listed = self._listed
        chosen = (entry.table for entry in tables if not listed or listed.match(entry.table.within_database))
        return ",".join(map(str, chosen))

    def _of(self, run: SnapshotRun, kind: str, **data: str) -> Notification:
        return self._ledger.notice("Initial Snapshot", kind, run.signal, **data)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A slice's index among those of its table."""

    index: int
    count: int

    def data(self) -> dict[str, str]:
        return {"chunk_index": str(self.index), "total_chunks": str(self.count)}


def _chunks(run: SnapshotRun) -> list[_Chunk]:
    """Index of each slice within its table, by the slice's number."""
    counts = Counter(entry.table for entry in run.slices)
    seen: Counter[TableId] = Counter()
    chunks = []
    for entry in run.slices:
        chunks.append(_Chunk(seen[entry.table], counts[entry.table]))
        seen[entry.table] += 1
    return chunks
