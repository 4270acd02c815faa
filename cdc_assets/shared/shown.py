"""What events show of a table's columns by the settings of now, if that is recorded otherwise."""

from dataclasses import replace
from datetime import datetime

from cdc_assets.core.lsn import Lsn
from cdc_assets.history.records import HistoryEntry
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.lake import Lake


def shown_otherwise(
    lake: Lake, state: TableState, known: HistoryEntry, after: Lsn, now: datetime
) -> HistoryEntry | None:
    """The newest structure again, if the settings have other columns left out or masked than when it was recorded; else None.

    A snapshot of the whole table records that itself; one that did not was made by the former settings, and so comes before it.

    Args:
        known: structure of the capture instance that is read.
        after: LSN up to which the topic is complete.
    """
    latest = lake.history.latest(state.table)
    last = known if latest is None or latest.identity != known.identity else latest
    hidden = lake.hidden(last.schema, last.captured)
    if hidden == (last.hidden or ()):
        return None
    lsn = max(after, last.lsn, state.snapshot_lsn or after).next()
    return replace(last, kind="ALTER", lsn=lsn, at=now, snapshot=None, last=False, hidden=hidden)
