"""Ends a run when the lake holds everything that was committed before the run began, also while more is committed.

Each database has its moment (`capture.moment`), taken before anything is read. Tables that stop, lack changes or are not captured by the
server do not hold the run up, since nothing in it will heal them; but then not everything is there, and `missing` names them.

*Crash:* nothing is recorded; the next run takes another moment.
"""

from collections.abc import Iterator, Sequence

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import Source
from cdc_assets.errors import DATABASE_ERRORS, LoginError, PreflightError
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.moment import Moment

_AWAY = (*DATABASE_ERRORS, LoginError, PreflightError)


class UntilNow:
    """What has to be in the lake; made when the command begins.

    Args:
        settle_s: see `Moment`.
        mirrored: whether mirrors are to be there as well, which need to know what snapshots have read (`readings`).

    Raises:
        CdcError: the server cannot be queried.
    """

    def __init__(self, source: Source, ledger: Ledger, settle_s: float, *, mirrored: bool = False) -> None:
        self._ledger, self._moments, self._mirrored = ledger, dict[str, Moment](), mirrored
        self._away: dict[str, str] = {}
        """Databases whose moment cannot be known, with the reason."""
        for database in source.databases():
            try:
                self._moments[database] = Moment(source, ledger.clock, database, settle_s)
            except _AWAY as error:
                self._away[database] = str(error)

    def should_end(self) -> bool:
        """Whether everything is in the lake that this run can bring there; checked at each window border."""
        held = [self._holds(database, moment) for database, moment in self._moments.items()]
        return all(held)

    @property
    def taken(self) -> set[TableId]:
        """Tables of which something has to be there: not those that the settings leave out."""
        return {table for table, entry in self._ledger.state.tables.items() if entry.status != "excluded"}

    def targets(self) -> dict[TableId, Lsn]:
        """LSN up to which each table must be complete, where that is known."""
        known = {database: moment.target for database, moment in self._moments.items()}
        found = ((table, known.get(table.database)) for table in self.taken)
        return {table: target for table, target in found if target is not None}

    def missing(self, waiting: Sequence[TableId] = ()) -> list[str]:
        """What is not in the lake, for people; empty if everything is.

        Args:
            waiting: tables that were not captured yet when the run ended.
        """
        state = self._ledger.state
        found = [f"{database} could not be read: {reason}" for database, reason in self._away.items()]
        for database, moment in self._moments.items():
            found += self._missing(state, database, moment)
        return [*found, *(f"{table} waits for its snapshot" for table in waiting)]

    def _holds(self, database: str, moment: Moment) -> bool:
        state = self._ledger.state
        watermark = state.watermark(database)
        if watermark is None:  # no table streams
            return True
        left = state.unpublished.get(database)
        if state.is_open(database) or (left and left.known < left.until):
            return False
        if self._mirrored and not _is_behind_readings(state, database, watermark):
            return False
        try:
            return moment.is_passed(watermark)
        except _AWAY:  # the loop waits for it, or continues without it
            return False

    def _missing(self, state: CaptureState, database: str, moment: Moment) -> Iterator[str]:
        tables = [entry for entry in state.tables.values() if entry.table.database == database]
        if moment.target is None and any(entry.streams for entry in tables):
            yield f"{database}: the capture job has not captured what was committed before the start; see cdc-assets doctor"
        if database in state.snapshots:
            yield f"{database}: a snapshot is not finished"
        for entry in sorted(tables, key=lambda entry: entry.table):
            if reason := _lack(entry, moment.target or ZERO_LSN):
                yield f"{entry.table} {reason}"


def _is_behind_readings(state: CaptureState, database: str, reached: Lsn) -> bool:
    """Whether tables are complete up to where snapshots may have read them."""
    found = [one for table, readings in state.readings.items() if table.database == database for one in readings]
    return all(one.high is not None and one.high <= reached for one in found)


def _lack(entry: TableState, target: Lsn) -> str:
    """What a table lacks; empty if nothing."""
    if entry.status == "excluded":
        return ""
    if entry.status != "healthy":
        return f"has stopped: {entry.reason}"
    if entry.gap_until is not None and (entry.snapshot_lsn is None or entry.gap_until > entry.snapshot_lsn):
        return f"lacks changes up to {entry.gap_until}, until a snapshot reads it again"
    if entry.position is None:
        return "is not captured by the server. Next: EXEC sys.sp_cdc_enable_table for it, or exclude it"
    return "" if entry.position >= target else f"is complete up to {entry.position}, not {target}"
