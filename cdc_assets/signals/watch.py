"""Reads signals between windows, and records their effect.

The signal table is read whenever its position has moved
(`signals.table`), the channels outside the log every `signal.poll.interval.ms`
(`signals.channels`). A channel that cannot be read is logged and retried
later: the stream never waits for it.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from cdc_assets.config.patterns import PatternError
from cdc_assets.config.settings import CaptureConfig, SignalSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.outages import warn_seldom
from cdc_assets.core.signal import Delivery, SignalChannel, route, signal_table
from cdc_assets.errors import CdcDisabledError, CdcError, PreflightError, QueryError
from cdc_assets.lake.location import Location
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.signal_state import SignalState
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.lake import Lake
from cdc_assets.shared.server import Server
from cdc_assets.signals.apply import Outcome, apply
from cdc_assets.signals.file import FileChannel
from cdc_assets.signals.inbox import Inbox
from cdc_assets.signals.lost import inserted_signals
from cdc_assets.signals.model import ExecuteSnapshot, ParsedSignal, Watermark, parse
from cdc_assets.signals.notices import SnapshotNotice
from cdc_assets.signals.table import INSERT, NewRows, Row, cleaned_up, signal_rows
from cdc_assets.signals.tables import TableMatcher

log = logging.getLogger(__name__)

_AFTER_TROUBLE = 6
"""Number of poll intervals until a channel that failed is read again."""


def reached(state: CaptureState) -> dict[str, int]:
    """Number up to which each stream of a channel was handled: the maximum over all databases, since a new one knows none."""
    numbers: dict[str, int] = {}
    for signals in state.signals.values():
        for stream, number in signals.places:
            numbers[stream] = max(number, numbers.get(stream, 0))
    return numbers


def tables_named_by_signals(settings: SignalSettings, state: CaptureState, database: str) -> list[TableId]:
    """Captured tables of a database that signals may name, sorted; without the signal table."""
    signals = signal_table(settings.collections, database, state.tables)
    return sorted(
        entry.table
        for entry in state.tables.values()
        if entry.table.database == database and entry.table != signals and entry.status != "excluded"
    )


def channels_of(config: CaptureConfig, adapters: Iterable[SignalChannel]) -> list[SignalChannel]:
    """All channels outside the log: the inbox, those of the settings, and those with an external client (Kafka)."""
    inbox = Inbox(Location.of(config.lake), config.events.topic_prefix)
    file = [FileChannel(Path(config.signals.file))] if "file" in config.signals.channels else []
    return [inbox, *file, *adapters]


def _differ(one: TableId, other: TableId) -> bool:
    return str(one).lower() != str(other).lower()


class SignalWatch:
    """Reads signals and records their effect.

    Args:
        server: server with the signal tables.
        lake: with their topics.
        channels: channels outside the log.
    """

    def __init__(
        self,
        server: Server,
        lake: Lake,
        ledger: Ledger,
        channels: Sequence[SignalChannel],
        settings: SignalSettings,
    ) -> None:
        self._server, self._lake, self._ledger = server, lake, ledger
        self._channels, self._settings = channels, settings
        self._seen: dict[str, Lsn] = {}
        self._due: dict[str, timedelta] = {}

    def reset(self) -> None:
        """Read everything at the next call, whatever was read before: a loop begins."""
        self._seen.clear()
        self._due.clear()

    def state(self, database: str) -> SignalState:
        """The recorded state of a database's signals."""
        return self._ledger.state.signals.get(database, SignalState())

    def table(self, database: str) -> TableState | None:
        """State of a database's signal table; None if there is none, or it was not captured yet."""
        tables = self._ledger.state.tables
        table = signal_table(self._settings.collections, database, tables)
        return tables[table] if table else None

    def record(self, database: str, state: SignalState, notices: Iterable[SnapshotNotice] = ()) -> None:
        """Record a new state, and notify about it.

        Raises:
            FencedError: another writer has taken over.
        """
        self._record({database: state}, notices)

    def _record(self, states: Mapping[str, SignalState], notices: Iterable[SnapshotNotice]) -> None:
        notifications = [
            self._ledger.notice(entry.aggregate, entry.kind, entry.signal, **entry.data) for entry in notices
        ]
        self._ledger.manifest.record_signals(self._ledger.clock.now(), states, notifications)

    def listen(self, databases: Sequence[str]) -> bool:
        """Carry out signals from channels outside the log; returns whether there were any.

        Raises:
            FencedError: another writer has taken over.
            LakeError: the manifest cannot be written.
        """
        received = [self._receive(channel, databases) for channel in self._channels]
        return any(received)

    def _receive(self, channel: SignalChannel, databases: Sequence[str]) -> bool:
        now, wait = self._ledger.clock.elapsed(), timedelta(seconds=self._settings.poll_interval_s)
        if now < self._due.get(channel.name, now):
            return False
        self._due[channel.name] = now + wait
        known = reached(self._ledger.state)
        try:
            delivery = channel.receive(known)
        except CdcError as error:
            self._due[channel.name] = now + wait * _AFTER_TROUBLE
            log.warning("Signal channel %s cannot be read and is retried later: %s", channel.name, error)
            return False
        if any(known.get(stream) != number for stream, number in delivery.reached.items()):
            self._carry_out(channel, delivery, databases)
        try:
            channel.forget(delivery)
        except CdcError as error:
            log.warning("%s Its signals were carried out and recorded.", error)
        return bool(delivery.signals)

    def _carry_out(self, channel: SignalChannel, delivery: Delivery, databases: Sequence[str]) -> None:
        by_database: dict[str, list[ParsedSignal]] = {database: [] for database in databases}
        for signal in map(parse, delivery.signals):
            for database, part in self._parts(signal, databases):
                by_database[database].append(part)
        outcomes = {database: self._applied(database, signals) for database, signals in by_database.items()}
        places = self._places(channel, delivery)
        # those of databases that are not captured any more, too: the greatest number counts (`reached`)
        states = dict(self._ledger.state.signals) | {database: outcome.state for database, outcome in outcomes.items()}
        states = {database: dataclasses.replace(state, places=places) for database, state in states.items()}
        self._record(states, [notices for outcome in outcomes.values() for notices in outcome.notices])
        for outcome in outcomes.values():
            self._log(outcome)

    def _places(self, channel: SignalChannel, delivery: Delivery) -> tuple[tuple[str, int], ...]:
        known = reached(self._ledger.state)
        if not channel.lasting:
            known = {stream: number for stream, number in known.items() if not stream.startswith(f"{channel.name}:")}
        return tuple(sorted({**known, **delivery.reached}.items()))

    def begin(self, database: str) -> None:
        """Record where the rows of a new signal table begin, before a window or a snapshot moves positions.

        If the settings name another table than before, that is how far the database was read at this moment, whether the table
        is captured yet or not: one that continues after an exclusion has older rows still to be read.

        Raises:
            FencedError: another writer has taken over.
        """
        table, state = self.table(database), self.state(database)
        if state.read_until is None:
            if table is not None and table.position is not None:
                first = min(table.position, table.snapshot_lsn or table.position)
                self.record(database, dataclasses.replace(state, read_until=first, signal_table=table.table))
            return
        named, former = signal_table(self._settings.collections, database), state.signal_table
        if named is None or (former is not None and not _differ(former, named)):
            return
        if former is not None:
            streaming = [entry for entry in self._ledger.state.tables.values() if entry.table.database == database]
            positions = [entry.position for entry in streaming if entry.streams and entry.position]
            if not positions:
                return
            state = dataclasses.replace(state, read_until=max(positions))
        self.record(database, dataclasses.replace(state, signal_table=named))
        if former is not None:
            log.warning(
                "Signals are read from %s now, and not from %s: rows inserted up to %s are not carried out. "
                "Next: insert into it again what is still wanted.", named, former, state.read_until,
            )  # fmt: skip

    def read_table(self, database: str) -> NewRows:
        """Carry out new rows of a database's signal table.

        Returns:
            Those rows, including the capture's own markers.

        Raises:
            RetryableError: the server is away or busy.
            FencedError: another writer has taken over.
        """
        table, state = self.table(database), self.state(database)
        handled, former = state.read_until, state.signal_table
        if table is None or table.position is None or handled is None or (former and _differ(former, table.table)):
            return NewRows()
        # less than what is handled, if its record was written and the answer lost: markers are still to be found there
        after = self._seen.setdefault(database, handled)
        if table.position <= after or (rows := self._rows(table.table, after, table.position)) is None:
            return NewRows()
        new = [row for row in rows if row.operation == INSERT and row.lsn > handled]
        outcome = self._of_table(database, [parse(row.signal) for row in new])
        gap = cleaned_up(self._server, table.table, after, table.position)
        is_reported = gap is not None and self._report_lost(table.table, max(after, handled), gap.until)
        if outcome.acted or is_reported:
            self.record(database, dataclasses.replace(outcome.state, read_until=table.position), outcome.notices)
        self._seen[database] = table.position
        self._log(outcome)
        return NewRows(rows, are_all=gap is None)

    def _rows(self, table: TableId, after: Lsn, until: Lsn) -> Sequence[Row] | None:
        """New rows of a signal table; None if the server refuses them, which a window with rows of it says, and stops no other table."""
        try:
            return signal_rows(self._server, table, after, until)
        except (QueryError, PreflightError) as error:
            if isinstance(error, CdcDisabledError):
                raise
            warn_seldom(log, f"Signals in {table} cannot be read, which is tried again: {error}")
            return None

    def _of_table(self, database: str, asked: Sequence[ParsedSignal]) -> Outcome:
        """The effect of new rows of a signal table; without the channel `source` they are read, so that nobody acts on
        them when it is added one day, and ignored."""
        if "source" in self._settings.channels:
            return self._applied(database, asked)
        ignored = [signal.signal.id for signal in asked if not isinstance(signal.request, Watermark)]
        why = "the signal table is not among signal.enabled.channels (source)"
        warnings = [f"Signal {own_id!r} is ignored: {why}." for own_id in ignored]
        return Outcome(self.state(database), warnings=warnings, acted=bool(ignored))

    def _report_lost(self, table: TableId, after: Lsn, until: Lsn) -> bool:
        """Report which signals in (after, until] the clean-up removed before they were read; returns whether that could be found out."""
        try:
            lost = inserted_signals(self._lake.tables, self._lake.topic(table), after, until)
        except CdcError as error:
            log.warning("Signals inserted into %s in (%s, %s] may be lost: %s", table, after, until, error)
            return False
        for own_id in lost:
            log.warning(
                "Signal %r is lost: the clean-up job removed it from the change table of %s before it was read. "
                "Next: insert it again if it is still wanted.", own_id, table,
            )  # fmt: skip
        return True

    def _parts(self, signal: ParsedSignal, databases: Sequence[str]) -> Iterator[tuple[str, ParsedSignal]]:
        """What a signal requests of each database. One that it names, and of which nothing is captured, is reported."""
        named = {name: route(name, databases) for name in signal.databases}
        for name in (name for name, found in named.items() if not found):
            own_id = signal.signal.id
            log.warning(
                "Signal %r: database %.200s does not belong to this capture, so what it requests there is ignored.",
                own_id, name,
            )  # fmt: skip
        general = self._concerned(signal, databases) if signal.is_general else ()
        for database in databases:
            if database in general or any(database in found for found in named.values()):
                yield database, signal.part(database, general=database in general)

    def _concerned(self, signal: ParsedSignal, databases: Sequence[str]) -> Sequence[str]:
        """Databases in which expressions without a database match a table; all of them if they match none."""
        request = signal.part("", general=True).request
        if len(databases) > 1 and isinstance(request, ExecuteSnapshot):
            with contextlib.suppress(PatternError):  # each database reports it
                meant = [
                    name for name in databases if TableMatcher(self._captured(name)).of_all(request.collections)[0]
                ]
                return meant or databases
        return databases

    def _captured(self, database: str) -> list[TableId]:
        return tables_named_by_signals(self._settings, self._ledger.state, database)

    def _applied(self, database: str, signals: Sequence[ParsedSignal]) -> Outcome:
        position = self._ledger.state.watermark(database)
        return apply(self.state(database), signals, self._captured(database), position)

    def _log(self, outcome: Outcome) -> None:
        for line in outcome.lines:
            log.info("%s", line)
        for notices in outcome.notices:
            log.info("Incremental snapshot requested by signal %r: %s, %s.", notices.signal, notices.kind, notices.data)
        for warning in outcome.warnings:
            log.warning("%s", warning)
