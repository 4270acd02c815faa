"""Numbers of captured tables, for people: from the lake and, where it answers, the server."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from cdc_assets.capture.instances import gap_of, newest, reads_of
from cdc_assets.capture.lake import Lake
from cdc_assets.capture.progress import TableStatus
from cdc_assets.capture.server import Server
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.envelope.naming import topic_name
from cdc_assets.ledger.state import CaptureState, TableState


def statuses(
    server: Server, lake: Lake, state: CaptureState, selected: Mapping[str, Sequence[TableId]]
) -> Sequence[TableStatus]:
    """Numbers of each captured table.

    Args:
        server: of the capture.
        lake: of the capture.
        state: what the manifest says.
        selected: captured tables by database.

    Raises:
        CdcError: the server or the lake cannot be read.
    """
    found: list[TableStatus] = []
    for database, captured in selected.items():
        instances = server.instances(database)
        own = [entry for table, entry in state.tables.items() if table.database == database]
        positions = {entry.position for entry in own if entry.position is not None}
        times = server.source.commit_times(database, sorted(positions)) if positions else {}
        now = server.source.server_time()
        for table in captured:
            found.append(_status_of(lake, table, state.tables.get(table), instances.get(table, []), times, now))
    return found


def _status_of(
    lake: Lake,
    table: TableId,
    state: TableState | None,
    own: Sequence[CaptureInstance],
    times: Mapping[Lsn, datetime],
    now: datetime,
) -> TableStatus:
    topic = topic_name(table, lake.events)
    rows = lake.tables.row_count(topic)
    if state is None:
        return TableStatus(table, topic, "waiting", "not snapshotted yet", rows=rows)
    committed = times.get(state.position) if state.position else None
    return TableStatus(
        table=table,
        topic=topic,
        status=state.status,
        reason=state.reason,
        position=state.position,
        instance=state.instance,
        lag_s=max(0.0, (now - committed).total_seconds()) if committed else None,
        head_room=_readable(state, own),
        rows=rows,
        gap_after=state.gap_after,
        gap_until=state.gap_until,
    )


def _readable(state: TableState, own: Sequence[CaptureInstance]) -> bool | None:
    """Whether the next change after the position could still be read; None if the table is not captured."""
    if state.position is None or newest(own) is None:
        return None
    marks = {instance.name: instance.start_lsn for instance in own}
    return gap_of(reads_of(state.table, own, state.position, state.position.next()), marks) is None
