"""Begins a new history of a restored database in the same topics, when a user requests it by a snapshot of its tables.

*Why only then, and why it is right.* Topics are ordered by position, and positions begin with LSNs. While the server's
LSNs are not above `reached`, the greatest that the lake may hold, READs of the restored rows would sort before events
that were lost. So the request is rejected until `fn_cdc_get_max_lsn()` is above `reached`. The low watermark of a
snapshot is not below that on the same fork, which is checked again before anything read is committed (`forks`). So
everything written from then on sorts after everything that was lost, and the same holds for all later windows.

*What consumers see.* Each table's old history ends with a DROP after its position, in the schema history and on the
topic `<prefix>`. Its snapshot begins the next one with a CREATE, as for a table that was dropped and created again. The
state keeps the interval of lost changes as a gap: from the LSN where the two histories part to `reached`. Once its snapshot is
complete it goes to the watermark of that, since no run reads the new history's changes up to there.

| crash after | next run |
|---|---|
| the new fork and the tables' states, which are one row | publishes the DROPs before it reads anything |
| the DROPs, or some of their steps | see `endings.retire` |
"""

import dataclasses
import logging

from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.core.ports import Source
from cdc_assets.errors import DatabaseRestoredError
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.state import LogHistory
from cdc_assets.shared.endings import retire
from cdc_assets.shared.forks import greatest_lsn_in_lake, lagging, shared_until
from cdc_assets.shared.lake import Lake

log = logging.getLogger(__name__)

_REASON = "Its database was restored to an earlier moment, and a new history has begun. Next: materialize its snapshot."


def begin_history(ledger: Ledger, source: Source, database: str) -> None:
    """Give up the lost history of a database that is known to be restored.

    Args:
        ledger: ledger of the capture; nothing of the database may be in flight.
        source: control plane of the server.

    Raises:
        DatabaseRestoredError: the server's LSNs have not passed those of the lost history yet.
        CdcDisabledError: it has no change data capture.
        RetryableError: the server is away or busy, or a replica that lags.
        FencedError: another writer has taken over.
    """
    state = ledger.state
    known, reached = state.log(database), greatest_lsn_in_lake(state, database)
    if not known.restored or reached is None:
        return
    captured = source.max_captured_lsn(database)
    fork = source.recovery_fork(database, captured or ZERO_LSN)  # of a server that is as far
    if captured is None or captured <= reached:
        raise DatabaseRestoredError(f"{known.restored} The server's newest LSN is {captured} now.")
    left = (known.fork, *known.former)
    if fork is not None and fork.identity in left and fork.is_of_replica:
        raise lagging(database, f"it is on recovery fork {fork.identity} still, of before the restore")
    shared = shared_until(known, reached, fork, captured) or ZERO_LSN
    entries = [entry for entry in state.tables.values() if entry.table.database == database]
    begun = LogHistory(known.fork, reached, former=known.former).on(fork.identity if fork else "")
    ended = [dataclasses.replace(entry.stopped(_REASON), gaps=(*entry.gaps, (shared, reached))) for entry in entries]
    ledger.manifest.record_log(ledger.clock.now(), database, begun, tables=ended, lost=(shared, reached))
    log.warning(
        "A new history of database %s begins in the same topics. Their events after %s up to %s no longer exist on the server.",
        database, shared, reached,
    )  # fmt: skip


def end_former_tables(ledger: Ledger, lake: Lake, database: str) -> None:
    """Publish the DROP of tables whose new history has begun, if it was not published yet. No window may be in flight.

    Raises:
        FencedError: another writer has taken over.
        LakeError: the lake cannot be written.
    """
    tables = ledger.state.tables.values()
    retire(
        ledger,
        lake,
        database,
        [entry for entry in tables if entry.table.database == database and entry.reason == _REASON],
    )
