"""Whether a table is healthy, from the manifest, the lake and the server.

The manifest knows what runs have found. The lake shows what was lost since the last run. The server shows what the next
run will find: changes that were cleaned up, capture that was turned off, a restore. A table is healthy if none of them
reports a problem; one that cannot be read reports none. So a table may be unhealthy here before it is in the manifest,
but a table that is unhealthy in the manifest is never healthy here; one that the settings exclude no longer waits for a run, and one
that they exclude now is not said to be streamed until a run records that. Nor is it in trouble.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cdc_assets.core.clocks import seconds_behind
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.errors import describe_error
from cdc_assets.lake.audit import Loss
from cdc_assets.ledger.table_state import EXCLUDED, Status, TableState
from cdc_assets.overview.server import DatabaseFacts
from cdc_assets.shared.instances import gap_behind, reads_of
from cdc_assets.shared.losses import SNAPSHOT_AGAIN
from cdc_assets.streaming.gaps import ENABLE_AGAIN, identity_problem, with_gap

Health = Status | Literal["waiting", "not captured"]
"""Status of a table in the manifest; or `waiting`: it was not snapshotted yet; or `not captured`: nor is it enabled for capture."""

Verdict = tuple[Health, str]
"""Health and the reason, with the next step."""

NEXT_RUN = "the active run, or the next one, adds it"
"""What a new table waits for."""

UNREAD = "nothing of it could be read yet, and the next run tries it again:"
"""Why a new table is not there although a run has met it; its reason follows."""

NOT_ENABLED = (
    "the server does not capture its changes, and nothing of it is in the lake. "
    "Next: EXEC sys.sp_cdc_enable_table for it, or exclude it from the capture"
)
"""Why a new table is not captured."""

LEFT_OUT = "The settings leave it out (database.names, table and schema lists). Before that it had stopped:"
"""Why a table that has failed is no longer captured; its reason follows."""

RECORD_IT = f"let a run record it, which leaves the other tables as they are, then {SNAPSHOT_AGAIN}"
"""The next step after a loss that no run has recorded yet."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """How far the clean-up job is from a table's unread changes.

    Args:
        position: LSN up to which the lake is complete.
        mark: oldest LSN whose changes the server keeps; None if it keeps none of this table.
        hours: hours of changes between the two; None if their commit times are not known any more, or nothing is unread and nothing
            older is kept.
        lost: whether changes after the position may be gone.
    """

    table: TableId
    position: Lsn
    mark: Lsn | None
    hours: float | None
    lost: bool


@dataclass(frozen=True, slots=True)
class TableOverview:
    """One captured table.

    Args:
        topic: topic of its events; empty if it cannot have one.
        status: see the module's head.
        reason: why it is not healthy, with the next step; empty if it is.
        recorded: its state in the manifest; None if it waits for its first snapshot.
        lag_s: seconds between its position's commit and the server's clock; None if one of them is not known.
        headroom: distance to the clean-up job; None if it does not stream, or the server was not queried.
    """

    table: TableId
    topic: str
    status: Health
    reason: str = ""
    recorded: TableState | None = None
    lag_s: float | None = None
    headroom: Headroom | None = None

    @property
    def name(self) -> str:
        """Name shown to users: its topic, or else the table."""
        return self.topic or str(self.table)

    @property
    def position(self) -> Lsn | None:
        """LSN up to which it is complete; None if it does not stream."""
        return self.recorded.position if self.recorded else None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong with it, nor was when the settings left it out."""
        return self.status == "healthy" or (self.status == "excluded" and self.reason == EXCLUDED)


@dataclass(frozen=True, slots=True)
class DatabaseOverview:
    """The tables of one database together.

    Args:
        complete_to: LSN up to which every healthy table is complete, and its transactions are published; None if none streams.
        lag_s: seconds between that commit and the server's clock; None if one of them is not known.
        troubled: number of tables that have a gap or have failed.
    """

    database: str
    complete_to: Lsn | None
    lag_s: float | None
    troubled: int


def verdict(state: TableState, losses: Sequence[Loss], facts: DatabaseFacts | None, *, streams: bool) -> Verdict:
    """Health of a table in the manifest, with the reason.

    Args:
        state: its state in the manifest.
        losses: what its topic lacks.
        facts: facts about its database; None if the server was not queried.
        streams: whether the snapshot mode streams changes, so that the server has to keep them.
    """
    if state.status != "healthy":
        return state.status, _with_steps_left(state, facts)
    if losses:
        return _lost_in_lake(state, losses)
    return ("healthy", "") if facts is None else _by_server(state, facts, streams)


def _with_steps_left(state: TableState, facts: DatabaseFacts | None) -> str:
    """The recorded reason, without a step that was done since."""
    ended, asked, _ = state.reason.partition(ENABLE_AGAIN)
    if facts is None or not facts.instances.get(state.table) or not asked:
        return state.reason
    return f"{ended}It is enabled again. Next: materialize its snapshot asset."


def _lost_in_lake(state: TableState, losses: Sequence[Loss]) -> Verdict:
    readable = state.position is not None and all(loss.readable for loss in losses)
    what = "; ".join(f"{loss.directory} {loss.what}" for loss in losses)
    return "gap" if readable else "failed", f"{what}; the next run stops streaming the table. Next: {RECORD_IT}"


def _by_server(state: TableState, facts: DatabaseFacts, streams: bool) -> Verdict:
    if facts.is_unknown:  # reported for its database
        return "healthy", ""
    if facts.problem is not None:
        return "failed", describe_error(facts.problem)
    if facts.restored:
        return "failed", facts.restored
    if not streams:
        return "healthy", ""
    instances = facts.instances.get(state.table, [])
    if state.position is not None and (problem := identity_problem(state, instances, facts.instances)):
        return "failed", problem
    if gap := gap_behind(state, instances):
        return "gap", with_gap(state, gap, "fail", instances).reason
    return "healthy", ""


def headroom_of(state: TableState, facts: DatabaseFacts) -> Headroom | None:
    """How far the clean-up job is from unread changes; None for a table that is not read any more."""
    if facts.problem is not None or facts.restored or state.position is None or not state.instance:
        return None
    instances = facts.instances.get(state.table, [])
    if state.status == "excluded" or (not instances and state.status != "healthy"):
        return None
    mark = _kept_from(state.table, instances, state.position)
    hours = _hours(facts.times.get(mark), facts.times.get(state.position)) if mark else None
    if hours is not None and hours <= 0 and facts.newest is not None and facts.newest <= state.position:
        hours = None  # a new instance begins at the position, and nothing waits that could be removed
    return Headroom(state.table, state.position, mark, hours, not instances or gap_behind(state, instances) is not None)


def _kept_from(table: TableId, instances: Sequence[CaptureInstance], position: Lsn) -> Lsn | None:
    """Low-water mark of the capture instance that holds the next change."""
    marks = {instance.name: instance.start_lsn for instance in instances}
    return marks[reads_of(table, instances, position, position.next())[0].instance] if instances else None


def lag_of(position: Lsn | None, facts: DatabaseFacts | None) -> float | None:
    """Seconds between a commit and the server's clock; None if one of them is not known."""
    return seconds_behind(facts.now, facts.times.get(position)) if facts and position else None


def of_database(
    database: str, tables: Sequence[TableOverview], facts: DatabaseFacts | None, published: Lsn | None = None
) -> DatabaseOverview:
    """The tables of a database together.

    Args:
        published: LSN up to which its transactions are published, if they are behind tables.
    """
    members = [table for table in tables if table.table.database == database]
    positions = [table.position for table in members if table.status == "healthy" and table.position is not None]
    troubled = sum(table.status in ("gap", "failed") for table in members)
    complete_to = min([*positions, published] if published else positions) if positions else None
    return DatabaseOverview(database, complete_to, lag_of(complete_to, facts), troubled)


def _hours(start: datetime | None, end: datetime | None) -> float | None:
    return (end - start).total_seconds() / 3600 if start and end else None
