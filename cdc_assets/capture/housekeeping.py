"""Housekeeping after a loop: drop old events, compact small files, and remove files that are not needed.

Each window adds files: one per topic table and slice, two to the manifest. So housekeeping runs when a loop ends and,
in a loop that never ends, every `lake.compact.after.files` windows, always between two windows.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Protocol

from cdc_assets.capture.account import Account
from cdc_assets.capture.foreign import ForeignCommits
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import TaskRunner
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import LAKE_WAITS, InvariantError
from cdc_assets.lake import upkeep
from cdc_assets.lake.system_topics import GROWING, system_topics
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.shared.losses import Losses
from cdc_assets.shared.parts import CaptureParts

log = logging.getLogger(__name__)

_COMPARE_EVERY, _COMPARE_S = timedelta(seconds=20), 0.1
"""How often topics are compared with their marks while a loop goes on, and for how many seconds at a time."""


class Retention(Protocol):
    """Drops old events from topics."""

    def run_when_due(self) -> None:
        """Drop what may be dropped, if that was not tried for a while."""


MakeRetention = Callable[[CaptureParts, TaskRunner], Retention]
"""Makes what drops old events, for the only writer."""


class _KeepAll:
    def run_when_due(self) -> None:
        pass


def keep_all(parts: CaptureParts, _: TaskRunner) -> Retention:
    """Nothing is dropped.

    Raises:
        InvariantError: the settings say that something is.
    """
    if parts.config.lake.topic_hours:
        raise InvariantError(
            "Old events are to be dropped, and the run has nothing that drops them. Next: report this."
        )
    return _KeepAll()


class Housekeeper:
    """Runs housekeeping from time to time.

    Args:
        losses: compares topics with their marks.
        account: counts what was written since the last housekeeping.
        retention: drops old events.
    """

    def __init__(
        self,
        parts: CaptureParts,
        losses: Losses,
        account: Account,
        runner: TaskRunner,
        retention: Retention,
    ) -> None:
        self._tables, self._manifest, self._config = parts.lake.tables, parts.ledger.manifest, parts.config
        self._account, self._runner, self._retention = account, runner, retention
        self._foreign = ForeignCommits(self._tables, self._manifest, losses, parts.ledger.clock, runner)
        self._losses, self._clock = losses, parts.ledger.clock
        self._compare_at = self._clock.elapsed() + _COMPARE_EVERY  # the run has just compared what looks wrong
        self._often = parts.config.lake.compact_after_files

    def tidy_when_due(self) -> None:
        """Run `tidy` if there were enough windows since the last time; look for commits of other programs and for losses, and
        drop old events, also if there were none."""
        if not self._manifest.state.files_wait:
            self._foreign.check_when_due()
            self._compare_when_due()
        self._drop_old()
        if self._often and self._account.commits >= self._often:
            self.tidy()

    def tidy(self) -> None:
        """Drop old events; compact and vacuum the tables that changed since the last time. It is postponed while files wait for
        their commit, or the lake is full or away."""
        try:
            if not self._manifest.state.files_wait:
                self._foreign.check()  # a rewrite of rows that are there twice could not be undone
            self._drop_old()
            if tidy(self._tables, self._manifest, self._config, self._runner, self._account.written):
                self._account.reset_written()
        except LAKE_WAITS as error:
            log.warning("Topics are tidied later: %s", error)

    def _compare_when_due(self) -> None:
        if self._clock.elapsed() >= self._compare_at:
            self._losses.compare_in_turn(_COMPARE_S)
            self._compare_at = self._clock.elapsed() + _COMPARE_EVERY

    def _drop_old(self) -> None:
        if not self._manifest.state.files_wait:
            self._retention.run_when_due()


def tidy(
    tables: TopicTables, manifest: Manifest, config: CaptureConfig, runner: TaskRunner, written: Iterable[TableId]
) -> bool:
    """Compact and vacuum the topics that a loop has written to; vacuum the manifest if it was folded.

    Args:
        tables: the lake's Delta tables.
        manifest: the manifest of the only writer, between two windows.
        written: tables with new events.

    Returns:
        False if nothing was done, because files wait for their commit.

    Raises:
        FencedError: another writer has taken over.
    """
    if manifest.state.files_wait:
        return False
    topics = [topic_name(table, config.events) for table in sorted(written)]
    topics += [topic for name, topic in system_topics(config).items() if name in GROWING]
    directories = [directory for topic in topics for directory in tables.generations(topic)]
    upkeep.tidy(tables, config.lake, runner, manifest.require_writer, directories)
    manifest.vacuum_if_folded(upkeep.Upkeep(tables, config.lake))
    return True
