"""The place of a moment by the commit times in the log, whatever the server's clock does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import Captured
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.errors import ServerBusyError
from cdc_assets.snapshot.moment import Timed, Waiting
from cdc_assets_tests.unit.streaming.simulation import START, SimulatedClock, SimulatedServer

TABLE = TableId("SalesDb", "dbo", "a")
KNOWN, EARLIER, LATER, END = (Lsn.from_int(number) for number in (10, 20, 30, 40))


@dataclass
class Source:
    """A server whose job has captured `KNOWN`, and finds nothing more after all commits, as far as a moment asks it."""

    clock: SimulatedClock
    commits: dict[Lsn, datetime] = field(default_factory=dict)
    """Time of each commit of the table, without the offset of a time zone."""
    ahead: timedelta = timedelta()
    offset: timezone = timezone(timedelta(hours=1))
    looks: int = 0

    def server_time(self) -> datetime:
        return (START + self.clock.elapsed() + self.ahead).astimezone(self.offset)

    def commit(self, lsn: Lsn) -> None:
        self.commits[lsn] = self.server_time().replace(tzinfo=None)

    def empty_scans(self, database: str) -> tuple[int, int]:
        self.looks += 2
        return 1, self.looks

    def max_captured_lsn(self, database: str) -> Lsn:
        return END if self.looks > 4 else KNOWN

    def captured_by(self, database: str) -> Captured:
        return Captured(self.max_captured_lsn(database))

    def rows_per_commit(
        self, database: str, bounds: Mapping[str, Lsn], until: Lsn
    ) -> Mapping[str, Sequence[tuple[Lsn, int]]]:
        return {name: [(lsn, 1) for lsn in self.commits if after < lsn <= until] for name, after in bounds.items()}

    def commit_times(self, database: str, lsns: Sequence[Lsn], known: Lsn = ZERO_LSN) -> Mapping[Lsn, datetime]:
        return {lsn: self.commits[lsn].replace(tzinfo=self.offset) for lsn in lsns}


@dataclass
class Server:
    source: Source


def timed(start: Lsn = KNOWN) -> tuple[Timed, Source]:
    """A way that has begun a second after a commit, and its server."""
    clock = SimulatedClock(SimulatedServer())
    source = Source(clock)
    source.commit(EARLIER)
    clock.sleep(1)
    instance = CaptureInstance(TABLE, 1, "dbo_a", start, ("id",))
    way = Timed(Waiting(Server(source), clock, "SalesDb", 60), clock, [instance])  # type: ignore[arg-type]  # as far as it is asked
    way.begin()
    way.fix()
    return way, source


def test_the_place_is_the_last_commit_before_the_lock() -> None:
    way, source = timed()
    source.clock.sleep(1)
    source.commit(LATER)
    assert way.place() == EARLIER


def test_the_place_is_not_before_the_start_of_the_instance() -> None:
    way, _ = timed(start=Lsn.from_int(25))
    assert way.place() == Lsn.from_int(24)


@pytest.mark.parametrize("seconds", [-2, -3600])
def test_a_clock_that_was_set_back_makes_no_later_commit_an_earlier_one(seconds: int) -> None:
    way, source = timed()
    source.ahead = timedelta(seconds=seconds)
    source.commit(LATER)
    source.clock.sleep(1)
    with pytest.raises(ServerBusyError, match="clock"):
        way.place()


def test_a_clock_that_was_put_forward_changes_nothing() -> None:
    way, source = timed()
    source.ahead = timedelta(hours=1)
    source.commit(LATER)
    assert way.place() == EARLIER


@pytest.mark.parametrize("hours", [0, 2])
def test_another_offset_makes_no_later_commit_an_earlier_one(hours: int) -> None:
    way, source = timed()
    source.commit(LATER)
    source.offset = timezone(timedelta(hours=hours))
    with pytest.raises(ServerBusyError, match="clock"):
        way.place()
