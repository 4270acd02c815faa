"""The first steps of every run: claim the capture, leave out what cannot be captured now, finish what was left in flight.

The claim fences any earlier run. The lake is checked before it, so that a lake that cannot be written changes nothing
anywhere. After it, whatever an earlier run left in flight is finished or given up. Only then is anything planned, since a window
that is planned later must not be committed earlier.

| left in flight | finished by | given up when |
|---|---|---|
| files of an incremental round | committing them | never |
| a window of the log | repeating it with the same bounds | its database is away or refuses the login, or is no longer configured |
| structures given by a signal | checking whether they are in the history | never |
| a snapshot | reading what is not committed yet | the same, or its tables were replaced |
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence

from cdc_assets.capture.activities import Activities
from cdc_assets.capture.selection import abandon_removed_databases, apply_filters, select, troubled_by_database
from cdc_assets.capture.unmatched import Existing, Structures, find_unmatched, lists_instances
from cdc_assets.config.filters import TableFilter
from cdc_assets.config.patterns import Patience
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import (
    DATABASE_ERRORS,
    TURN_ERRORS,
    CdcDisabledError,
    CdcError,
    CredentialsError,
    DatabaseRestoredError,
    LakeError,
    LoginError,
    PreflightError,
)
from cdc_assets.lake.commits import is_there
from cdc_assets.lake.known import remember_record
from cdc_assets.ledger.state import CaptureState
from cdc_assets.shared.endings import end_tables, leave_out_database, make_way
from cdc_assets.shared.forks import check_recovery_fork
from cdc_assets.shared.losses import other_name, refuse_without_manifest
from cdc_assets.shared.new_history import begin_history, end_former_tables
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.shared.progress import SnapshotSummary, TroubledTable
from cdc_assets.snapshot.plan import Request

log = logging.getLogger(__name__)


_COMPARE_S = 0.2
"""Processor time in seconds for comparing lists of the settings with what there is."""


class Opening:
    """The first steps of one run.

    Args:
        activities: components that finish what was left in flight.
    """

    def __init__(self, parts: CaptureParts, activities: Activities) -> None:
        self._config, self._server, self._lake, self._ledger = parts.config, parts.server, parts.lake, parts.ledger
        self._activities = activities
        self._claimed = False
        self.restored: dict[str, list[TableId]] = {}
        """Captured tables of databases that were restored."""
        self.refused: list[TroubledTable] = []
        """Tables that cannot be captured; the others continue."""
        self._has_others = False
        """Whether several databases are captured now."""

    def claim(self) -> None:
        """Become the only writer of this capture, once.

        Raises:
            LakeError: the lake cannot be written, or data that positions depend on are missing; no event was written.
            ConfigurationError: the settings would give a topic another name.
            FencedError: another run claimed it at the same moment.
        """
        if not self._claimed:
            self._claim(self._ledger.manifest.read())

    def _claim(self, known: CaptureState) -> None:
        """Claim it, after what was read a moment ago, since each reading opens the manifest again."""
        self._lake.tables.location.check_writable()
        tables, manifest = self._lake.tables, self._ledger.manifest
        if not is_there(tables.location, manifest.directory):  # a lake that went meanwhile is not to start over
            tables.forget(manifest.directory)
            known = manifest.read()
        refuse_without_manifest(tables, known, manifest.directory, self._config)
        if refused := other_name(known, self._config):
            raise refused
        manifest.claim(self._ledger.clock.now())
        self._require_same(known)
        remember_record(tables.location.uri(manifest.directory))
        refuse_without_manifest(tables, manifest.state, manifest.directory, self._config)
        self._activities.losses.at_start()
        self._claimed = True

    def _require_same(self, known: CaptureState) -> None:
        """Check whether the manifest that was claimed is the one that was read, which may be a while ago.

        Raises:
            LakeError: it is another one.
            ConfigurationError: another run has recorded other names meanwhile.
        """
        claimed, tables = self._ledger.manifest.state, self._lake.tables
        if claimed.next_window < known.next_window:
            raise LakeError(
                f"The manifest {tables.location.uri(self._ledger.manifest.directory)} was replaced while the run began: it has "
                f"{claimed.next_window} windows, and had {known.next_window} a moment ago. Nothing was captured. Next: mount or "
                "restore the lake; the next run reads it again."
            )
        if refused := other_name(claimed, self._config):
            raise refused

    def begin(self) -> tuple[dict[str, list[TableId]], dict[str, CdcError]]:
        """Claim the capture, and leave out databases that cannot be captured now.

        Returns:
            Captured tables by database, and the databases that cannot be captured, with the reason.

        Raises:
            CdcError: no database is left, and none was restored.
        """
        known = self._ledger.state if self._claimed else self._ledger.manifest.read()
        found = select(self._config, self._server, known)
        selected, unavailable = found.tables, found.unavailable
        if not unavailable:
            self._warn_of_unmatched()
        self.refused = [TroubledTable(table, "failed", str(error)) for table, error in found.refused.items()]
        if not self._claimed:
            self._claim(known)
        abandon_removed_databases(self._ledger, self._lake, self._config)
        for database, history in self._ledger.state.logs.items():  # one that is busy now may go on before it is checked
            self._server.source.leave_forks(database, history.former)
        for database in [
            *selected,
            *(name for name, error in unavailable.items() if isinstance(error, CdcDisabledError)),
        ]:
            try:
                check_recovery_fork(self._ledger, self._server.source, database)
                if self._ledger.state.is_open(database):
                    self._server.instances(database)
            except DatabaseRestoredError as error:
                if tables := selected.pop(database, None):
                    self.restored[database] = tables
                unavailable[database] = error
            except CredentialsError:  # of the whole server
                raise
            except (LoginError, PreflightError) as error:  # what it has in flight would hold up all others
                selected.pop(database, None)
                unavailable.setdefault(database, error)
            except DATABASE_ERRORS as error:  # whatever else is wrong: a restore may be what nobody could see
                selected.pop(database, None)
                unavailable[database] = error
        for database, problem in unavailable.items():
            # a restored one can go on, too, when its snapshot is requested
            if selected or self.restored or isinstance(problem, CdcDisabledError | DatabaseRestoredError):
                if isinstance(problem, TURN_ERRORS):
                    self._activities.snapshotter.commit_recorded(database)
                leave_out_database(self._ledger, self._lake, database, problem)
        if not selected and not any(isinstance(problem, DatabaseRestoredError) for problem in unavailable.values()):
            raise next(iter(unavailable.values()))
        self._has_others = len(selected) > 1
        return selected, unavailable

    def _warn_of_unmatched(self) -> None:
        """Log what matches nothing in lists of the settings, as far as that is found in a short time: `doctor` lists all of it.
        A database that cannot be queried is reported by what needs the answer."""
        source, patience = self._server.source, Patience(_COMPARE_S)
        try:
            databases = source.databases()
            tables = [table for database in databases for table in source.user_tables(database)]
            asked = databases if lists_instances(self._config) else ()
            instances = [instance.name for database in asked for instance in source.capture_instances(database)]
            captured = TableFilter(self._config.filters).select(tables)
            structures = Structures(lambda: (), source, captured)
            for found in find_unmatched(self._config, Existing(tables, instances, structures), patience):
                log.warning("%s", found)
        except CdcError as error:
            log.info("Lists of the settings were not compared with the server: %s", error)

    def begin_history(
        self, database: str, selected: dict[str, list[TableId]], unavailable: dict[str, CdcError]
    ) -> None:
        """Capture a restored database again, if a new history of it can begin. Nothing may be in flight.

        Args:
            database: one of `restored`.
            selected: captured tables by database; the database is added.
            unavailable: databases that cannot be captured; the database is removed, or its reason updated.
        """
        try:
            begin_history(self._ledger, self._server.source, database)
            end_former_tables(self._ledger, self._lake, database)
            check_recovery_fork(self._ledger, self._server.source, database)
        except (DatabaseRestoredError, *DATABASE_ERRORS) as error:
            unavailable[database] = error
        else:
            selected[database] = self.restored.pop(database)
            self._has_others = len(selected) > 1
            del unavailable[database]

    def finish(
        self, selected: dict[str, list[TableId]], unavailable: dict[str, CdcError], requested: Sequence[TableId] = ()
    ) -> SnapshotSummary:
        """Finish what an earlier run left in flight; from then on the current filters apply.

        Args:
            selected: captured tables by database; one that is too busy for its snapshot is removed, if there are others.
            unavailable: databases that cannot be captured now, with the reason; such a one is added.
            requested: further tables that may be read.

        Raises:
            CdcError: the server or the lake failed as a whole.
        """
        activities = self._activities
        captured = [*(table for tables in selected.values() for table in tables), *requested]
        if self._config.signals.collections:
            activities.incremental.reader.clean()
        # READs that are recorded: this queries no server, and readers of all databases wait for the number
        for database in list(self._ledger.state.signals):
            activities.incremental.recover(database)
        # a window in flight, before any filter can take a table out of it
        pending = [window for window in self._ledger.state.pending if window.kind == "stream"]
        troubles = activities.windows.execute(pending, repeated=True) if pending else {}
        # a restored one goes on, too, when it is requested
        going = {table.database for table in captured} - (unavailable.keys() - self.restored.keys())
        waiting = going - {one.database for one in pending}
        for database, trouble in troubles.items():
            is_busy = isinstance(trouble, TURN_ERRORS)  # the loop tries again
            if not is_busy or not self._lets_go_on(database, has_others=bool(waiting)):
                raise trouble
        # structures that a signal has given and that a killed run had only begun to record
        for database in list(self._ledger.state.signals):
            activities.structures.recover(database)
        for database in selected:  # new tables begin where the log ends, which is ahead of what was read
            activities.watch.begin(database)
        # a snapshot in flight holds a number, so it comes before new ones; first that with a round in flight, behind which none is planned
        done, known = SnapshotSummary(), self._ledger.state
        snapshots = known.snapshots.keys() - unavailable.keys()  # one of a busy database waits until it answers
        for database in sorted(snapshots, key=lambda name: (known.in_flight(name) is None, name)):
            tables = [entry.table for entry in self._ledger.state.snapshots[database].tables]
            with self._of_one_history(database, tables) as failed:
                try:
                    done += activities.snapshotter.resume(database, captured)
                except DATABASE_ERRORS as error:  # it goes on when it answers
                    going.discard(database)
                    if not (going and self._make_way(database)):
                        raise
                    log.error("Database %s is left out: %s", database, error)
                    selected.pop(database, None)
                    unavailable[database] = error
                    failed += troubled_by_database(tables, unavailable)
            done += SnapshotSummary(failed=tuple(failed))
        # only now are tables ended: what was in flight may have needed them
        for database in sorted({table.database for table in captured}):
            end_former_tables(self._ledger, self._lake, database)
        for database, problem in unavailable.items():
            if isinstance(problem, CdcDisabledError):
                end_tables(self._ledger, self._lake, database, problem)
        apply_filters(self._ledger, self._config)
        return done

    def snapshot(self, database: str, requests: Sequence[Request]) -> SnapshotSummary:
        """Snapshot tables; if their database is restored meanwhile, or cannot be read while there are others, they fail.

        Raises:
            CdcError: see `snapshot.run.Snapshotter.run`.
        """
        done, tables = SnapshotSummary(), [request.table for request in requests]
        with self._of_one_history(database, tables) as failed:
            try:
                done = self._activities.snapshotter.run(database, requests)
            except CredentialsError:  # of the whole server
                raise
            except (LoginError, PreflightError) as error:
                if not self._has_others:
                    raise
                if isinstance(error, CdcDisabledError):  # it may have been restored without it
                    check_recovery_fork(self._ledger, self._server.source, database)
                leave_out_database(self._ledger, self._lake, database, error)
                failed += troubled_by_database(tables, {database: error})
            except DATABASE_ERRORS as error:  # what was begun goes on when it answers
                if not (self._has_others and make_way(self._ledger, self._lake, database)):
                    raise
                log.warning("The snapshot of %s waits: %s", database, error)
                failed += troubled_by_database(tables, {database: error})
        return done + SnapshotSummary(failed=tuple(failed))

    def _lets_go_on(self, database: str, *, has_others: bool) -> bool:
        """Whether a busy database holds up no other one."""
        if self._ledger.state.in_flight(database) is None:
            return True
        return has_others and make_way(self._ledger, self._lake, database)

    def _make_way(self, database: str) -> bool:
        """The same of one that may have a round in flight, which is committed if its files are recorded."""
        self._activities.snapshotter.commit_recorded(database)
        return make_way(self._ledger, self._lake, database)

    @contextlib.contextmanager
    def _of_one_history(self, database: str, tables: Sequence[TableId]) -> Iterator[list[TroubledTable]]:
        """Catch `DatabaseRestoredError`: record it, and yield the tables that fail because of it."""
        failed: list[TroubledTable] = []
        try:
            yield failed
        except DatabaseRestoredError as error:
            leave_out_database(self._ledger, self._lake, database, error)
            failed += troubled_by_database(tables, {database: error})
