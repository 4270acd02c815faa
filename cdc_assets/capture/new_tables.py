"""Adds tables that were enabled while the loop runs: with their rows if the mode reads rows, else from the start of capture."""

import dataclasses
import logging
from collections.abc import Collection, Iterable, Sequence

from cdc_assets.capture.due import Due
from cdc_assets.capture.selection import unfit
from cdc_assets.config.filters import TableFilter
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import ConfigurationError
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.shared.progress import TroubledTable
from cdc_assets.snapshot.run import Snapshotter

log = logging.getLogger(__name__)


class NewTables:
    """Adds each new table once.

    Args:
        due: decides by the snapshot mode what to read of them.
        waiting: tables that wait for their own snapshot and are not added.
        refused: tables that could not be captured when the run began, with the reason.
    """

    def __init__(
        self,
        config: CaptureConfig,
        ledger: Ledger,
        due: Due,
        snapshotter: Snapshotter,
        waiting: Collection[TableId],
        refused: Iterable[TroubledTable],
    ) -> None:
        self._config, self._ledger, self._due, self._snapshotter = config, ledger, due, snapshotter
        self._seen = set(waiting)
        self.refused = {trouble.table: trouble for trouble in refused}
        """Tables that could not be added, with the reason."""

    def join(self, database: str, tables: Iterable[TableId]) -> None:
        """Add those of the given tables that are new, belong to the database and pass the filters.

        Raises:
            CdcError: see `snapshot.run.Snapshotter.run`.
        """
        found = sorted(table for table in tables if table.database == database and table not in self._seen)
        if found:
            self._join(database, found)
            self._seen.update(found)

    def _join(self, database: str, tables: Sequence[TableId]) -> None:
        known = self._ledger.state.tables
        chosen = self._wanted(tables)
        refused = unfit(chosen, known, self._config)
        failed = [TroubledTable(table, "failed", str(error)) for table, error in refused.items()]
        if fit := [table for table in chosen if table not in refused]:
            log.info("Added to the capture: %s", ", ".join(map(str, fit)))
            requests = [dataclasses.replace(request, joins=True) for request in self._due.requests(database, fit)]
            failed += self._snapshotter.run(database, requests).failed
        self.refused |= {trouble.table: trouble for trouble in failed}

    def _wanted(self, tables: Sequence[TableId]) -> Sequence[TableId]:
        """Tables that pass the filters. A table that the filters cannot judge is left out; the others continue."""
        filters, clear = TableFilter(self._config.filters), list[TableId]()
        for table in tables:
            try:
                clear += filters.select([table])
            except ConfigurationError as error:
                log.warning("%s is not captured: %s", table, error)
        return filters.select(clear)
