"""What a server reports about one database of a capture now."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import RecoveryFork, Source
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.errors import (
    CdcError,
    CredentialsError,
    DatabaseAwayError,
    IncompleteReadError,
    LoginError,
    PreflightError,
)
from cdc_assets.ledger.state import CaptureState
from cdc_assets.overview.report import LATE_S
from cdc_assets.shared.forks import captured_until, restore_problem
from cdc_assets.shared.instances import by_table

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """Facts about one database. If it cannot be captured now, or nothing is known of it, only `problem` is set.

    Args:
        problem: why it cannot be captured now, or why nothing is known; None if it can.
        fork: its recovery fork; None if the login may not see it.
        restored: why nothing more may be read from it after a restore, with the next step; empty if it was not
            restored.
        captured: all its capture instances.
        instances: its capture instances by table, except those that the settings leave out.
        times: times of the newest commits up to its tables' positions and the oldest kept changes of its instances; without
            those that the server no longer knows.
        newest: commit LSN of the newest captured transaction; its time is in `times`.
        unread: the oldest captured transaction that is not complete in the lake, which waits longest; its time is in `times`, if it
            is sure.
        unplanned: the oldest one after the window in flight; its time is in `times`, if it is sure.
        now: the server's clock.
    """

    problem: CdcError | None = None
    fork: RecoveryFork | None = None
    restored: str = ""
    captured: Sequence[CaptureInstance] = ()
    instances: Mapping[TableId, list[CaptureInstance]] = field(default_factory=dict)
    times: Mapping[Lsn, datetime] = field(default_factory=dict)
    newest: Lsn | None = None
    unread: Lsn | None = None
    unplanned: Lsn | None = None
    now: datetime | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is known: who answered is a replica that has less of the log than the lake, so what it says is of a time before,
        and that nothing waits there says nothing."""
        return isinstance(self.problem, IncompleteReadError)


def ask_database(source: Source, config: CaptureConfig, state: CaptureState, database: str) -> DatabaseFacts:
    """Read all facts with a few small queries, whose number does not grow with the number of tables.

    Args:
        state: state recorded in the manifest.
        database: in the server's letter case.

    Raises:
        RetryableError: the server is away or busy.
    """
    try:
        if problem := source.trouble(database):
            return DatabaseFacts(problem)
        source.leave_forks(database, state.log(database).former)
        fork, restored, _ = restore_problem(source, state, database)
        positions = {
            known.position for table, known in state.tables.items() if table.database == database and known.position
        }
        until = (not restored and captured_until(state, database)) or ZERO_LSN
        newest, read = _newest(source, database, until) if positions else (None, ZERO_LSN)
        unread, unplanned = _waiting(source, state, database, newest)
        # queried after what waits: what the clean-up job removes before, so that it cannot be seen waiting, shows as a gap
        captured = source.capture_instances(database, read)
        instances = by_table(captured, config.streaming)
        marks = {instance.start_lsn for found in instances.values() for instance in found}
        marks |= {left.known for name, left in state.unpublished.items() if name == database}
        known = positions | marks | {lsn for lsn in (newest, unread, unplanned) if lsn is not None}
        times = source.commit_times(database, sorted(known), read) if positions else {}
        now = source.server_time()
        times = _sure(source, database, times, now, {unread, unplanned} - {None})
        return DatabaseFacts(None, fork, restored, captured, instances, times, newest, unread, unplanned, now)
    except CredentialsError:  # of the whole server
        raise
    except (DatabaseAwayError, IncompleteReadError, LoginError, PreflightError) as error:
        return DatabaseFacts(error)


def _newest(source: Source, database: str, until: Lsn) -> tuple[Lsn | None, Lsn]:
    """The newest captured transaction, and how far the server has the log for sure.

    Args:
        until: how far a server has it that does not lag; one that was restored has less for good, so none is expected of it.

    Raises:
        IncompleteReadError: it lags.
    """
    try:
        return source.max_transaction_lsn(database, None, 0, until), until
    except IncompleteReadError:
        # change data capture was turned on again, and there is none until the first scan
        captured = source.captured_by(database)
        if captured.lsn is not None or captured.is_of_replica:
            raise
        return None, ZERO_LSN


def _sure(
    source: Source, database: str, times: Mapping[Lsn, datetime], now: datetime, waiting: Collection[Lsn | None]
) -> Mapping[Lsn, datetime]:
    """Times without those of what waits that seem to be of now, and are not: in the hour after summer time ends, what was committed an hour
    ago has the same time by the server's clock. The query is sent only if the answer matters, for it reads all later entries."""
    known = [lsn for lsn in waiting if lsn is not None and lsn in times]
    near = [lsn for lsn in known if abs((now - times[lsn]).total_seconds()) <= LATE_S]
    wrong = {lsn for lsn in near if source.was_set_back(database, lsn)}
    return {lsn: time for lsn, time in times.items() if lsn not in wrong}


def _waiting(source: Source, state: CaptureState, database: str, newest: Lsn | None) -> tuple[Lsn | None, Lsn | None]:
    """The oldest transactions after what is complete and after the window in flight; queried only if there are newer ones."""

    def after(place: Lsn | None) -> Lsn | None:
        waits = place is not None and newest is not None and newest > place
        return source.max_transaction_lsn(database, place, 1) if waits else None

    return after(state.complete_to(database)), after(state.planned_until(database))
