"""The report about a complete window. It is for people only: an error of the server must not undo the window."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from cdc_assets.core.clocks import seconds_behind
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import LSN_WIDTH, Lsn
from cdc_assets.core.ports import Source
from cdc_assets.core.task_counters import TRANSACTIONS
from cdc_assets.errors import CdcError
from cdc_assets.history.drift import changes_between
from cdc_assets.lake.files import DataFile
from cdc_assets.ledger.state import Window
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.lake import Lake
from cdc_assets.shared.progress import Progress, StructureChange, TableProgress, TroubledTable
from cdc_assets.streaming.window_parts import Part


class WindowReport:
    """Makes the progress reports of complete windows.

    Args:
        source: knows when transactions were committed.
    """

    def __init__(self, source: Source, lake: Lake) -> None:
        self._source, self._lake = source, lake

    def of(self, parts: Sequence[Part], before: Mapping[TableId, TableState]) -> list[Progress]:
        """Progress reports of windows.

        Args:
            parts: complete windows.
            before: states of the tables before the windows were completed.
        """
        now = self._server_time()
        return [self._progress(part, before, now) for part in parts]

    def _progress(self, part: Part, before: Mapping[TableId, TableState], now: datetime | None) -> Progress:
        window, written = part.window, part.written()
        times, lag = self._times(window, written, now)
        tables = {
            table: TableProgress.of(files, before[table].position, window.until, times.get(table))
            for table, files in written.items()
        }
        troubled = tuple(troubled_table(state) for state in part.changed if state.status != "healthy")
        structures = tuple(
            StructureChange(entry, changes_between(old, entry) if old else ())
            for old, entry in self._lake.history.recorded(window.window_id)
            if entry.table.database == window.database and entry.table not in part.behind and entry.is_news(old)
        )
        return Progress(
            "stream",
            window.database,
            window.window_id,
            window.after,
            window.until,
            tables,
            troubled,
            lag_s=lag,
            structures=structures,
            counts=_counts(part),
        )

    def _server_time(self) -> datetime | None:
        try:
            return self._source.server_time()
        except CdcError:
            return None

    def _times(
        self, window: Window, files: Mapping[TableId, Sequence[DataFile]], now: datetime | None
    ) -> tuple[dict[TableId, datetime], float | None]:
        """Newest commit time of each table, and how far the window's end is behind the server's clock."""
        newest = {
            table: Lsn.parse(max(file.greatest for file in written)[:LSN_WIDTH])
            for table, written in files.items()
            if written
        }
        try:
            times = self._source.commit_times(window.database, sorted({*newest.values(), window.until}), window.until)
        except CdcError:
            return {}, None
        lag = seconds_behind(now, times.get(window.until))
        return {table: times[lsn] for table, lsn in newest.items() if lsn in times}, lag


def _counts(part: Part) -> Mapping[str, int]:
    """What the tasks of a window counted; a transaction has two rows in its topic."""
    total: Counter[str] = Counter()
    for result in part.results:
        total.update(result.counts)
        total[TRANSACTIONS] += sum(file.rows for file in result.transactions)
    total[TRANSACTIONS] //= 2
    return +total


def troubled_table(state: TableState) -> TroubledTable:
    """A state as it is reported."""
    return TroubledTable(state.table, state.status, state.reason, state.gap_after, state.gap_until)
