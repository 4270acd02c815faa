"""The check `lsn_continuity` of each table, reported by the streaming loop: it needs no query of its own.

*Planned checks.* Dagster plans the checks of the assets that are selected in a run, and shows them as "in progress"
until they are reported. A run of a busy capture takes minutes, and the next one follows at once. So planned checks are
reported with the first window, by an evaluation under the run's own id, and again at the end.

*Other checks.* A run started by the sensor selects only the window manifest (`sensors`), so each check still shows its
last result. Then only new results are reported: the result of a table that had events in the run, a result that differs from
the last one, and the first result. So the number of records grows with the tables that changed, not with all tables.

A table that went on after a gap because of `gap.policy=ignore`, or without reading all rows, has a warning, which stops nothing, until a snapshot reads all of them.

A planned check that fails fails its run. In a run without planned checks, a table that cannot be trusted also fails the
run, after everything is reported, so that alerts on failed runs report it: the first one that comes so far, and no later one. The check,
and the page, say it as long as it lasts. For which tables a run has failed is in the store that Dagster's daemons have for such
values: a check's own record may be of a run that was killed, or of the sensor, and then no run has failed for it. *Crash* after that
was recorded: the run has failed, by the crash.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping

import dagster as dg

from cdc_assets.core.identifiers import TableId
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.checks.board import CheckBoard
from cdc_assets.defs.checks.events import event_of, result_of
from cdc_assets.lake.retained import Retained
from cdc_assets.ledger.state import CaptureState
from cdc_assets.overview.checks.sqlserver import CONTINUITY, continuity_result
from cdc_assets.shared.progress import Progress


class ContinuityReport:
    """Reports `lsn_continuity` of a run's tables with its first window, and at its end what is not reported yet.

    Args:
        board: where the run shows results.
    """

    def __init__(self, catalog: CaptureCatalog, context: dg.AssetExecutionContext, board: CheckBoard) -> None:
        self._board, self._catalog, self._context = board, catalog, context
        keys = {table: key for key, table in catalog.keys("changes").items()}
        chosen = {check.asset_key for check in context.selected_asset_check_keys}
        self._planned = {table: key for table, key in sorted(keys.items()) if key in chosen}
        self._others = {table: key for table, key in sorted(keys.items()) if key not in chosen}
        self._changed: set[TableId] = set()
        self._has_begun = False

    def on_progress(self, progress: Progress, read: Callable[[], CaptureState]) -> None:
        """Report planned and new results with the first committed window.

        Args:
            read: returns the capture's state.
        """
        self._changed.update(progress.tables)
        if self._has_begun:
            return
        self._has_begun = True
        self._show(self._planned | self._others, read(), self._planned.values())

    def results(self, state: CaptureState) -> Iterator[dg.AssetCheckResult]:
        """Results at the end of the run: all planned ones, and others that changed or are new.

        Raises:
            dagster.Failure: no check was planned, and a table cannot be trusted that could be before.
        """
        states = state.tables
        for table, key in self._planned.items():
            if table in states:
                yield result_of(CONTINUITY, continuity_result(states[table], self._holds(table, state)), key)
        changed = [key for table, key in self._others.items() if table in self._changed]
        self._show(self._others, state, changed, last=True)
        broken = [states[table] for table in self._others if table in states and states[table].status != "healthy"]
        if self._planned:
            return
        instance, page = self._context.instance, self._catalog.page_key
        known = _failed_for(instance, page)
        if (now := {str(entry.table) for entry in broken}) != known:
            _note_failed_for(instance, page, now)
        for entry in broken:
            if str(entry.table) in known:
                self._context.log.error(f"{entry.table} still cannot be trusted: {entry.reason or entry.status}")
        if new := [entry for entry in broken if str(entry.table) not in known]:
            raise dg.Failure(
                description="\n".join(f"{entry.table}: {entry.reason or entry.status}" for entry in new),
                metadata={"check": CONTINUITY.name, "failed": len(new)},
                allow_retries=False,
            )

    def _show(
        self,
        keys: Mapping[TableId, dg.AssetKey],
        state: CaptureState,
        materialized: Collection[dg.AssetKey],
        *,
        last: bool = False,
    ) -> None:
        states = state.tables
        results = (
            event_of(CONTINUITY, continuity_result(states[table], self._holds(table, state)), key)
            for table, key in keys.items()
            if table in states
        )
        self._board.show(results, materialized, last=last)

    def _holds(self, table: TableId, state: CaptureState) -> Retained | None:
        return state.retained.get(self._catalog.topic(table))


def _failed_for(instance: dg.DagsterInstance, page: dg.AssetKey) -> frozenset[str]:
    """Tables for which a run has failed, and which could not be trusted since."""
    name = _name(page)
    recorded = instance.run_storage.get_cursor_values({name}).get(name)
    return frozenset(json.loads(recorded)) if recorded else frozenset()


def _note_failed_for(instance: dg.DagsterInstance, page: dg.AssetKey, tables: Collection[str]) -> None:
    instance.run_storage.set_cursor_values({_name(page): json.dumps(sorted(tables))})


def _name(page: dg.AssetKey) -> str:
    return f"cdc_assets/failed_for/{page.to_user_string()}"
