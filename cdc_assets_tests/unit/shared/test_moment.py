"""When everything that was committed before a moment has been read: not when the capture job has been reached."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.core.ports import Captured
from cdc_assets.shared.moment import Moment
from cdc_assets_tests.unit.streaming.simulation import START, SimulatedClock, SimulatedServer

EARLIER, LATER = Lsn.from_int(5), Lsn.from_int(9)


@dataclass
class Source:
    """A server with a capture job, as far as a moment asks it."""

    now: datetime = START
    scans: tuple[int, int] | None = (7, 3)
    captured: dict[Lsn, datetime] = field(default_factory=lambda: {EARLIER: START - timedelta(minutes=1)})
    trouble: str = ""
    cleaned: Lsn = ZERO_LSN
    asked: list[Lsn] = field(default_factory=list)
    """How far a server had to be to be asked."""
    answers: list[Captured] = field(default_factory=list)
    """What secondaries say first, over a connection that breaks."""

    def server_time(self) -> datetime:
        return self.now

    def empty_scans(self, database: str) -> tuple[int, int] | None:
        return self.scans

    def max_captured_lsn(self, database: str) -> Lsn:
        return max(self.captured)

    def captured_by(self, database: str) -> Captured:
        return self.answers.pop(0) if self.answers else Captured(self.max_captured_lsn(database))

    def max_transaction_lsn(self, database: str, after: Lsn | None, limit: int, known: Lsn) -> Lsn | None:
        self.asked.append(known)
        return max((lsn for lsn in self.captured if lsn >= self.cleaned), default=None)

    def low_water_marks(self, database: str) -> Mapping[str, Lsn]:
        return {"dbo_orders": max(self.cleaned, EARLIER), "dbo_lines": LATER.next()}

    def commit_times(self, database: str, lsns: Sequence[Lsn], known: Lsn = ZERO_LSN) -> Mapping[Lsn, datetime]:
        return {lsn: self.captured[lsn] for lsn in lsns}

    def capture_job(self, database: str) -> CaptureJob:
        return CaptureJob(database, True, 1, problem=self.trouble)


def begun(source: Source) -> tuple[Moment, SimulatedClock]:
    clock = SimulatedClock(SimulatedServer())
    return Moment(source, clock, "SalesDb", settle_s=10.0), clock  # type: ignore[arg-type]  # as far as it is asked


def test_the_end_of_what_is_captured_is_not_the_end_of_what_is_committed() -> None:
    moment, clock = begun(Source())
    clock.sleep(3600)
    assert not moment.is_passed(LATER), "the job lags, nobody knows how far"
    assert moment.target is None


def test_a_commit_that_was_captured_and_is_later_ends_it() -> None:
    source = Source()
    moment, _ = begun(source)
    source.now += timedelta(seconds=5)
    source.captured[LATER] = START + timedelta(milliseconds=500)
    assert not moment.is_passed(LATER), "commit times are rounded"
    source.captured[LATER] = START + timedelta(seconds=2)
    assert not moment.is_passed(EARLIER), "it is captured, not read"
    source.captured[Lsn.from_int(99)] = START + timedelta(seconds=4)
    assert moment.is_passed(LATER), "what is captured after that does not matter"
    assert source.asked == [LATER], "a replica that has not got it would know an earlier end"


def test_what_was_cleaned_up_before_anybody_has_read_it_is_not_read() -> None:
    source = Source()
    moment, _ = begun(source)
    source.captured[LATER], source.scans, source.cleaned = START, (7, 5), LATER.next()
    assert not moment.is_passed(EARLIER)
    assert moment.is_passed(source.cleaned)


def test_a_table_that_begins_behind_all_that_is_captured_is_read_at_once() -> None:
    """A snapshot puts it right before its start, and the job may not get there for minutes if nothing is committed."""
    source = Source(captured={Lsn.from_int(3): START}, cleaned=EARLIER)
    moment, _ = begun(source)
    source.scans = (7, 5)
    assert moment.is_passed(Lsn.from_int(4))


def test_a_commit_of_the_future_was_made_before_the_clock_was_set_back() -> None:
    source = Source(captured={EARLIER: START + timedelta(hours=1)})
    moment, _ = begun(source)
    source.now += timedelta(seconds=30)
    assert not moment.is_passed(EARLIER)


@pytest.mark.parametrize(
    ("scans", "passed"),
    [([(7, 4)], False), ([(7, 5)], True), ([(8, 1)], False), ([(8, 1), (8, 2)], True), ([(8, 1), (9, 1)], False)],
)
def test_a_job_that_has_looked_twice_and_found_nothing_has_found_all(
    scans: Sequence[tuple[int, int]], passed: bool
) -> None:
    source = Source()
    moment, _ = begun(source)
    for source.scans in scans:
        found = moment.is_passed(EARLIER)
    assert found is passed


def test_a_server_that_is_the_primary_again_shows_looks_of_the_time_before() -> None:
    source = Source()
    moment, _ = begun(source)
    found = []
    for source.scans in [(4, 900), (4, 900), (5, 1), (5, 2)]:
        found.append(moment.is_passed(EARLIER))
    assert found == [False, False, False, True]


def test_a_job_whose_looks_cannot_be_seen_is_given_a_while_if_it_is_well() -> None:
    source = Source(scans=None)
    moment, clock = begun(source)
    assert not moment.is_passed(EARLIER)
    clock.sleep(10)
    source.trouble = "it is stopped"
    assert not moment.is_passed(EARLIER)
    source.trouble = ""
    assert moment.is_passed(EARLIER)


@pytest.mark.parametrize("before", [None, (7, 3)])
def test_a_secondary_that_shows_no_looks_does_not_say_that_the_job_is_well(before: tuple[int, int] | None) -> None:
    source = Source(scans=before)
    moment, clock = begun(source)
    found = []
    for source.scans, seconds in [((7, 3), 10), (None, 10), ((7, 4), 10), (None, 10), ((7, 5), 0)]:
        found.append(moment.is_passed(EARLIER))
        clock.sleep(seconds)
    assert found == [False, False, False, False, True]


def test_what_a_secondary_has_is_not_all_that_the_job_of_the_primary_has_found() -> None:
    """The connection comes to a secondary between the question for empty looks and that for how far they have come."""
    source = Source(captured={EARLIER: START, LATER: START})
    source.answers = [Captured(EARLIER, is_of_replica=True)]
    moment, _ = begun(source)
    moment.seen, source.scans = EARLIER, (7, 5)
    assert not moment.is_passed(LATER)
    assert moment.is_passed(LATER)
    assert source.asked == [LATER]


def test_a_commit_that_was_of_the_future_stays_an_earlier_one_when_the_clock_has_passed_its_time() -> None:
    source = Source()
    moment, _ = begun(source)
    source.captured[LATER] = START + timedelta(minutes=1)
    assert not moment.is_behind(), "the clock was set back behind it"
    source.now += timedelta(minutes=2)
    assert not moment.is_behind()
    source.captured[Lsn.from_int(99)] = START + timedelta(minutes=1)
    assert moment.is_behind()
