"""The channels through which signals arrive: the signal table, and a file.

*Signal table.* Its inserts are read from its change table once its own events
are committed, between its position when we last looked and its position now.
What they change is one manifest row together with the new `read_until`. *Crash
before that row:* the same rows are read again. *After it:* they lie below
`read_until`. Positions only grow, so no row is missed or acted on twice.

*File.* Lines are carried out, recorded, and then the file is emptied. *Crash
before the record:* they are read again. *After it, the file still full:* their
ids are known and they are skipped. Lines that were added meanwhile are kept.
"""

import dataclasses
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cdc_assets.core.identifiers import TableId, quote
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.notifications import Notification
from cdc_assets.signals.apply import Outcome, Told, apply
from cdc_assets.signals.model import Signal
from cdc_assets.signals.state import SignalState
from cdc_assets.streaming.context import Context

log = logging.getLogger(__name__)

_DELETE, _INSERT = 1, 2


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the signal table as it was inserted or deleted."""

    lsn: Lsn
    operation: int
    signal: Signal


def signal_table(collections: Iterable[str], database: str) -> TableId | None:
    """The signal table of a database: settings name it in three parts, letter case ignored for the database."""
    for name in collections:
        parts = [part.strip().strip('[]"') for part in name.split(".")]
        if len(parts) == 3 and parts[0].lower() == database.lower():
            return TableId(database, parts[1], parts[2])
    return None


class SignalWatch:
    """Looks for signals and records what they change.

    Args:
        context: of the capture.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen: dict[str, Lsn] = {}
        self._file_checked: datetime | None = None

    def state(self, database: str) -> SignalState:
        """What is recorded."""
        return self._context.manifest.state.signals.get(database, SignalState())

    def record(self, database: str, state: SignalState) -> None:
        """Record a new state.

        Raises:
            FencedError: another writer has taken over.
        """
        self._context.manifest.record_signals(self._context.clock.now(), database, state)

    def tell(self, told: Iterable[Told]) -> None:
        """Notify about incremental snapshots."""
        now = self._context.clock.now()
        for entry in told:
            self._context.notifier.send(Notification("Incremental Snapshot", entry.kind, entry.data, now, entry.signal))

    def look(self, database: str, *, touched: bool) -> list[Row]:
        """Carry out new signals of a database.

        Args:
            database: whose.
            touched: whether a window was completed since the last look.

        Returns:
            New rows of the signal table; the capture's own markers are among them.

        Raises:
            RetryableError: the server is away or busy.
            FencedError: another writer has taken over.
        """
        channels = self._context.config.signals.channels
        if "file" in channels:
            self._look_into_file()
        return self._look_into_table(database, touched=touched, acting="source" in channels)

    def _look_into_table(self, database: str, *, touched: bool, acting: bool) -> list[Row]:
        table = signal_table(self._context.config.signals.collections, database)
        own = self._context.manifest.state.tables.get(table) if table else None
        if own is None or own.position is None or own.instance is None:
            return []
        after = max(
            self.state(database).read_until or own.snapshot_lsn or own.position, self._seen.get(database, ZERO_LSN)
        )
        known = database in self._seen  # a window that an earlier run completed may have brought rows
        if own.position <= after or (known and not touched):
            return []
        rows = self._rows(own.table, own.instance, after, own.position)
        signals = [row.signal for row in rows if row.operation == _INSERT] if acting else []
        outcome = self._applied(database, signals)
        if outcome.state != self.state(database):
            self.record(database, dataclasses.replace(outcome.state, read_until=own.position))
        self._seen[database] = own.position
        self._say(outcome)
        return rows

    def _rows(self, table: TableId, instance: str, after: Lsn, until: Lsn) -> list[Row]:
        entry = self._context.history.of_instance(table, instance) or self._context.history.latest(table)
        columns = (entry.captured or [column.name for column in entry.schema.columns]) if entry else []
        if len(columns) != 3:
            log.warning("Signal table %s has %d columns in place of three; its rows are ignored.", table, len(columns))
            return []
        texts = ", ".join(f"CONVERT(nvarchar(max), [ct].{quote(name)}) AS {quote(name)}" for name in columns)
        statement = (
            "/* cdc-assets: signals */ SELECT [ct].[__$start_lsn], [ct].[__$operation], "  # noqa: S608 - quoted names
            f"{texts} FROM {quote(table.database)}.cdc.{quote(f'{instance}_CT')} AS [ct] "
            "WHERE [ct].[__$start_lsn] > ? AND [ct].[__$start_lsn] <= ? AND [ct].[__$operation] IN (1, 2) "
            "ORDER BY [ct].[__$start_lsn], [ct].[__$command_id], [ct].[__$seqval], [ct].[__$operation]"
        )
        rows = []
        for batch in self._context.bulk.read(statement, (after.raw, until.raw)):
            for lsn, operation, own_id, kind, data in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                rows.append(Row(Lsn(bytes(lsn)), operation, Signal(own_id or "", (kind or "").strip(), data)))
        return rows

    def _applied(self, database: str, signals: list[Signal]) -> Outcome:
        state = self._context.manifest.state
        captured = sorted(entry.table for entry in state.tables.values() if entry.table.database == database)
        own = signal_table(self._context.config.signals.collections, database)
        return apply(
            self.state(database), signals, [table for table in captured if table != own], state.watermark(database)
        )

    def _say(self, outcome: Outcome) -> None:
        for line in outcome.lines:
            log.info("%s", line)
        for warning in outcome.warnings:
            log.warning("%s", warning)
        self.tell(outcome.told)

    def _look_into_file(self) -> None:
        """Lines are for every database; those that name no table of one are without effect there."""
        settings, now = self._context.config.signals, self._context.clock.now()
        if self._file_checked is not None and now - self._file_checked < timedelta(seconds=settings.poll_interval_s):
            return
        self._file_checked = now
        path = Path(settings.file)
        if not path.is_file():
            return
        stamp = path.stat().st_mtime_ns
        whole, end, _ = path.read_bytes().rpartition(b"\n")
        lines = [line for line in whole.decode("utf-8", "replace").splitlines() if line.strip()]
        if not lines:
            return
        signals = [signal_of_line(line, f"{stamp}-{number}") for number, line in enumerate(lines, 1)]
        for database in self._context.source.databases():
            outcome = self._applied(database, signals)
            self.record(database, outcome.state)
            self._say(outcome)
        path.write_bytes(path.read_bytes()[len(whole) + len(end) :])


def signal_of_line(line: str, own_id: str) -> Signal:
    """A line of the file channel; what cannot be read becomes a signal of no known type, which is told and skipped.

    Args:
        line: JSON.
        own_id: taken if the line has none.
    """
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return Signal(own_id, line[:100], None)
    if not isinstance(entry, dict):
        return Signal(own_id, line[:100], None)
    data = entry.get("data")
    text = data if isinstance(data, str) or data is None else json.dumps(data)
    return Signal(str(entry.get("id") or own_id), str(entry.get("type", "")), text)
