"""What events show of a table's columns by the settings of now, if that is recorded otherwise."""

from dataclasses import replace
from datetime import datetime

from cdc_assets.core.lsn import Lsn
from cdc_assets.envelope.plan import Hidden
from cdc_assets.history.records import HistoryEntry
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.signal_state import RoundReads
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.lake import Lake


def shown_otherwise(
    lake: Lake, state: TableState, known: HistoryEntry, after: Lsn, now: datetime, hidden: Hidden | None = None
) -> HistoryEntry | None:
    """The newest structure again, if the settings have other columns left out or masked than when it was recorded; else None.

    A snapshot of the whole table records that itself; one that did not was made by the former settings, and so comes before it.

    Args:
        known: structure of the capture instance that is read.
        after: LSN up to which the topic is complete.
        hidden: what settings hid when rows became events; None: those of now do.
    """
    latest = lake.history.latest(state.table)
    last = known if latest is None or (hidden is not None and latest.identity != known.identity) else latest
    hidden = lake.hidden(last.schema, last.captured) if hidden is None else hidden
    if hidden == (last.hidden or ()):
        return None
    lsn = max(after, last.lsn, state.snapshot_lsn or after).next()
    return replace(last, kind="ALTER", lsn=lsn, at=now, snapshot=None, last=False, hidden=hidden)


def read_otherwise(lake: Lake, ledger: Ledger, reads: RoundReads) -> HistoryEntry | None:
    """The newest structure again, if other columns were hidden from READs than is recorded; else None, or if an earlier version did not
    record that of them."""
    state, now = ledger.state.tables.get(reads.entry.table), ledger.clock.now()
    if reads.hidden is None or state is None or state.position is None:
        return None
    known = lake.history.of_instance(state.table, state.identity)
    return None if known is None else shown_otherwise(lake, state, known, state.position, now, reads.hidden)
