"""Compaction and vacuum of the tables that batches write to, between two batches: then no written file waits for its commit.

*Crash between any two steps.* Compaction is a Delta commit that changes no row and keeps the application transactions, by
which a batch is recognised; vacuum removes only files that no version names and that are older than the retention. What
was not done is done after a later batch.
"""

import logging
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from cdc_assets.config.settings import LakeSettings
from cdc_assets.connectors.engine.ledger import BatchLedger
from cdc_assets.core.one_by_one import OneByOne
from cdc_assets.errors import LAKE_ERRORS
from cdc_assets.lake.topics import TopicTables
from cdc_assets.lake.upkeep import Upkeep, tidy
from cdc_assets.lake.watch import CHECK_EVERY_S, ForeignWatch

log = logging.getLogger(__name__)

_THREADS = 8
"""Number of parallel requests to a store."""
_WHY = "a connector reads in a process of its own"


class BatchUpkeep:
    """Counts batches, and tidies the tables that they wrote to.

    Args:
        tables: the lake's Delta tables.
        ledger: claimed.
        settings: thresholds; a table is compacted when it has `compact_after_files` small files.
    """

    def __init__(self, tables: TopicTables, ledger: BatchLedger, settings: LakeSettings) -> None:
        self._tables, self._ledger, self._settings = tables, ledger, settings
        self._watch = ForeignWatch(tables, OneByOne(_WHY), ledger.require_writer)
        self._checked_at = time.monotonic()
        self._written: set[str] = set()
        self._batches = 0

    def count(self, directories: Iterable[str]) -> None:
        """Count a batch that was committed to these tables."""
        self._written.update(directories)
        self._batches += 1

    @property
    def due(self) -> bool:
        """Whether there were enough batches since the last time, in a run that continues."""
        return 0 < self._settings.compact_after_files <= self._batches

    def check_when_due(self) -> None:
        """Undo what other programs have put into the tables a second time, unless that was done a short time ago.

        Raises:
            FencedError: another run has taken over.
        """
        now = time.monotonic()
        if now - self._checked_at >= CHECK_EVERY_S:
            self._checked_at = now
            self._check()

    def tidy(self) -> None:
        """Compact and vacuum what was written since the last time; what fails is done after a later batch.

        An engine has no Spark, so its own process joins the files.

        Raises:
            FencedError: another run has taken over.
        """
        self._check()
        directories = sorted(self._written)
        tidy(self._tables, self._settings, OneByOne(_WHY), self._ledger.require_writer, directories)
        self._ledger.vacuum_if_folded(Upkeep(self._tables, self._settings))
        self._written.clear()
        self._batches = 0

    def _check(self) -> None:
        """Undo what was put in twice, and count what each table must have, so that the next marks need none of the logs' commits before
        now."""
        self._watch.check(self._ledger.state.tables)
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._count_rows, self._watch.checked))

    def _count_rows(self, directory: str) -> None:
        try:
            self._tables.count_rows(directory, self._watch.checked[directory])
        except LAKE_ERRORS as error:
            log.warning("The rows of %s cannot be counted; it is tried again: %s", directory, error)
