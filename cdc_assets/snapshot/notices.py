"""What a snapshot tells while it works (spec debezium-sqlserver §10.1).

Notifications are about work that is done already. A crash may repeat one, and
none is lost but for those of the round in flight, whose work is repeated too.
"""

from collections.abc import Iterable, Mapping, Sequence

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
        for entry in slices:
            own = _slices_of(run, entry.table)
            if entry == own[0]:
                read = _names(table for table in run.tables if table.ranges)
                self._send(run, "IN_PROGRESS", current_collection_in_progress=str(entry.table), data_collections=read)
            if len(own) > 1:
                self._chunk(run, "TABLE_CHUNK_IN_PROGRESS", "current_collection_in_progress", own, entry)

    def read(
        self, before: SnapshotRun, after: SnapshotRun, slices: Sequence[SnapshotSlice], rows: Mapping[int, int]
    ) -> None:
        """Slices are committed.

        Args:
            before: the snapshot before the round.
            after: the same after it.
            slices: of the round.
            rows: by number of the slice.
        """
        failed, scanned = dict(after.failed), dict(after.scanned)
        for entry in slices:
            own = _slices_of(after, entry.table)
            if entry.table in failed:
                continue
            if len(own) > 1:
                count = str(rows.get(entry.number, 0))
                self._chunk(after, "TABLE_CHUNK_COMPLETED", "scanned_collection", own, entry, total_rows_scanned=count)
            if entry == own[-1]:
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

    def _chunk(
        self,
        run: SnapshotRun,
        kind: str,
        named: str,
        own: Sequence[SnapshotSlice],
        entry: SnapshotSlice,
        **data: str,
    ) -> None:
        place = {"chunk_index": str(own.index(entry)), "total_chunks": str(len(own))}
        self._send(run, kind, **{named: str(entry.table)}, **place, **data)

    def _send(self, run: SnapshotRun, kind: str, **data: str) -> None:
        self._context.notify("Initial Snapshot", kind, run.signal, **data)


def _slices_of(run: SnapshotRun, table: TableId) -> list[SnapshotSlice]:
    return [entry for entry in run.slices if entry.table == table]


def _names(tables: Iterable[SnapshotTable]) -> str:
    return ",".join(str(entry.table) for entry in tables)
