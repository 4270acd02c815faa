"""What a server says of one database of a capture, asked now."""

import logging
from collections.abc import Mapping
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
    """Of a database that cannot be captured now the problem alone is known.

    Args:
        problem: why it cannot be captured now; None if it can.
        fork: the branch of its history that it is on; None if that cannot be seen.
        restored: why nothing more may be read from it since it was restored, with the next step; or empty.
        instances: its capture instances by table, without those that the settings leave out.
        times: when positions of its tables and the oldest kept changes of its instances were committed; those that the
            server has forgotten are not in it.
        now: the server's clock.
    """

    problem: CdcError | None = None
    fork: RecoveryFork | None = None
    restored: str = ""
    instances: Mapping[TableId, list[CaptureInstance]] = field(default_factory=dict)
    times: Mapping[Lsn, datetime] = field(default_factory=dict)
    now: datetime | None = None


def ask_database(source: Source, config: CaptureConfig, state: CaptureState, database: str) -> DatabaseFacts:
    """Ask all of it: some small questions, their number does not grow with that of the tables.

    Args:
        state: what the manifest said before.
        database: in the server's letter case.

    Raises:
        RetryableError: the server is away or busy.
    """
    try:
        if problem := source.trouble(database):
            return DatabaseFacts(problem)
        fork, restored = restore_problem(source, state, database)
        instances = by_table(source.capture_instances(database), config.streaming)
        positions = {own.position for table, own in state.tables.items() if table.database == database and own.position}
        marks = {instance.start_lsn for own in instances.values() for instance in own}
        times = source.commit_times(database, sorted(positions | marks)) if positions else {}
        return DatabaseFacts(None, fork, restored, instances, times, source.server_time())
    except (CdcDisabledError, DatabaseAwayError) as error:
        return DatabaseFacts(error)
