"""What a table is doing, and how much of its snapshot is read."""

from collections import Counter
from collections.abc import Mapping

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.history.drift import Drift
from cdc_assets.ledger.snapshot_state import SnapshotRun
from cdc_assets.overview.capture import CaptureOverview
from cdc_assets.overview.report import TableCondition, TableReport
from cdc_assets.overview.tables import TableOverview

Progress = tuple[float, float | None]
"""Percent of a table that a snapshot has read, and seconds until it has read all of it, if that is known."""


def table_report(
    table: TableOverview, overview: CaptureOverview, drift: Drift | None, progress: Progress | None
) -> TableReport:
    """One table.

    Args:
        drift: how it differs from its events, if that was compared.
        progress: of its snapshot, if one is in flight.
    """
    condition, reason = _condition(table, overview, drift, reads=progress is not None)
    dropped = overview.state.retained.get(table.topic)
    percent, eta_s = progress if progress is not None and condition == "snapshotting" else (None, None)
    return TableReport(
        table=table.table,
        topic=table.topic,
        condition=condition,
        reason=reason,
        complete_to=table.position,
        instance=table.recorded.instance if table.recorded else None,
        percent=percent,
        eta_s=eta_s,
        headroom_h=table.headroom.hours if table.headroom else None,
        ignored_gaps=table.recorded.ignored_gaps if table.recorded else (),
        complete_after=Lsn.parse(dropped.after) if dropped and dropped.after else None,
    )


def _condition(
    table: TableOverview, overview: CaptureOverview, drift: Drift | None, *, reads: bool
) -> tuple[TableCondition, str]:
    """The worst that is true of a table; a snapshot in flight repairs a gap, but has not yet."""
    if table.status in ("gap", "failed"):
        return table.status, table.reason
    if table.status in ("excluded", "not captured"):
        return table.status, table.reason
    if reads:
        return "snapshotting", table.reason
    if table.status == "waiting":
        return table.status, table.reason
    if not overview.streams:
        return "snapshotted", "the snapshot mode streams no changes"
    if table.position is None:
        return "not streamed", (
            "the server does not capture its changes, so its topic lacks them. "
            "Next: EXEC sys.sp_cdc_enable_table for it, or exclude it from the capture"
        )
    if drift and drift.differences:
        texts = "; ".join(map(str, drift.differences))
        return "drifted", f"its structure differs from that of its events: {texts}. Next: {drift.remedy}"
    return "streaming", ""


def progress_of(run: SnapshotRun, reads_per_s: float) -> Mapping[TableId, Progress]:
    """Of each table percent of its rows that are read, and seconds until the rest is, with all slices before its last one."""
    total, done, remaining, ahead = Counter[TableId](), Counter[TableId](), dict[TableId, int](), 0
    for place, part in enumerate(run.slices):
        rows = max(part.rows, 1)
        total[part.table] += rows
        if place < run.done:
            done[part.table] += rows
        else:
            ahead += rows
        remaining[part.table] = ahead
    return {
        entry.table: (
            100.0 * done[entry.table] / (total[entry.table] or 1),
            remaining.get(entry.table, 0) / reads_per_s if reads_per_s > 0 else None,
        )
        for entry in run.tables
    }
