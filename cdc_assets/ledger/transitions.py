"""Logs changes of table states: a table stops, loses changes, resumes, or switches its capture instance.

It compares the states before and after a manifest row. States change only there, so every change is logged, and only
recorded changes are. After a crash between record and log message, the next run logs the state at its start.
"""

import logging

from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState

log = logging.getLogger(__name__)

_STOPPED = ("gap", "failed")


def log_changes(before: CaptureState, after: CaptureState) -> None:
    """Log each table's change between two states of the manifest."""
    for table, now in after.tables.items():
        known = before.tables.get(table)
        if now is not known and now != known:
            _log_change(known, now)


def log_stopped(state: TableState) -> None:
    """Log that a table does not stream, if so."""
    if state.status in _STOPPED:
        log.error("%s does not stream: %s", state.table, state.reason)
    elif state.status == "healthy" and state.position is None:
        log.warning(
            "%s is not streamed: it has no capture instance. The lake has its rows as of the snapshot, and no later "
            "changes. Next: EXEC sys.sp_cdc_enable_table for it, or exclude it.", state.table,
        )  # fmt: skip


def _log_change(known: TableState | None, now: TableState) -> None:
    if now.status in _STOPPED or (now.position is None and now.status == "healthy"):
        if known is None or (known.status, known.reason, known.position) != (now.status, now.reason, now.position):
            log_stopped(now)
        return
    if now.gaps and now.gaps != (known.gaps if known else ()):
        log.warning(
            "%s: changes after %s up to %s are lost; it continues after them.", now.table, now.gap_after, now.gap_until
        )
    if known is None:
        return
    if known.status in _STOPPED and now.streams:
        log.info("%s resumes from %s.", now.table, now.position)
    if known.instance and now.instance and known.instance != now.instance:
        log.info("%s is now read from capture instance %s instead of %s.", now.table, now.instance, known.instance)
