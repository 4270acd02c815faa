"""Rows that a snapshot has read later than the LSN of its READs: at each LSN that a mirror ever publishes it is the table of then."""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.capture import Capture
from cdc_assets.config.settings import MirrorSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import RecoveryFork
from cdc_assets.core.schema import Column, TableSchema
from cdc_assets.core.signal import Signal
from cdc_assets.errors import CdcError, DatabaseRestoredError, InvalidValueError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.lake.events import EventFile
from cdc_assets.lake.location import Location
from cdc_assets.ledger.readings import Reading
from cdc_assets.mirror import ranges
from cdc_assets.mirror.altered import followed, stops
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.mirror.steps import STEP_ROWS, Target, next_step
from cdc_assets.signals.inbox import Inbox
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.simulation import law
from cdc_assets_tests.simulation.server import LaggingServer
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE, SimulatedBulk, SimulatedClock

TOPIC = f"shop.{DATABASE}.dbo.t"


def lsn(number: int) -> str:
    return str(Lsn.from_int(number))


class Bulk(SimulatedBulk):
    """The server that answers is the one that was asked how far it is."""

    def reaching(self, database: str, lsn: Lsn, *, captured: bool = True, left: Sequence[str] = ()) -> "Bulk":
        return self


class Server(LaggingServer):
    """A server whose capture job lags."""

    @property
    def bulk(self) -> Bulk:
        return Bulk(self)


@dataclass
class World:
    """A table that is written to while it is read, by a server whose capture job reads the log when it is told to."""

    lake: Path
    server: Server = field(default_factory=Server)
    published: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        found = make_config(str(self.lake), max_iteration_transactions=1, slices=2)
        self.config = replace(found, mirror=MirrorSettings(enabled=True, settle_s=2.0))
        self.table = self.server.create("t", rows=6)
        self.server.scan_all()

    def run(self, what: Callable[[Capture], object] = Capture.stream, *, scans: bool = True) -> None:
        """A run; the capture job works meanwhile, or does not."""
        self.server.is_prompt = scans
        what(make_capture(self.server, self.config))

    def mirror(self, *, anew: bool = False) -> MirrorState:
        state = self.follow(anew=anew)
        self.check(state)
        return state

    def follow(self, *, anew: bool = False) -> MirrorState:
        mirrors = CaptureMirrors(self.config, LocalRunner(1), SimulatedClock(self.server))
        assert not mirrors.catch_up(anew=anew)
        state = mirrors.states().get(TOPIC, MirrorState())
        self.published |= {state.lsn} if state.lsn else set()
        return state

    def versions(self) -> law.Versions:
        """What the mirror holds."""
        return law.versions_of(self.lake, TOPIC, law.Files())

    def rebuild(self) -> CdcError | None:
        """Have the mirror made anew; why it is not."""
        mirrors = CaptureMirrors(self.config, LocalRunner(1), SimulatedClock(self.server))
        return mirrors.catch_up(anew=True).get(TOPIC)

    def check(self, state: MirrorState) -> None:
        """The law, and that no version begins or ends where the mirror knows nothing."""
        if state.step:
            self.check_published(state)
            bounds = {bound for *_, start, end in self.versions() for bound in (start, end)}
            assert not [bound for bound in bounds for low, high in state.spans if low <= bound < high]

    def check_published(self, state: MirrorState) -> None:
        """At all LSNs that it has ever published it is right."""
        told = sorted(lsn for lsn in self.published if lsn >= state.begin)
        law.check_mirror(self.server, self.versions(), self.table, told, TOPIC)

    def position(self) -> str:
        """Where the topic is: behind everything that was committed, if the capture job is."""
        position = state_of(self.config).tables[self.table].position
        newest = max(change.lsn for change in self.server.history)
        assert position is not None
        assert position >= newest
        return str(position)

    def readings(self) -> tuple[Reading, ...]:
        return state_of(self.config).readings.get(self.table, ())

    def reader(self) -> MirrorReader:
        mirrors = CaptureMirrors(self.config, LocalRunner(1), SimulatedClock(self.server))
        return MirrorReader.of(mirrors.tables, TOPIC, mirrors.states()[TOPIC])

    def writing(self) -> Iterator[None]:
        """One transaction after the other, each about a row that was read before and one that will be."""
        for number in itertools.count():
            low, high, new = 1 + number % 3, 4 + number % 3, 100 + number
            self.server.commit(
                (self.table, "update", low, f"low {number}"), (self.table, "update", high, f"high {number}")
            )
            self.server.commit((self.table, "insert", new, "new"), (self.table, "update", new, "newer"))
            if number:
                self.server.commit((self.table, "delete", new - 1, ""))
            yield


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def with_writers(world: World) -> None:
    """Transactions before each read, which the capture job does not read yet."""
    writing = world.writing()
    world.server.before_read = lambda statement: next(writing) if "cdc-assets: rows" in statement else None


def ask_for_blocking(world: World) -> Callable[[Capture], object]:
    data = json.dumps({"type": "blocking", "data-collections": [str(world.table)]})
    Inbox(Location.of(world.config.lake), "shop").put(Signal("s1", "execute-snapshot", data))
    return Capture.stream


WAYS: dict[str, Callable[[World], Callable[[Capture], object]]] = {
    "first": lambda _: Capture.snapshot,
    "whole": lambda world: lambda capture: capture.snapshot([world.table]),
    "range": lambda world: lambda capture: capture.snapshot([world.table], [0]),
    "blocking": ask_for_blocking,
}


def begun(world: World, way: str) -> None:
    """The table is followed, unless its first snapshot is meant; the mirror has published how far the capture job is."""
    world.server.commit((world.table, "update", 1, "before"))
    if way != "first":
        world.server.scan_all()
        world.run(Capture.snapshot)
        world.run()
        assert world.mirror().lsn == world.position()


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_no_lsn_is_published_between_watermark_and_the_last_row(world: World, way: str) -> None:
    """Whatever the capture job has read of the log, transaction after transaction."""
    begun(world, way)
    known = world.mirror().lsn
    with_writers(world)
    world.run(WAYS[way](world), scans=False)
    world.server.before_read = lambda _: None
    (reading,) = world.readings()
    assert reading.high is None, "nobody knows how far it is"
    assert world.mirror().lsn == known
    if known and way != "range":  # which no mirror begins with
        assert "cannot be rebuilt now" in str(world.rebuild())
        assert world.mirror().lsn == known
    last = world.server.log[DATABASE][-1].lsn
    world.server.commit((world.table, "delete", 1, ""))
    while world.server.log[DATABASE]:
        world.server.scan(DATABASE, 1)
        world.run(scans=False)
        state = world.mirror()
        assert state.lsn == known or Lsn.parse(state.lsn) >= last
    world.server.now += timedelta(minutes=1)
    world.server.commit((world.table, "update", 2, "later"))
    world.run()
    (reading,) = world.readings()
    assert reading.high is not None
    assert reading.high >= last
    state = world.mirror()
    assert state.lsn == world.position()
    assert state.spans == ((str(reading.low), str(reading.high)),)
    assert world.mirror(anew=True).lsn == state.lsn


@pytest.mark.long
def test_what_was_written_meanwhile_may_be_folded_in_several_ranges(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that holds one event at a time ends ranges inside of the span, too."""
    monkeypatch.setattr(ranges, "EVENT_BYTES", 1000)
    begun(world, "whole")
    with_writers(world)
    for _ in range(3):
        world.run(WAYS["whole"](world), scans=False)
    world.server.before_read = lambda _: None
    world.run()
    assert world.mirror().lsn == world.position()


def test_moments_of_a_new_history_tell_nothing_of_rows_that_were_read_before_a_restore(world: World) -> None:
    begun(world, "whole")
    with_writers(world)
    world.run(WAYS["whole"](world), scans=False)
    world.server.before_read = lambda _: None
    world.server.fork = RecoveryFork("B", world.server.scanned[DATABASE][0])
    del world.server.scanned[DATABASE][1:], world.server.log[DATABASE]  # the newest transaction is an old one now
    with suppress(DatabaseRestoredError):
        world.run()
    world.server.scan_all()
    world.run(WAYS["whole"](world))
    world.check_published(world.follow())


def test_an_idle_database_publishes_too(world: World) -> None:
    """Nobody else commits; the capture job polls and finds nothing."""
    with_writers(world)
    world.run(Capture.snapshot, scans=False)
    world.server.before_read = lambda _: None
    assert not world.mirror().lsn
    world.run()
    assert world.mirror().lsn == world.position()


def test_what_nobody_writes_to_is_there_at_once(world: World) -> None:
    """The run that has read it waits until that is known."""
    world.run(Capture.snapshot)
    assert not world.readings()
    state = world.mirror()
    assert (state.lsn, state.begin, state.spans) == (
        str(state_of(world.config).tables[world.table].snapshot_lsn),
    ) * 2 + ((),)


def test_a_job_that_does_not_run_holds_no_run_up_for_long(world: World) -> None:
    world.server.commit((world.table, "update", 1, "not captured"))
    before = world.server.now
    world.run(Capture.snapshot, scans=False)
    world.run(scans=False)
    assert world.server.now - before < timedelta(seconds=30)
    assert [reading.high for reading in world.readings()] == [None]


@pytest.mark.long
def test_where_scans_cannot_be_seen_only_a_later_entry_of_the_job_tells_where_a_reading_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a secondary, or without VIEW DATABASE STATE; the job lags by minutes."""

    def hidden(server: LaggingServer, database: str) -> None:
        LaggingServer.empty_scans(server, database)

    monkeypatch.setattr(Server, "empty_scans", hidden)
    with_writers(world)
    world.run(Capture.snapshot, scans=False)
    world.server.before_read = lambda _: None
    before = world.server.now
    world.run(scans=False)
    assert world.server.now - before > timedelta(minutes=5)
    assert [reading.high for reading in world.readings()] == [None]
    assert not world.mirror().lsn
    world.run()
    assert world.mirror().lsn == world.position()


@pytest.mark.long
def test_a_captured_transaction_from_before_the_last_row_tells_nothing(world: World) -> None:
    """The job lags: what it captures after the rows were read may have been committed before."""
    begun(world, "whole")
    for number in range(3):
        world.server.commit((world.table, "update", 2, f"backlog {number}"))
    with_writers(world)
    world.run(WAYS["whole"](world), scans=False)
    world.server.before_read = lambda _: None
    for _ in range(3):
        world.server.scan(DATABASE, 1)
        world.run(scans=False)
        assert world.readings()[0].high is None
        world.mirror()


@pytest.mark.long
def test_a_reading_under_the_same_watermark_is_open_again(world: World) -> None:
    """A moment from before it does not count, though it has the LSN of one that was read before that moment."""
    begun(world, "range")
    world.run(WAYS["range"](world), scans=False)
    capture = make_capture(world.server, world.config)
    capture.claim()
    readings = capture._activities.readings
    readings.find_end(DATABASE)
    with_writers(world)
    capture.snapshot([world.table], [1])
    world.server.before_read = lambda _: None
    (reading,) = world.readings()
    assert reading.high is None
    world.server.scan_all()
    world.server.scan_all()
    world.server.scan_all()
    readings.find_end(DATABASE)
    (reading,) = world.readings()
    assert reading.high is None or reading.high >= world.server.scanned[DATABASE][-1]
    world.run()
    world.mirror()


@pytest.mark.parametrize("way", ["first", *(pytest.param(way, marks=pytest.mark.long) for way in ("whole", "range"))])
@pytest.mark.parametrize(
    "step",
    ["round-planned", "round-written", "table-committed", "round-complete", "snapshot-complete", "readings-closed"],
)
def test_no_reading_is_forgotten_by_a_run_that_dies(world: World, step: str, way: str) -> None:
    begun(world, way)
    with_writers(world)
    world.server.is_prompt = True
    with cut_at(step), pytest.raises(PowerCutError):
        world.run(WAYS[way](world))
    world.mirror()
    world.run(WAYS[way](world), scans=False)
    world.mirror()
    while world.server.log[DATABASE]:
        world.server.scan(DATABASE, 1)
        world.run(scans=False)
        world.mirror()
    world.server.before_read = lambda _: None
    world.run()
    assert world.mirror().lsn == world.position()


def test_a_snapshot_that_is_given_up_has_read_what_it_has_committed(world: World) -> None:
    """Its table is left out of the capture before it ends, and comes back."""
    begun(world, "whole")
    with_writers(world)
    with cut_at("table-committed"), pytest.raises(PowerCutError):
        world.run(WAYS["whole"](world), scans=False)
    world.server.before_read = lambda _: None
    (reading,) = world.readings()
    assert reading.high is None
    other = world.server.create("other", rows=1)
    filters = replace(world.config.filters, table_exclude=(r"dbo\.t",))
    make_capture(world.server, replace(world.config, filters=filters)).snapshot()
    assert other in state_of(world.config).tables
    world.run()
    assert world.mirror().lsn == world.position()


def test_readers_are_told_from_where_to_where(world: World) -> None:
    begun(world, "whole")
    begin = world.reader()._begin
    with_writers(world)
    world.run(WAYS["whole"](world), scans=False)
    world.server.before_read = lambda _: None
    world.run()
    ((low, high),) = world.mirror().spans
    reader = world.reader()
    with pytest.raises(InvalidValueError, match=f"from {begin} on"):
        reader.as_of(Lsn.from_int(int(Lsn.parse(begin)) - 1))
    for lsn in (low, str(Lsn.from_int(int(Lsn.parse(high)) - 1))):
        with pytest.raises(InvalidValueError, match=f"or from {high} on"):
            reader.as_of(Lsn.parse(lsn))
    for lsn in (str(Lsn.from_int(int(Lsn.parse(low)) - 1)), high):
        rows = Counter((row["id"], row["note"]) for row in reader.as_of(Lsn.parse(lsn)).to_pylist())
        assert rows == world.server.rows_at(TableId(DATABASE, "dbo", "t"), Lsn.parse(lsn))


def test_a_row_that_was_read_before_a_loss_and_went_in_it_is_gone(world: World) -> None:
    world.server.commit((world.table, "update", 1, "before"))
    world.run(lambda capture: (capture.snapshot(), capture.stream()))
    world.mirror()
    world.server.commit((world.table, "insert", 50, "read"))
    world.run(lambda capture: capture.snapshot([world.table]), scans=False)
    world.server.commit((world.table, "delete", 50, ""), (world.table, "delete", 2, ""))
    world.server.scan_all()
    world.server.clean_up(world.server.ends[DATABASE])
    world.server.commit((world.table, "update", 3, "behind"))
    world.run(lambda capture: (capture.snapshot([world.table]), capture.stream()))
    assert state_of(world.config).tables[world.table].gaps
    state = world.mirror()
    assert state.lsn >= world.position()
    assert {key for key, *_, end in world.versions() if end == "~"} == {1, 3, 4, 5, 6}


def test_a_row_that_went_in_a_loss_is_gone_though_the_mirror_has_it_from_a_span_that_ends_behind_it(
    world: World,
) -> None:
    world.config = replace(world.config, streaming=replace(world.config.streaming, gap_policy="ignore"))
    world.run(lambda capture: (capture.snapshot(), capture.stream()))
    world.mirror()
    world.server.commit((world.table, "insert", 50, "read"))
    world.server.commit((world.table, "delete", 50, ""), (world.table, "delete", 2, ""))
    world.run(lambda capture: capture.snapshot([world.table]), scans=False)
    world.server.scan(DATABASE, 1)
    world.run(scans=False)
    world.server.scan_all()
    world.server.clean_up(world.server.ends[DATABASE])
    world.server.commit((world.table, "update", 3, "behind"))
    world.run()
    mirrors = CaptureMirrors(world.config, LocalRunner(1), SimulatedClock(world.server))
    assert not mirrors.catch_up()
    assert {key for key, *_, end in world.versions() if end == "~"} >= {2, 50}
    world.run(lambda capture: (capture.snapshot([world.table]), capture.stream()))
    assert not mirrors.catch_up()
    assert {key for key, *_, end in world.versions() if end == "~"} == {1, 3, 4, 5, 6}


@pytest.mark.parametrize("start", [50, 60], ids=["a new table", "lost changes"])
def test_spans_before_a_loss_count_until_a_mirror_has_passed_it(start: int) -> None:
    """A mirror at 10; a snapshot read from 20 to 40; changes were lost, and the table was read again at 70."""

    def file(least: int, greatest: int, rows: int, window: int) -> EventFile:
        return EventFile(0, f"w{window:010d}-x.parquet", rows, lsn(least) + "-p", lsn(greatest) + "-p")

    files = [file(20, 20, STEP_ROWS, 4), file(25, 30, STEP_ROWS, 5), file(35, 45, 10, 6), file(70, 70, 100, 9)]
    target = Target(lsn(80), lsn(70), 20, starts=(lsn(start),), read_later=((lsn(20), lsn(40)),))
    known, steps = MirrorState(step=1, lsn=lsn(10), window=3, key="k"), list[tuple[int, int, bool]]()
    while (step := next_step("t", known, target, files, "k")) is not None:
        steps.append((int(Lsn.parse(step.after)), int(Lsn.parse(step.until)), bool(step.spans)))
        known = known.behind(step)
    assert not any(20 <= until < 40 for _, until, _ in steps)
    assert [spans for after, until, spans in steps if after < 40 <= until] == [True]
    assert known.lsn == lsn(80)


def test_a_mirror_before_a_span_goes_over_a_loss_to_a_reading_that_is_behind_another_structure() -> None:
    """A mirror at 19; a snapshot read from 20 to 40; changes up to 30 were lost; a column came back with another type at 30, and the
    table was read again at 70."""

    def entry(number: int, kind: str) -> HistoryEntry:
        columns = Column("id", "int", 1), Column("note", kind, number, length=50)
        schema = TableSchema(TableId(DATABASE, "dbo", "t"), 1, columns, ("id",))
        return HistoryEntry(
            "ALTER", schema, ("id", "note"), "i", Lsn.from_int(number), datetime(2026, 1, 1, tzinfo=UTC)
        )

    entries = [entry(2, "nvarchar"), entry(30, "int")]
    found = Target(
        lsn(80), lsn(70), 20, starts=(lsn(30),), gaps=((lsn(25), lsn(30)),), read_later=((lsn(20), lsn(40)),)
    )
    known = MirrorState(step=1, lsn=lsn(19), window=3, key="k")
    structures, target, halt = followed("t", entries, stops(entries, (), ()), found, known)
    assert (len(structures), halt) == (2, None)
    step = next_step("t", known, target, [], "k")
    assert step is not None
    assert (step.void, step.until) == (True, lsn(70))


@pytest.mark.parametrize(("reads_all", "proof"), [(True, 41), (False, 30)])
def test_rows_from_a_span_over_a_loss_go_only_where_the_snapshot_reads_all_that_are_there(
    reads_all: bool, proof: int
) -> None:
    """A mirror at 50 has passed the loss up to 30, in a span from 20 to 40; a SELECT of the user's does not say which of its rows went."""

    target = Target(lsn(80), lsn(70), 20, starts=(lsn(30),), gaps=((lsn(25), lsn(30)),), reads_all=reads_all)
    known = MirrorState(step=1, lsn=lsn(50), window=3, key="k", spans=((lsn(20), lsn(40)),))
    step = next_step("t", known, target, [], "k")
    assert step is not None
    assert (step.void, step.proof or step.since) == (True, lsn(proof))


def test_a_mirror_that_is_late_publishes_nothing_between_the_end_of_a_table_and_its_next_life() -> None:
    """A mirror at 10; the table was dropped at 50, and the one that was made then read at 70."""

    files = [
        EventFile(0, f"w{window:010d}-x.parquet", 1, lsn(least) + "-p", lsn(greatest) + "-p")
        for window, least, greatest in ((4, 20, 30), (9, 70, 75))
    ]
    target = Target(lsn(80), lsn(70), 20, starts=(lsn(50),))
    known, reached = MirrorState(step=1, lsn=lsn(10), window=3, key="k"), list[int]()
    while (step := next_step("t", known, target, files, "k")) is not None:
        reached.append(int(Lsn.parse(step.until)))
        known = known.behind(step)
    assert reached == [49, 70, 80]
    assert known.spans == ((lsn(50), lsn(70)),)
