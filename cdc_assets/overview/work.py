"""What a run would have to do. Sensors need this often, so it takes as few and small queries as possible.

One read of the manifest, one query per database and channel; which queries are needed depends on the snapshot mode.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from cdc_assets.capture.selection import unfit
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.config.snapshot_modes import ModeRule
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import Source
from cdc_assets.core.signal import SignalChannel, signal_table
from cdc_assets.errors import (
    CdcDisabledError,
    CdcError,
    CredentialsError,
    DatabaseAwayError,
    IncompleteReadError,
    LoginError,
    PreflightError,
)
from cdc_assets.ledger.readings import open_databases
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.forks import restore_problem
from cdc_assets.shared.instances import by_table
from cdc_assets.signals.model import WATERMARKS
from cdc_assets.signals.watch import reached

log = logging.getLogger(__name__)


class Work:
    """Pending work of one capture.

    Args:
        state: state recorded in the manifest.
        rule: rule of the snapshot mode.
        included: whether the settings include a table.
        channels: signal channels; read only by `pending_signals`.
    """

    def __init__(
        self,
        state: CaptureState,
        source: Source,
        rule: ModeRule,
        config: CaptureConfig,
        included: Callable[[TableId], bool],
        channels: Sequence[SignalChannel],
    ) -> None:
        self._state, self._source, self._rule, self._streaming = state, source, rule, config.streaming
        self._config, self._signals, self._is_mirrored = config, config.signals, config.mirror.enabled
        self._included, self._channels = included, channels

    def waiting(self, tables: Sequence[TableId], *, first_tick: bool = False) -> list[TableId]:
        """Those of the given tables that need a snapshot run, according to the snapshot mode.

        Args:
            first_tick: whether this is the first evaluation since the start.

        Raises:
            RetryableError: the server is away or busy.
        """
        rule = self._rule
        tables = [table for table in tables if not self._state.log(table.database).restored]
        if first_tick and (rule.data == "each start" or (rule.schema == "each start" and not rule.streams)):
            return list(tables)
        unfinished = {entry.table for run in self._state.snapshots.values() for entry in run.tables}
        again = {"needed", "position lost"} & {rule.schema, rule.data}
        lost = {
            state.table
            for state in self._state.tables.values()
            if (again and state.status in ("gap", "failed") and not state.resumes)
            or state.is_to_be_repaired(self._streaming.gap_policy)
        }
        due = unfinished | lost | self._enabled(tables)
        return [table for table in tables if table not in self._state.tables or table in due]

    def _enabled(self, tables: Sequence[TableId]) -> set[TableId]:
        """Tables that were snapshotted without a capture instance and have one now; queried only if there are such tables."""
        uncaptured = {table for table in tables if table in self._state.tables and not self._state.has_position(table)}
        found: set[TableId] = set()
        for database in sorted({table.database for table in uncaptured if self._rule.streams}):
            with suppress(DatabaseAwayError, LoginError, PreflightError):
                found |= uncaptured & by_table(self._source.capture_instances(database), self._streaming).keys()
        return found

    def new_tables(self) -> list[TableId]:
        """Enabled tables of which nothing is captured yet and that can have a topic.

        Raises:
            RetryableError: the server is away or busy.
        """
        found: list[TableId] = []
        for database in self._source.databases():
            with suppress(DatabaseAwayError, LoginError, PreflightError):
                found += by_table(self._source.capture_instances(database), self._streaming)
        new = sorted(table for table in found if table not in self._state.tables and self._included(table))
        refused = unfit(new, self._state.tables, self._config) if self._state.tables else {}
        return [table for table in new if table not in refused]

    def unread_databases(self) -> Mapping[str, Lsn]:
        """Databases with something to do, and their newest captured transaction, or else the LSN up to which they were read.

        Besides unread changes these are: a window in flight; an incremental snapshot whose run was killed; a table that
        the settings include again; a database that was restored or whose capture was turned off, if no run has recorded
        the end of its tables yet.

        Raises:
            RetryableError: the server is away or busy.
        """
        found: dict[str, Lsn] = {}
        for state in self._state.tables.values():
            if state.status == "excluded" and self._included(state.table):
                found[state.table.database] = state.position or ZERO_LSN
        for database in self._databases():
            watermark = self._state.watermark(database)
            try:
                newest = self._source.max_transaction_lsn(database, watermark, 0) if watermark else None
                if newest is None and watermark and (left := self._state.unpublished.get(database)):
                    newest = left.until
                if newest is None and watermark and restore_problem(self._source, self._state, database)[1]:
                    newest = watermark
            except CdcDisabledError:
                newest = watermark
            except IncompleteReadError as error:
                if self._databases() == [database]:
                    raise  # nobody knows whether there is anything to do
                log.warning("%s", error)  # the other databases continue; a replica that lags catches up
                continue
            except (DatabaseAwayError, LoginError, PreflightError) as error:
                if isinstance(error, CredentialsError) or (not error.retryable and self._databases() == [database]):
                    raise  # it stops all that there is
                log.warning(
                    "%s", error
                )  # the other databases continue; it comes back, or a run records the end of its tables
                continue
            if newest is not None:
                found[database] = newest
        for window in self._state.pending:
            if window.kind == "stream":
                found.setdefault(window.database, window.until)
        for database, signals in self._state.signals.items():
            watermark = self._state.watermark(database)
            if watermark and (signals.reads or (signals.queue and not signals.paused)):
                found.setdefault(database, watermark)
        return found

    def signalled(self, fresh: Mapping[str, Lsn]) -> list[TableId]:
        """Signal tables into which signals were inserted that no window has read yet; markers of captures are none.

        One query for each database, and a few more if its signal table has changed. One that cannot be queried is logged and
        skipped.

        Args:
            fresh: result of `unread_databases`.
        """
        if "source" not in self._signals.channels:
            return []
        states = [(self._signal_table(database), until) for database, until in fresh.items()]
        return [
            state.table
            for state, until in states
            if state and state.position and self._is_signalled(state, state.position, until)
        ]

    def unheeded(self) -> list[TableId]:
        """Signal tables with signals that windows have read and that no run may have carried out.

        A run that died between the two leaves them. It costs what `signalled` costs, and names rows that request nothing, too:
        call it after a run that did not succeed.
        """
        if "source" not in self._signals.channels:
            return []
        states = [(self._signal_table(database), own.read_until) for database, own in self._state.signals.items()]
        return [
            state.table
            for state, read in states
            if state and state.position and read and self._is_signalled(state, read, state.position)
        ]

    def _signal_table(self, database: str) -> TableState | None:
        """State of a database's signal table; None if there is none, or it was not captured yet."""
        table = signal_table(self._signals.collections, database, self._state.tables)
        return self._state.tables[table] if table else None

    def _is_signalled(self, state: TableState, after: Lsn, until: Lsn) -> bool:
        table, source = state.table, self._source
        if state.instance is None:
            return False
        try:
            if not source.active_instances(table.database, {state.instance: after}, until):
                return False
            found = by_table(source.capture_instances(table.database), self._streaming).get(table, [])
            whole = [instance for instance in found if len(instance.columns) == 3]
            return any(source.has_signals(instance, instance.columns[1], WATERMARKS, after) for instance in whole)
        except CdcError as error:
            log.warning("Whether %s holds signals is not known; the next run reads them: %s", table, error)
            return False

    def failed(self) -> list[TableId]:
        """Tables that failed and are tried again from their position, at the beginning of each run."""
        return sorted(
            state.table for state in self._state.tables.values() if state.resumes and self._included(state.table)
        )

    def readings_without_end(self) -> list[str]:
        """Databases whose mirrors wait until a run has found out up to where in the log snapshots have read (`run.readings`)."""
        if not self._is_mirrored:
            return []
        found = open_databases(self._state.readings) & set(self._databases())
        return sorted(name for name in found if not self._state.log(name).restored)

    def has_come(self) -> bool:
        """Whether a database has a transaction that was not read; one query for each database.

        Raises:
            RetryableError: the server is away or busy.
        """
        return any(map(self._has_moved, self._databases()))

    def _has_moved(self, database: str) -> bool:
        """Whether a database has a transaction after what was read of it; False if it cannot be queried."""
        watermark = self._state.watermark(database)
        with suppress(DatabaseAwayError, LoginError, PreflightError):
            return watermark is not None and self._source.max_transaction_lsn(database, watermark, 0) is not None
        return False

    def _databases(self) -> list[str]:
        """Databases with tables that are captured."""
        return sorted({table.database for table in self._state.tables if self._included(table)})

    def pending_signals(self) -> list[str]:
        """Channels with unread signals, and configured databases with requests that no run has finished.

        A channel that cannot be read is logged and skipped.
        """
        configured = {name.lower() for name in self._config.connection.databases}
        found = [
            name
            for name, signals in self._state.signals.items()
            if signals.unfinished and name.lower() in configured and not self._state.log(name).restored
        ]
        if not self._readable():
            return found
        known = reached(self._state)
        for channel in self._channels:
            try:
                if channel.waiting(known):
                    found.append(channel.name)
            except CdcError as error:
                log.warning("Signal channel %s cannot be read: %s", channel.name, error)
        return found

    def _readable(self) -> bool:
        """Whether there is a database from which anything may still be read."""
        databases = {table.database for table in self._state.tables}
        return not databases or any(not self._state.log(database).restored for database in databases)
