"""Runs the tasks that read the slices of a round.

| tables | how their slices are read |
|---|---|
| with a key | each statement sees its own moment; READs carry the low watermark of the plan |
| without a key | all at one moment, whose place in the log their READs carry (`moment`): by readers that meet (`barrier`) if the database allows SNAPSHOT isolation, else while the tables are locked |
| all, with isolation `snapshot` | by readers that meet |

A table without a key that cannot be read so, because it cannot be locked in time, fails alone: those that were read with it are
then read one by one. If the capture job does not pass the moment, they all fail, and those that would be read after
them: waiting for it once is enough.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from uuid import uuid4

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.jobs import Job, named
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.packed import Packed
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.steps import step
from cdc_assets.errors import CaptureNotReadyError, CdcError, ConfigurationError, LakeFullError, describe_error
from cdc_assets.lake.files import remove_attempt
from cdc_assets.ledger.snapshot_state import SnapshotSlice
from cdc_assets.ledger.state import Window
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.snapshot.barrier import Barrier
from cdc_assets.snapshot.locks import by_barrier, to_lock
from cdc_assets.snapshot.moment import MarkerRefusedError, Moments
from cdc_assets.snapshot.plan import readers_of
from cdc_assets.snapshot.slices import bundles
from cdc_assets.snapshot.tasks import (
    TABLE_ERRORS,
    RoundResult,
    RoundTask,
    TableFailure,
    TableReading,
    run_bundle,
)

log = logging.getLogger(__name__)

Readings = Mapping[TableId, TableReading]


@dataclass(frozen=True)
class Found:
    """What the tasks of a round have read.

    Args:
        results: of the tasks.
        lows: LSNs that READs of tables carry in place of their low watermarks.
    """

    results: Sequence[RoundResult]
    lows: Mapping[TableId, Lsn] = field(default_factory=dict)

    def __add__(self, other: "Found") -> "Found":
        return Found([*self.results, *other.results], {**self.lows, **other.lows})


class Readers:
    """Reads slices of one capture.

    Args:
        moments: finds the places of moments.
    """

    def __init__(self, parts: CaptureParts, runner: TaskRunner, moments: Moments) -> None:
        self._server, self._lake, self._runner = parts.server, parts.lake, runner
        self._settings, self._moments = parts.config.snapshot, moments

    @property
    def count(self) -> int:
        """Number of slices that are read at once."""
        return readers_of(self._settings, self._runner)

    def read(self, window: Window, slices: Sequence[SnapshotSlice], readings: Readings) -> Found:
        """Read the slices of a round; if no space is left, the files of its tasks are removed.

        Raises:
            CdcError: the server or the lake failed as a whole.
        """
        attempt = uuid4().hex[:8]
        try:
            return self._read(_Job(window, attempt, readings), slices)
        except LakeFullError:
            directories = [reading.directory for reading in readings.values()]
            remove_attempt(self._lake.tables.location, directories, window.window_id, attempt)
            raise

    def _read(self, job: "_Job", slices: Sequence[SnapshotSlice]) -> Found:
        if by_barrier(self._settings):
            if self._runner.may_start_twice:
                raise ConfigurationError(
                    "spark.speculation", "true", "false with snapshot.isolation.mode=snapshot",
                    "set it to false where that session or Spark Connect server is started, or choose another isolation",
                )  # fmt: skip
            return self._together(job, slices)
        keyed = [entry for entry in slices if not job.readings[entry.table].is_keyless]
        keyless = [entry for entry in slices if job.readings[entry.table].is_keyless]
        return (self._freely(job, keyed) if keyed else Found(())) + self._of_moment(job, keyless)

    def _freely(self, job: "_Job", slices: Sequence[SnapshotSlice]) -> Found:
        """Each statement sees its own moment."""
        tasks = [self._task(job, bundle) for bundle in bundles(slices, self.count * 2)]
        return Found(self._runner.run(run_bundle, tasks, job.said_of(slices)))

    def _of_moment(self, job: "_Job", slices: Sequence[SnapshotSlice]) -> Found:
        """Slices of tables without a key; where they cannot be read together, table by table."""
        tables, found = list(dict.fromkeys(entry.table for entry in slices)), Found(())
        if not tables:
            return found
        try:
            self._moments.require_primary(job.window.database)
            meets = self._server.source.allows_snapshot(job.window.database) and not self._runner.may_start_twice
        except TABLE_ERRORS as error:
            return _failed(tables, error)
        size, read = (len(tables), self._together) if meets else (self.count, self._under_locks)
        groups = [tables[at : at + size] for at in range(0, len(tables), size)]
        while groups:
            group, *groups = groups
            try:
                found += read(job, [entry for entry in slices if entry.table in group])
            except CaptureNotReadyError as error:  # others would wait as long, and their writers with them
                return found + _failed([*group, *chain.from_iterable(groups)], error)
            except TABLE_ERRORS as error:
                if len(group) > 1:
                    log.info("Tables without a key are read one by one, because together they cannot be: %s", error)
                    groups = [*([table] for table in group), *groups]
                else:
                    found += _failed(group, error)
        return found

    def _together(self, job: "_Job", slices: Sequence[SnapshotSlice]) -> Found:
        """All slices at one moment, by as many readers as run at once."""
        settings, location, database = self._settings, self._lake.tables.location, job.window.database
        keyless = frozenset(entry.table for entry in slices if job.readings[entry.table].is_keyless)
        way = self._moments.way(database, sorted(keyless), meets=True) if keyless else None
        parts = bundles(slices, min(self.count, self._runner.parallelism))
        barrier = Barrier.new(
            location, self._lake.events.topic_prefix, len(parts), settings.lock_timeout_ms, settings.keyless_wait_s
        )
        tasks = [
            replace(self._task(job, bundle), number=number, barrier=barrier, placed=keyless)
            for number, bundle in enumerate(parts)
        ]
        locked = to_lock(settings, (entry.table for entry in slices))
        try:
            results, low = barrier.hold(
                self._server.source,
                locked,
                lambda over: self._runner.run(run_bundle, tasks, replace(job.said_of(slices), over=over)),
                way,
            )
        except MarkerRefusedError as error:
            self._moments.refuse_marker(database, error)
            return self._together(job, slices)
        return Found(results, {} if low is None else job.at(low).lows(keyless))

    def _under_locks(self, job: "_Job", slices: Sequence[SnapshotSlice]) -> Found:
        """Slices of tables without a key, while the tables are locked."""
        source, database = self._server.source, job.window.database
        tables = sorted({entry.table for entry in slices})
        way = self._moments.way(database, tables, meets=False)
        try:
            with source.lock_tables(to_lock(self._settings, tables), self._settings.lock_timeout_ms) as locks:
                locks.require_primary(database)
                way.begin()
                way.fix()
                step("moment-fixed")
                low = way.place()
                placed = job.at(low)
                found = self._freely(placed, slices)
                locks.check()
        except MarkerRefusedError as error:
            self._moments.refuse_marker(database, error)
            return self._under_locks(job, slices)
        return Found(found.results, placed.lows(tables))

    def _task(self, job: "_Job", slices: Sequence[SnapshotSlice]) -> RoundTask:
        own = {entry.table: job.readings[entry.table] for entry in slices}
        low = max(reading.low for reading in own.values())
        bulk = self._server.reaching(job.window.database, low, captured=False)
        location = self._lake.tables.location
        return RoundTask(job.window.window_id, tuple(slices), Packed(own), location, bulk, attempt=job.attempt)


def _failed(tables: Iterable[TableId], error: CdcError) -> Found:
    """What there is of tables that cannot be read."""
    failures = tuple(TableFailure(table, describe_error(error)) for table in tables)
    return Found([RoundResult({}, (), failures)])


@dataclass(frozen=True)
class _Job:
    """One attempt at a round.

    Args:
        attempt: part of the names of its files.
        readings: how its tables are read.
    """

    window: Window
    attempt: str
    readings: Readings

    def at(self, low: Lsn) -> "_Job":
        """The same, with READs at the place of a moment."""
        return replace(self, readings={table: one.at(low) for table, one in self.readings.items()})

    def lows(self, tables: Iterable[TableId]) -> dict[TableId, Lsn]:
        """LSNs that READs of some tables carry."""
        return {table: self.readings[table].low for table in tables}

    def said_of(self, slices: Iterable[SnapshotSlice]) -> Job:
        """What the job that reads some slices says of itself."""
        return Job("snapshot", f"round {self.window.window_id}: {named({entry.table for entry in slices})}")
