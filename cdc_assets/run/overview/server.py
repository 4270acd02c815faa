"""What a server reports about one database of a capture now."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cdc_assets.capture.forks import restore_problem
from cdc_assets.capture.instances import by_table
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import RecoveryFork, Source
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.errors import CdcDisabledError, CdcError, DatabaseAwayError
from cdc_assets.ledger.state import CaptureState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """Facts about one database. If it cannot be captured now, only `problem` is set.

    Args:
        problem: why it cannot be captured now; None if it can.
        fork: its recovery fork; None if the login may not see it.
        restored: why nothing more may be read from it after a restore, with the next step; empty if it was not
            restored.
        instances: its capture instances by table, except those that the settings leave out.
        times: commit times of its tables' positions and of the oldest kept changes of its instances; without those that
            the server no longer knows.
        newest: commit LSN of the newest captured transaction; its time is in `times`.
        now: the server's clock.
    """

    problem: CdcError | None = None
    fork: RecoveryFork | None = None
    restored: str = ""
    instances: Mapping[TableId, list[CaptureInstance]] = field(default_factory=dict)
    times: Mapping[Lsn, datetime] = field(default_factory=dict)
    newest: Lsn | None = None
    now: datetime | None = None


def ask_database(
    source: Source,
    config: CaptureConfig,
    state: CaptureState,
    database: str,
    instances_of: Callable[[str], Sequence[CaptureInstance]],
) -> DatabaseFacts:
    """Read all facts with a few small queries, whose number does not grow with the number of tables.

    Args:
        state: state recorded in the manifest.
        database: in the server's letter case.
        instances_of: returns all capture instances of a database.

    Raises:
        RetryableError: the server is away or busy.
    """
    try:
        if problem := source.trouble(database):
            return DatabaseFacts(problem)
        fork, restored = restore_problem(source, state, database)
        instances = by_table(instances_of(database), config.streaming)
        positions = {
            known.position for table, known in state.tables.items() if table.database == database and known.position
        }
        marks = {instance.start_lsn for found in instances.values() for instance in found}
        newest = source.max_transaction_lsn(database, None, 0) if positions else None
        planned = {window.until for window in state.pending if window.database == database}
        known = positions | marks | planned | ({newest} if newest else set())
        times = source.commit_times(database, sorted(known)) if positions else {}
        return DatabaseFacts(None, fork, restored, instances, times, newest, source.server_time())
    except (CdcDisabledError, DatabaseAwayError) as error:
        return DatabaseFacts(error)
