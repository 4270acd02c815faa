"""Notifications of an incremental snapshot, in the connector's words (spec debezium-sqlserver §10.1, measured).

Keys are shown as people may see them: a notification goes into logs, into Dagster's storage, and to whoever reads its topic.
The connector tells them as they are.

The id of each notification is that of the signal that requested the snapshot,
even if another signal paused, resumed or stopped it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cdc_assets.core.notification import Aggregate
from cdc_assets.ledger.signal_state import Key, QueuedTable, SignalState


@dataclass(frozen=True, slots=True)
class SnapshotNotice:
    """A notification about a snapshot and the signal that requested it; a blocking snapshot is reported as an initial one."""

    kind: str
    signal: str
    data: dict[str, str]
    aggregate: Aggregate = "Incremental Snapshot"


def aborted_without_tables(signal: str) -> list[SnapshotNotice]:
    """Notifications of a blocking snapshot without any known table."""
    return [SnapshotNotice(kind, signal, {}, "Initial Snapshot") for kind in ("STARTED", "ABORTED")]


def of_tables(kind: str, signal: str, tables: Iterable[object]) -> SnapshotNotice:
    """A `STARTED`, `PAUSED`, `RESUMED` or `ABORTED` notification with the tables that it concerns."""
    return SnapshotNotice(kind, signal, {"data_collections": _names(tables)})


def in_progress(queue: Sequence[QueuedTable], shown: Callable[[QueuedTable, Key], Key]) -> SnapshotNotice:
    """Notification that a round of the first table in the queue is committed.

    Args:
        shown: what people may see of one of the table's keys.
    """
    entry = queue[0]
    data = {
        "data_collections": _names(queued.table for queued in queue),
        "current_collection_in_progress": str(entry.table),
        "maximum_key": _names(shown(entry, entry.maximum or ())),
        "last_processed_key": _names(shown(entry, entry.last or ())),
    }
    return SnapshotNotice("IN_PROGRESS", entry.signal, data)


def scanned(
    table: object, signal: str, status: str, rows: int, queue: Iterable[object], reason: str = ""
) -> SnapshotNotice:
    """Notification that a table is finished, with its status; the queue still includes the table.

    Args:
        reason: why it could not be read, with the next step; unlike the connector's.
    """
    data = {
        "data_collections": _names(queue),
        "scanned_collection": str(table),
        "total_rows_scanned": str(rows),
        "status": status,
    }
    return SnapshotNotice("TABLE_SCAN_COMPLETED", signal, data | ({"reason": reason} if reason else {}))


def ends(signal: str, state: SignalState) -> tuple[list[SnapshotNotice], SignalState]:
    """Notifications of the end of a signal's snapshot, if none of its tables is queued any more, and the state after them.

    `COMPLETED` says that the whole queue is empty. The connector sends it after any end; here it is
    `ABORTED` if a table of the signal could not be read.
    """
    if any(entry.signal == signal for entry in state.queue):
        return [], state
    lost = [name for owner, name in state.failed if owner == signal]
    remaining = tuple(entry for entry in state.failed if entry[0] != signal)
    if lost:
        return [of_tables("ABORTED", signal, lost)], dataclasses.replace(state, failed=remaining)
    return ([] if state.queue else [SnapshotNotice("COMPLETED", signal, {})]), state


def _names(values: Iterable[object]) -> str:
    return ",".join(map(str, values))
