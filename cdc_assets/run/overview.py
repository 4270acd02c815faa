"""What a sensor may know: one read of the manifest, one small query per database and channel. No JVM, nothing is claimed."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from cdc_assets.capture.forks import restore_problem
from cdc_assets.capture.instances import by_table
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.config.snapshot_modes import rule_of
from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import Source
from cdc_assets.core.signal import SignalChannel
from cdc_assets.errors import CdcDisabledError, CdcError, DatabaseAwayError
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.manifest import Manifest
from cdc_assets.ledger.state import CaptureState, TableState
from cdc_assets.run.selection import included_by
from cdc_assets.signals.watch import channels_of, reached

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Headroom:
    """How far the clean-up job is from a table's unread changes.

    Args:
        table: which.
        position: the lake is complete to here.
        mark: the server keeps changes from here on.
        hours: of changes between the two; None if their commit times are not known any more.
    """

    table: TableId
    position: Lsn
    mark: Lsn
    hours: float | None

    @property
    def lost(self) -> bool:
        """Whether changes behind the position may be gone."""
        return self.mark > self.position.next()


class CaptureOverview:
    """Looks at a capture from outside.

    Args:
        config: the capture.
        source: of its server.
        adapters: channels of signals that need one; asked only by `asked`.
    """

    def __init__(self, config: CaptureConfig, source: Source, adapters: Iterable[SignalChannel] = ()) -> None:
        tables = TopicTables.of(config)
        self.state: CaptureState = Manifest(tables, config.events.topic_prefix).read()
        self._source, self._rule, self._streaming = source, rule_of(config.snapshot), config.streaming
        self._channels = channels_of(config, adapters)
        self._included = included_by(config)

    @property
    def streams(self) -> bool:
        """Whether the snapshot mode streams changes."""
        return self._rule.streams

    def waiting(self, tables: Sequence[TableId], *, first_look: bool = False) -> list[TableId]:
        """Which of these tables a snapshot run is needed for, by the snapshot mode.

        Args:
            tables: of the capture.
            first_look: whether nobody has looked since the start.

        Raises:
            RetryableError: the server is away or busy.
        """
        rule = self._rule
        tables = [table for table in tables if not self.state.log(table.database).restored]
        if first_look and (rule.data == "each start" or (rule.schema == "each start" and not rule.streams)):
            return list(tables)
        unfinished = {entry.table for run in self.state.snapshots.values() for entry in run.tables}
        again = {"needed", "position lost"} & {rule.schema, rule.data}
        lost = {
            state.table
            for state in self.state.tables.values()
            if (again and state.status in ("gap", "failed")) or state.is_to_be_repaired(self._streaming.gap_policy)
        }
        due = unfinished | lost | self._enabled(tables)
        return [table for table in tables if table not in self.state.tables or table in due]

    def _enabled(self, tables: Sequence[TableId]) -> set[TableId]:
        """Tables that were snapshotted when they had no capture instance, and have one now; asked only if there are any."""
        uncaptured = {table for table in tables if table in self.state.tables and not self.state.has_position(table)}
        found: set[TableId] = set()
        for database in sorted({table.database for table in uncaptured if self.streams}):
            with suppress(CdcDisabledError, DatabaseAwayError):
                found |= uncaptured & by_table(self._source.capture_instances(database), self._streaming).keys()
        return found

    def newcomers(self) -> list[TableId]:
        """Tables that were enabled and of which nothing is captured yet, for a code location that lists none.

        Raises:
            RetryableError: the server is away or busy.
        """
        found: list[TableId] = []
        for database in self._source.databases():
            with suppress(CdcDisabledError, DatabaseAwayError):
                found += by_table(self._source.capture_instances(database), self._streaming)
        return sorted(table for table in found if table not in self.state.tables and self._included(table))

    def fresh(self) -> Mapping[str, Lsn]:
        """Databases with something to do, and their newest captured transaction, or else how far they were read.

        Besides unread changes that is a window in flight, an incremental snapshot whose run was killed, a database that
        was restored and whose tables nobody has told yet, and a table that the settings let in again.

        Raises:
            RetryableError: the server is away or busy.
        """
        found: dict[str, Lsn] = {}
        for state in self.state.tables.values():
            if state.status == "excluded" and self._included(state.table):
                found[state.table.database] = state.position or ZERO_LSN
        for database in sorted({table.database for table in self.state.tables if self._included(table)}):
            watermark = self.state.watermark(database)
            try:
                newest = self._source.max_transaction_lsn(database, watermark, 0) if watermark else None
                if newest is None and watermark and restore_problem(self._source, self.state, database)[1]:
                    newest = watermark
            except (CdcDisabledError, DatabaseAwayError) as error:
                log.warning("%s", error)  # the other databases go on; a run that is asked for tells its tables
                continue
            if newest is not None:
                found[database] = newest
        pending = self.state.pending
        if pending is not None and pending.kind == "stream":
            found.setdefault(pending.database, pending.until)
        for database, own in self.state.signals.items():
            watermark = self.state.watermark(database)
            if watermark and (own.reads or (own.queue and not own.paused)):
                found.setdefault(database, watermark)
        return found

    def asked(self) -> list[str]:
        """Channels with signals that nobody has seen, and databases with requests that no run has finished.

        A channel that cannot be read is told in the log; the others count.
        """
        found = [
            name
            for name, signals in self.state.signals.items()
            if signals.unfinished and not self.state.log(name).restored
        ]
        if not self._readable():
            return found
        known = reached(self.state)
        for channel in self._channels:
            try:
                if channel.waiting(known):
                    found.append(channel.name)
            except CdcError as error:
                log.warning("Channel %s of signals cannot be read: %s", channel.name, error)
        return found

    def capture_jobs(self) -> list[CaptureJob]:
        """Of every database with a table that streams.

        Raises:
            RetryableError: the server is away or busy.
        """
        jobs: list[CaptureJob] = []
        for database in sorted({state.table.database for state in self.state.tables.values() if state.streams}):
            try:
                jobs.append(self._source.capture_job(database))
            except (CdcDisabledError, DatabaseAwayError) as error:
                log.warning("%s", error)
        return jobs

    def _readable(self) -> bool:
        """Whether a database is left from which anything may be read."""
        databases = {table.database for table in self.state.tables}
        return not databases or any(not self.state.log(database).restored for database in databases)

    def headroom(self) -> list[Headroom]:
        """Of every table that streams, sorted by table.

        Raises:
            RetryableError: the server is away or busy.
        """
        streaming = [
            state
            for state in self.state.tables.values()
            if state.position is not None
            and state.instance
            and state.status != "excluded"
            and not self.state.log(state.table.database).restored
        ]
        rooms: list[Headroom] = []
        for database in sorted({state.table.database for state in streaming}):
            try:
                marks = self._source.low_water_marks(database)
            except (CdcDisabledError, DatabaseAwayError) as error:
                log.warning("%s", error)
                continue
            own = [state for state in streaming if state.table.database == database and state.instance in marks]
            rooms += self._rooms(database, own, marks)
        return sorted(rooms, key=lambda room: room.table)

    def _rooms(self, database: str, states: Sequence[TableState], marks: Mapping[str, Lsn]) -> list[Headroom]:
        pairs = [(state.table, state.position, marks[state.instance or ""]) for state in states]
        times = self._source.commit_times(database, sorted({lsn for _, *both in pairs for lsn in both if lsn}))
        return [
            Headroom(table, position, mark, _hours(times.get(mark), times.get(position)))
            for table, position, mark in pairs
            if position is not None
        ]


def _hours(start: datetime | None, end: datetime | None) -> float | None:
    return (end - start).total_seconds() / 3600 if start and end else None
