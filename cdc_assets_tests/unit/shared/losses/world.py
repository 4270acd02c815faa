"""A lake with two topics that lose something."""

from dataclasses import dataclass
from pathlib import Path

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.progress import StreamSummary
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer


@dataclass
class World:
    """Two tables that were read and changed, in two windows each."""

    server: SimulatedServer
    config: CaptureConfig
    lake: Path
    lines: TableId
    orders: TableId
    first: Lsn
    last: Lsn

    def topic(self, table: TableId) -> Path:
        return self.lake / f"shop.{table}"

    def insert(self, key: int) -> Lsn:
        return self.server.commit((self.lines, "insert", key, "a"), (self.orders, "insert", key, "a"))

    def stream(self) -> StreamSummary:
        return make_capture(self.server, self.config).stream()

    def state(self, table: TableId) -> TableState:
        return state_of(self.config).tables[table]

    def keys(self, table: TableId) -> set[int]:
        """Of the rows that the events lead to."""
        latest = {event.key: event for event in events_of(self.config, table)}
        return {key for key, event in latest.items() if event.after}

    def after(self, lost: str) -> Lsn:
        """Exclusive start of what is lost: nothing is left, or all up to the window before, or all but a file's events."""
        return {"all": ZERO_LSN, "last window": self.first, "last file": Lsn.from_int(int(self.last) - 1)}[lost]

    def check_promise(self) -> None:
        """After a snapshot all is as if nothing had happened: rows are the server's, no event is there twice."""
        make_capture(self.server, self.config).snapshot([self.orders])
        self.check_rows()
        assert self.state(self.orders).gaps, "what was lost is remembered"

    def check_rows(self) -> None:
        """Both tables go on, their rows are the server's, and no event is there twice."""
        self.insert(70 + len(self.server.rows[self.orders]))
        assert self.stream().troubled == ()
        assert self.stream().troubled == ()
        for table in (self.lines, self.orders):
            assert self.keys(table) == set(self.server.rows[table])
            positions = [event.position for event in events_of(self.config, table)]
            assert len(positions) == len(set(positions))


def make_world(path: Path, **changes: object) -> World:
    server = SimulatedServer()
    lines, orders = server.create("lines", rows=3), server.create("orders", rows=3)
    server.idle_tick()
    config = make_config(str(path), slices=1, **changes)
    make_capture(server, config).snapshot()
    found = World(server, config, path, lines, orders, ZERO_LSN, ZERO_LSN)
    found.first = found.insert(50)
    found.stream()
    found.last = found.insert(51)
    found.stream()
    return found
