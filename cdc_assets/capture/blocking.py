"""Blocking snapshots: the stream stops at a window border, tables are read, the stream continues (spec debezium-sqlserver §2.10).

A signal only adds a request to the recorded state. This module turns the first request
into an ordinary snapshot (`snapshot.run`). Its plan and the state without the request
are one manifest row. *Crash before that row:* the next run starts with the request.
*After it:* the next run resumes the snapshot. So each request is carried out once.

*Why no READ is placed after a newer event.* The rows are read at a time t after the low watermark L. L is not below the position P
of the stream. So they include
every change committed to the lake, and sort at L: after the events up to L (also those in
(P, L], which are streamed later) and before all others. A change in (L, t] is in
the rows and is streamed again after them. A round of an incremental snapshot that was
read before t and is not committed yet would be older than these READs and sort
after them: it is discarded, and read again between new markers, which lie
after t. A round that is recorded is committed first. READs with the same commit LSN
sort by window, so these sort after those of that round.

*Failure.* A statement that the server rejects, or a table that is gone, ends as ABORTED
and the stream continues. READs committed by then stay; they are correct. If the
server cannot be reached, the run waits for it.
"""

import dataclasses
import logging
from collections.abc import Iterable, Sequence

from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import (
    CdcError,
    CredentialsError,
    DatabaseRestoredError,
    EngineError,
    FencedError,
    InvariantError,
    LakeError,
    describe_error,
)
from cdc_assets.incremental.snapshot import IncrementalSnapshot
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.signal_state import BlockingRequest, SignalState
from cdc_assets.shared.progress import ProgressListener, TroubledTable
from cdc_assets.signals.watch import SignalWatch
from cdc_assets.snapshot.plan import Request
from cdc_assets.snapshot.run import Snapshotter

log = logging.getLogger(__name__)

_NOT_OF_THE_REQUEST = CredentialsError | LakeError | FencedError | InvariantError | DatabaseRestoredError | EngineError


class BlockingSnapshots:
    """Carries out requests for blocking snapshots between windows.

    Args:
        incremental: its rounds in flight are discarded first.
        listener: notified of tables that could not be read.
    """

    def __init__(
        self,
        ledger: Ledger,
        watch: SignalWatch,
        incremental: IncrementalSnapshot,
        snapshotter: Snapshotter,
        listener: ProgressListener,
    ) -> None:
        self._ledger = ledger
        self._watch = watch
        self._incremental = incremental
        self._snapshotter, self._listener = snapshotter, listener

    def resume(self, database: str) -> None:
        """Finish a snapshot that an error interrupted. Must be called before any window is planned.

        Raises:
            CdcError: see `turn`.
        """
        run = self._ledger.state.snapshots.get(database)
        if run is None:
            return
        self._incremental.discard_rounds(database)
        try:
            done = self._snapshotter.resume(database, [entry.table for entry in run.tables])
            self._note_unread(done.failed if run.signal else ())
        except CdcError as error:
            if not run.signal or not _of_the_request(error):
                raise
            self._abandon(database, run.signal, [entry.table for entry in run.tables], error)

    def turn(self, database: str) -> bool:
        """Carry out the next request; returns whether there was one.

        Raises:
            RetryableError: the server is away or busy; the next call continues.
            LakeError: the lake cannot be written.
            FencedError: another writer has taken over.
        """
        if not self._watch.state(database).blocking:
            return False
        self._incremental.recover(database)
        self._incremental.discard_rounds(database)
        state = self._watch.state(database)
        request, *others = state.blocking
        log.info("Streaming of %s pauses for the snapshot requested by signal %r.", database, request.signal)
        try:
            self._read(database, request, dataclasses.replace(state, blocking=tuple(others)))
        except CdcError as error:
            if not _of_the_request(error):
                raise
            self._abandon(database, request.signal, [table for table, _ in request.tables], error)
        log.info("Streaming of %s continues.", database)
        return True

    def _read(self, database: str, request: BlockingRequest, without: SignalState) -> None:
        requests = [Request(table, select=select) for table, select in request.tables]
        done = self._snapshotter.run(database, requests, request.signal, {database: without})
        self._note_unread(done.failed)

    def _note_unread(self, troubled: Iterable[TroubledTable]) -> None:
        for trouble in troubled:
            self._listener.note_unread(trouble)

    def _abandon(self, database: str, signal: str, tables: Sequence[TableId], error: CdcError) -> None:
        log.warning("The snapshot requested by signal %r is given up: %s", signal, error)
        self._note_unread([TroubledTable(table, "failed", describe_error(error)) for table in tables])
        now, manifest = self._ledger.clock.now(), self._ledger.manifest
        notifications = [self._ledger.notice("Initial Snapshot", "ABORTED", signal)]
        if database in manifest.state.snapshots:
            self._snapshotter.give_up(database, notifications)
            return
        state = self._watch.state(database)
        manifest.record_signals(now, {database: dataclasses.replace(state, blocking=state.blocking[1:])}, notifications)


def _of_the_request(error: CdcError) -> bool:
    """Whether the error concerns only the request, and not the server, the lake, the claim or the database's history."""
    return not error.retryable and not isinstance(error, _NOT_OF_THE_REQUEST)
