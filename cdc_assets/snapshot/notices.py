"""What a snapshot tells while it works (spec debezium-sqlserver §10.1).

Notifications are about work that is done already. A crash may repeat one, and
none is lost but for those of the round in flight, whose work is repeated too.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cdc_assets.core.identifiers import TableId
from cdc_assets.lake.state import SnapshotRun, SnapshotSlice, SnapshotTable
from cdc_assets.streaming.context import Context


class Notices:
    """Sends the notifications of snapshots.

    Args:
        context: of the capture.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def began(self, run: SnapshotRun) -> None:
        """The snapshot is planned."""
        self._send(run, "STARTED")

    def ended(self, run: SnapshotRun, kind: str) -> None:
        """`COMPLETED`, or `ABORTED` if it was given up or a table failed."""
        self._send(run, kind)

    def unplanned(self, signal: str, failed: Iterable[TableId]) -> None:
        """Tables that could not even be divided."""
        for table in failed:
            data = {"scanned_collection": str(table), "total_rows_scanned": "0", "status": "SQL_EXCEPTION"}
            self._context.notify("Initial Snapshot", "TABLE_SCAN_COMPLETED", signal, **data)

    def reading(self, run: SnapshotRun, slices: Sequence[SnapshotSlice]) -> None:
        """Slices are about to be read."""
        chunks = _chunks(run)
        for entry in slices:
            table, place = str(entry.table), chunks[entry.number]
            if place.index == 0:
                names = _names(other for other in run.tables if other.ranges)
                self._send(run, "IN_PROGRESS", current_collection_in_progress=table, data_collections=names)
            if place.count > 1:
                data = {"current_collection_in_progress": table, "total_rows_scanned": "0"}
                self._send(run, "TABLE_CHUNK_IN_PROGRESS", **data, **place.data())

    def read(self, before: SnapshotRun, after: SnapshotRun, slices: Sequence[SnapshotSlice]) -> None:
        """Slices are committed.

        Args:
            before: the snapshot before the round.
            after: the same after it.
            slices: of the round.
        """
        chunks, failed, scanned = _chunks(after), dict(after.failed), dict(after.scanned)
        for entry in slices:
            place = chunks[entry.number]
            if entry.table in failed:
                continue
            if place.count > 1:
                data = {"scanned_collection": str(entry.table), "data_collections": _names(after.tables)}
                self._send(after, "TABLE_CHUNK_COMPLETED", **data, status="SUCCEEDED", **place.data())
            if place.index == place.count - 1:
                self._scanned(after, entry.table, scanned.get(entry.table, 0), "SUCCEEDED")
        for table in failed.keys() - dict(before.failed).keys():
            self._scanned(after, table, scanned.get(table, 0), "SQL_EXCEPTION")

    def _scanned(self, run: SnapshotRun, table: TableId, rows: int, status: str) -> None:
        self._send(
            run,
            "TABLE_SCAN_COMPLETED",
            scanned_collection=str(table),
            data_collections=_names(run.tables),
            total_rows_scanned=str(rows),
            status=status,
        )

    def _send(self, run: SnapshotRun, kind: str, **data: str) -> None:
        self._context.notify("Initial Snapshot", kind, run.signal, **data)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A slice's place among those of its table."""

    index: int
    count: int

    def data(self) -> dict[str, str]:
        return {"chunk_index": str(self.index), "total_chunks": str(self.count)}


def _chunks(run: SnapshotRun) -> list[_Chunk]:
    """By number of the slice."""
    counts = Counter(entry.table for entry in run.slices)
    seen: Counter[TableId] = Counter()
    chunks = []
    for entry in run.slices:
        chunks.append(_Chunk(seen[entry.table], counts[entry.table]))
        seen[entry.table] += 1
    return chunks


def _names(tables: Iterable[SnapshotTable]) -> str:
    return ",".join(str(entry.table) for entry in tables)
