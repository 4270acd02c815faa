"""What a run is refused is seen from outside at once, however short the lag is, and no longer than until it goes on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.errors import ConnectionLostError, FencedError, PreflightError
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location
from cdc_assets.ledger.hindrances import RecordedHindrances
from cdc_assets.overview import CaptureReport, inspect_server
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.simulation import SimulatedClock, SimulatedServer
from cdc_assets_tests.unit.streaming.tables import two_tables

DENIED = PreflightError("db:1433 denied access: SELECT on dbo_orders_CT. Next: `cdc-assets doctor` prints the GRANT")

START = datetime(2026, 1, 1, tzinfo=UTC)


def seen(server: SimulatedServer, config: CaptureConfig) -> CaptureReport:
    """What somebody sees from outside, whose own questions are answered."""

    @contextmanager
    def opened() -> Iterator[SimulatedServer]:
        yield server

    return inspect_server(config, opened, now=server.now).report  # type: ignore[arg-type]


@pytest.fixture
def captured(tmp_path: Path) -> tuple[SimulatedServer, CaptureConfig, TableId]:
    """A capture that is healthy, with a change that waits."""
    server, config, _, orders = two_tables(tmp_path)
    make_capture(server, config).stream()
    assert seen(server, config).healthy
    server.commit((orders, "insert", 50, "a"))
    return server, config, orders


def refuse_rows(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Which tables have changes is not told; all other questions are answered."""

    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr(SimulatedServer, "active_instances", refused)


def test_read_that_was_refused_is_a_trouble_at_once(
    captured: tuple[SimulatedServer, CaptureConfig, TableId], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, _ = captured
    with monkeypatch.context() as patched:
        refuse_rows(patched, DENIED)
        for _ in range(2):
            with pytest.raises(PreflightError):
                make_capture(server, config).stream()
            report = seen(server, config)
            assert report.health == "in trouble"
            assert "The last run: it has been unable to continue since" in report.headline
            assert "dbo_orders_CT" in str(report.troubles)
            assert report.next_steps == ["`cdc-assets doctor` prints the GRANT"]
    make_capture(server, config).stream()
    assert seen(server, config).healthy


def test_read_that_is_tried_again_is_not_known_while_it_lasts(
    captured: tuple[SimulatedServer, CaptureConfig, TableId], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, _ = captured
    found, answers, ask = list[CaptureReport](), 3 * [False], server.max_transaction_lsn
    wait = SimulatedClock.sleep

    def away(database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN) -> Lsn | None:
        if answers:
            answers.pop()
            raise ConnectionLostError("Cannot reach db:1433: refused. Next: check it")
        return ask(database, after, limit, known)

    def sleep(self: SimulatedClock, seconds: float) -> None:
        if len(answers) < 3 and len(found) < 3:
            now, answers[:] = list(answers), []
            found.append(seen(server, config))
            answers[:] = now
        wait(self, seconds)

    object.__setattr__(server, "max_transaction_lsn", away)
    monkeypatch.setattr(SimulatedClock, "sleep", sleep)
    make_capture(server, config).stream()
    assert {report.health for report in found[:2]} == {"not known"}
    assert "Cannot reach db:1433" in found[0].headline
    assert seen(server, config).healthy


def test_hindrance_that_a_killed_run_left_ends_when_the_next_one_goes_on(
    captured: tuple[SimulatedServer, CaptureConfig, TableId],
) -> None:
    server, config, _ = captured
    record = RecordedHindrances(make_capture(server, config).parts.lake.tables.location, config.events.topic_prefix)
    record.write("stream", {"Database A": ConnectionLostError("It is away.")}, server.now)
    assert seen(server, config).health == "not known"
    make_capture(server, config).stream()
    assert seen(server, config).healthy


def test_run_that_another_one_has_replaced_says_nothing(
    captured: tuple[SimulatedServer, CaptureConfig, TableId], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, config, _ = captured
    with monkeypatch.context() as patched:
        refuse_rows(patched, FencedError("Another run has taken over."))
        with pytest.raises(FencedError):
            make_capture(server, config).stream()
    assert not seen(server, config).troubles


@pytest.mark.long
def test_process_that_could_not_begin_says_nothing_for_long_over_a_run_that_goes_on(
    captured: tuple[SimulatedServer, CaptureConfig, TableId], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody starts a second one where the server cannot be reached; it claims nothing."""
    server, config, orders = captured
    away, wait = ConnectionLostError("Cannot reach db:1433 from here. Next: check it"), SimulatedClock.sleep
    said, slept = list[str](), 0

    def sleep(self: SimulatedClock, seconds: float) -> None:
        nonlocal slept
        slept += 1
        if slept == 1:
            with monkeypatch.context() as patched:
                patched.setattr(SimulatedServer, "databases", Mock(side_effect=away))
                second = make_capture(server, config)
                with pytest.raises(ConnectionLostError):
                    second.stream()
        if slept < 16:
            server.commit((orders, "insert", 100 + slept, "a"))
            said.append(seen(server, config).health)
        wait(self, max(seconds, 1.0))

    monkeypatch.setattr(SimulatedClock, "sleep", sleep)
    make_capture(server, config).stream()
    assert (said[0], said[-1]) == ("not known", "healthy")
    assert said.count("not known") <= 12


def test_run_that_another_one_has_replaced_withdraws_nothing(
    captured: tuple[SimulatedServer, CaptureConfig, TableId],
) -> None:
    """It was hindered, and then frozen; who has taken over is hindered by the same, and has said so."""
    server, config, _ = captured
    first, second = make_capture(server, config), make_capture(server, config)
    first.claim()
    first._hindered({"Database A": DENIED})
    second.claim()
    second._hindered({"Database A": DENIED})
    first._hindered({})
    assert "Database A" in seen(server, config).headline
    second._hindered({})
    assert not seen(server, config).troubles


def test_run_that_ends_puts_its_word_back(captured: tuple[SimulatedServer, CaptureConfig, TableId]) -> None:
    server, config, _ = captured
    capture = make_capture(server, config)
    capture.stream()
    record = RecordedHindrances(capture.parts.lake.tables.location, config.events.topic_prefix)
    record.write("stream", {"The last run": ConnectionLostError("It is away.")}, server.now)
    capture._hindered({})
    assert seen(server, config).health == "not known", "it is not read at each turn"
    capture._hindered({}, last_word=True)
    assert seen(server, config).healthy


def test_file_that_cannot_be_understood_says_nothing(
    captured: tuple[SimulatedServer, CaptureConfig, TableId],
) -> None:
    server, config, _ = captured
    location = make_capture(server, config).parts.lake.tables.location
    location.write(f"{config.events.topic_prefix}.__hindrances", "stream.json", b"\xff[")
    location.write(f"{config.events.topic_prefix}.__hindrances", "other.json", b'{"a": {"what": 1}}')
    assert not seen(server, config).findings


def test_run_that_was_frozen_before_its_first_word_takes_none_of_its_successor_back(tmp_path: Path) -> None:
    location, now = Location(str(tmp_path)), datetime(2026, 1, 1, tzinfo=UTC)
    log = tmp_path / "shop.__windows" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").touch()
    woken, successor = RecordedHindrances(location, "shop"), RecordedHindrances(location, "shop")
    woken.begin("stream")
    successor.begin("stream")
    successor.write("stream", {"SalesDb": DENIED}, now, 9, last_word=True)
    woken.write("stream", {}, now, 5)
    assert RecordedHindrances(location, "shop").read()["stream"].keys() == {"SalesDb"}


def test_claims_that_begin_anew_count(tmp_path: Path) -> None:
    """The manifest was removed, and the file is of before."""
    location, now = Location(str(tmp_path)), datetime(2026, 1, 1, tzinfo=UTC)
    log = tmp_path / "shop.__windows" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").touch()
    RecordedHindrances(location, "shop").write("stream", {"SalesDb": DENIED}, now, 9)
    anew = RecordedHindrances(location, "shop")
    anew.begin("stream")
    anew.write("stream", {}, now, 1)
    assert not RecordedHindrances(location, "shop").read()["stream"]


@pytest.fixture
def lake(tmp_path: Path) -> Location:
    log = tmp_path / "shop.__windows" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").touch()
    return Location(str(tmp_path))


def two_mirrors(
    lake: Location, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[RecordedHindrances], None]
) -> None:
    """A process records one more mirror; after it has read what is recorded, and before it writes, another one does something."""
    one, other = RecordedHindrances(lake, "shop"), RecordedHindrances(lake, "shop")
    one.update("mirrors", {"a": DENIED, "b": DENIED}, ["a", "b"], START, START)
    write, done = Folder.write, list[bool]()

    def late(self: Folder, name: str, content: bytes) -> None:
        if not done:
            done.append(True)
            meanwhile(other)
        write(self, name, content)

    monkeypatch.setattr(Folder, "write", late)
    one.update("mirrors", {"c": DENIED}, ["c"], START + timedelta(seconds=1), START + timedelta(seconds=2))
    assert done


def test_hindrance_that_another_process_withdraws_meanwhile_does_not_come_back(
    lake: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = START + timedelta(seconds=1)
    two_mirrors(lake, monkeypatch, lambda other: other.update("mirrors", {}, ["b"], now, now))
    record = RecordedHindrances(lake, "shop")
    assert record.read()["mirrors"].keys() == {"a", "c"}
    record.update("mirrors", {}, ["a", "c"], now, now + timedelta(minutes=1))
    assert not record.read()["mirrors"]
    [_] = (Path(lake.root) / "shop.__hindrances").iterdir()
    record.update("mirrors", {"b": DENIED}, ["b"], *2 * [now + timedelta(minutes=2)])
    assert record.read()["mirrors"].keys() == {"b"}, "it is hindered again"


def test_hindrance_that_another_process_adds_meanwhile_stays(lake: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    now = START + timedelta(seconds=1)
    two_mirrors(lake, monkeypatch, lambda other: other.update("mirrors", {"d": DENIED}, ["d"], now, now))
    assert RecordedHindrances(lake, "shop").read()["mirrors"].keys() == {"a", "b", "c", "d"}


def test_what_was_met_before_another_process_went_on_is_not_said_after_it(lake: Location) -> None:
    """A run takes minutes for many mirrors, and says at its end what it has met."""
    record = RecordedHindrances(lake, "shop")
    record.update("mirrors", {"a": DENIED}, ["a"], START, START)
    record.update("mirrors", {}, ["a"], *2 * [START + timedelta(minutes=2)])
    record.update("mirrors", {"a": DENIED}, ["a"], START + timedelta(minutes=1), START + timedelta(minutes=3))
    assert not record.read()["mirrors"]


def test_words_count_if_the_clock_was_set_back(lake: Location) -> None:
    record, back = RecordedHindrances(lake, "shop"), START - timedelta(days=3)
    for errors in ({"a": DENIED}, {}) * 2:
        for at in (START, back):
            record.update("mirrors", errors, ["a"], at, at)
            assert record.read()["mirrors"].keys() == errors.keys()


def test_hindrance_of_a_former_version_is_withdrawn(lake: Location) -> None:
    record = RecordedHindrances(lake, "shop")
    record.write("mirrors", {"a": DENIED, "b": DENIED}, START)
    record.update("mirrors", {}, ["a"], START, START)
    assert record.read()["mirrors"].keys() == {"b"}
