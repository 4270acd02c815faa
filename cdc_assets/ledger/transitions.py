"""Says in the log how the tables of a capture change their state: stop, lose changes, go on, are read from elsewhere.

It compares the states before and after a row of the manifest, which is where states change and the only place: whatever
the cause, nothing changes in silence, and nothing is told that was not recorded. A crash between the two leaves the record,
which the next run tells as it begins.
"""

import logging

from cdc_assets.ledger.state import CaptureState, TableState

log = logging.getLogger(__name__)

_STOPPED = ("gap", "failed")


def tell_changes(before: CaptureState, after: CaptureState) -> None:
    """Say what became of each table between two states of the manifest."""
    for table, now in after.tables.items():
        known = before.tables.get(table)
        if now is not known and now != known:
            _tell(known, now)


def log_stopped(state: TableState) -> None:
    """Say that a table does not stream, if it does not."""
    if state.status in _STOPPED:
        log.error("%s does not go on: %s", state.table, state.reason)
    elif state.status == "healthy" and state.position is None:
        log.warning(
            "%s is not streamed: it has no capture instance. Its rows are in the lake as they were read, and no change of "
            "them comes. Next: EXEC sys.sp_cdc_enable_table for it, or leave it out.", state.table,
        )  # fmt: skip


def _tell(known: TableState | None, now: TableState) -> None:
    if now.status in _STOPPED or (now.position is None and now.status == "healthy"):
        if known is None or (known.status, known.reason, known.position) != (now.status, now.reason, now.position):
            log_stopped(now)
        return
    if known is None:
        return
    if len(now.gaps) > len(known.gaps):
        log.warning(
            "%s: changes after %s up to %s are lost; it goes on behind them, for gap.policy=ignore.",
            now.table, now.gap_after, now.gap_until,
        )  # fmt: skip
    elif known.status in _STOPPED and now.streams:
        log.info("%s goes on from %s.", now.table, now.position)
    if known.instance and now.instance and known.instance != now.instance:
        log.info("%s is read from capture instance %s now, before from %s.", now.table, now.instance, known.instance)
