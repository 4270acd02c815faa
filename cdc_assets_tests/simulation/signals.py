"""Signals, and the law of incremental snapshots.

- An incremental READ is the server's row at the READ's LSN: it is neither older than what is committed before it nor newer.
- A table whose scan was reported as succeeded has, for each row that did not change since the signal, a READ behind the signal.
- When faults have stopped, no signal is waiting, and a table that is asked for is read.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN
from cdc_assets.errors import ConfigurationError, LakeFullError
from cdc_assets.signals.requests import ask, compose
from cdc_assets_tests.simulation.checks import Checks
from cdc_assets_tests.simulation.server import pair
from cdc_assets_tests.simulation.shared import NOTES, Request
from cdc_assets_tests.unit.streaming.law import state_of

_OTHERS: Final = ("stop-snapshot", "pause-snapshot", "resume-snapshot", "log")


class Signals(Checks):
    """Sends signals, and holds what came of them against the law."""

    def ask_for_rows(self) -> None:
        """Somebody asks for an incremental snapshot, or for a blocking one."""
        if self.rng.random() < 0.25:
            self.ask_for_blocking()
        else:
            self.ask_for_chunks()

    def ask_for_chunks(self) -> None:
        """Somebody asks for an incremental snapshot."""
        self.wanted_last = self._some()
        self._ask(self.wanted_last, self._place(), self.rng.choice([0, 0, 3]))

    def ask_for_blocking(self) -> None:
        """Somebody asks for a snapshot during which nothing else is read of its database."""
        self.wanted_last = self._some()
        self._send("execute-snapshot", list(map(str, self.wanted_last)), self._place(), snapshot="blocking")

    def _some(self) -> list[TableId]:
        return self.rng.sample(self.tables, self.rng.randrange(1, len(self.tables) + 1))

    def ask_at_last(self) -> None:
        """All tables of a database are asked for, and read whatever was before."""
        signals = self.rng.choice(self.signal_tables)
        tables = [table for table in self.tables if table.database == signals.database]
        self.last = self._ask(tables, self.rng.choice([None, signals]), 0), tables

    def _ask(self, tables: Sequence[TableId], place: TableId | None, above: int) -> str:
        """Ask for an incremental snapshot; returns the signal's id."""
        names, known = list(map(str, tables)), state_of(self.config).tables
        at = {name: self.server.tick(name) for name in self.config.connection.databases}
        more: dict[str, object] = {"conditions": {names[0]: f"id > {above}"}} if above else {}
        if self.server.keyless.intersection(tables):
            more["surrogate"] = "id"
        own_id = self._send("execute-snapshot", names, place, **more)
        positions = {table: known[table].position or ZERO_LSN for table in tables if table in known}
        self.asked[own_id] = Request(at, positions, {tables[0]: above})
        return own_id

    def signal(self) -> None:
        """Somebody stops, pauses or resumes it, or wants a line in the log."""
        kind = self.rng.choice(_OTHERS)
        some = kind == "stop-snapshot" and self.rng.random() < 0.5
        self._send(kind, [str(self.rng.choice(self.tables))] if some else [], self._place())

    def resume(self) -> None:
        """Whatever is paused goes on."""
        self._send("resume-snapshot", [], None)

    def _place(self) -> TableId | None:
        """The signal table into which a signal is written; None for the lake."""
        return self.rng.choice([None, self.rng.choice(self.signal_tables)])

    def _send(self, kind: str, tables: list[str], place: TableId | None, **more: object) -> str:
        """Send a signal; returns its id."""
        self._signals += 1
        own_id = f"s{self._signals}"
        composed = compose(own_id, kind, tables, message="hello" if kind == "log" else "", **more)  # type: ignore[arg-type]
        self.say(f"signal {own_id}: {kind} {', '.join(tables)} {more} by {place or 'the lake'}")
        try:
            if place is None:
                ask(self.config, composed)
            else:
                self.server.write_signal(place, (own_id, composed.signal.type, composed.signal.data))
        except (
            ConfigurationError,
            LakeFullError,
        ) as refused:  # none of the tables is captured yet, or there is no room
            self.say(f"  {refused}")
        return own_id

    def check_signals(self) -> None:
        """What was asked for was done."""
        for database, signals in state_of(self.config).signals.items():
            assert not signals.queue, f"{database}: {signals.queue} is waiting"
            assert signals.reads is None, f"{database}: rows of {signals.reads} are not committed"
        folder = self.lake / "shop.__signals"
        waiting = [found.name for found in folder.glob("*.json")] if folder.is_dir() else []
        assert not waiting, f"signals were not read: {waiting}"
        scans = self._scans()
        self.say(f"{len(scans)} tables were read by incremental snapshots: {Counter(scans.values())}")
        own_id, tables = self.last
        unread = [table for table in tables if scans.get((own_id, table)) not in ("SUCCEEDED", "EMPTY")]
        assert not unread, f"{own_id} asked for {unread}, which were not read"
        for (own_id, table), status in scans.items():
            if status == "SUCCEEDED" and table not in self.touched and own_id in self.asked:
                self._check_scan(own_id, table)

    def _scans(self) -> dict[tuple[str, TableId], str]:
        """How the scan of each table ended, by the signal's id and the table."""
        found = {}
        for row in self.files.of(self.lake / NOTES):
            data = dict(row["value"]["additional_data"] or ())
            if row["value"]["type"] == "TABLE_SCAN_COMPLETED" and data["scanned_collection"].count(".") == 2:
                found[row["value"]["id"], TableId(*data["scanned_collection"].split("."))] = data["status"]
        return found

    def _check_scan(self, own_id: str, table: TableId) -> None:
        asked = self.asked[own_id]
        since = asked.positions.get(table, ZERO_LSN)  # a row that changed behind it may have that event alone
        later = [change for change in self.server.history if change.table == table and change.lsn > since]
        # of rows that are alike some may stay
        gone = Counter(pair(change.row) for change in later if change.operation in (1, 3))
        read = {row for lsn, row in self.reads.get(table, ()) if lsn > asked.at[table.database]}
        stay = self.server.rows_at(table, since) - gone
        wanted = {row for row in stay if row[0] > asked.above.get(table, 0)}
        lacking = wanted - read
        assert not lacking, f"{own_id} is reported to have read {table}, which lacks {sorted(lacking, key=str)[:5]}"
