"""Mirrors that cannot follow, that nobody keeps, or that were never made are troubles of their capture, and so is a late Kafka."""

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from deltalake import DeltaTable

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture import readings
from cdc_assets.capture.readings import OpenReadings
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.envelope.naming import topic_name
from cdc_assets.errors import CdcError, FencedError, LakeAwayError, MirrorError, QueryError
from cdc_assets.mirror.apply import Mirrors
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.ledger import MirrorLedger
from cdc_assets.overview import CaptureReport, inspect_server, report_builder
from cdc_assets.overview import mirrors as overview_of_mirrors
from cdc_assets.publish.view import PublishedReport
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import two_new_tables


class World:
    """A capture of two tables with mirrors, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.server, config, self.lines, self.orders = two_new_tables(folder)
        self.config: CaptureConfig = replace(config, mirror=replace(config.mirror, enabled=True))
        make_capture(self.server, self.config).stream()
        self.mirrors = CaptureMirrors(self.config, LocalRunner(1), SystemClock())

    def report(self, later: timedelta = timedelta(0)) -> CaptureReport:
        """What is seen after a while."""

        @contextmanager
        def opened() -> Iterator[SimulatedServer]:
            yield self.server

        return inspect_server(self.config, opened, now=datetime.now(UTC) + later).report  # type: ignore[arg-type]

    def change(self) -> None:
        """One more row, in the topic alone."""
        self.server.commit((self.orders, "insert", 50, "a"))
        make_capture(self.server, self.config).stream()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Nothing was mirrored yet."""
    return World(tmp_path)


LATE = timedelta(minutes=11)


def about_mirrors(report: CaptureReport) -> list[str]:
    """Troubles of mirrors."""
    return [str(trouble) for trouble in report.troubles if "mirror" in trouble.where.lower()]


def test_mirrors_that_were_never_made_are_a_trouble_after_a_while(world: World) -> None:
    assert about_mirrors(world.report()) == []
    (said,) = about_mirrors(world.report(LATE))
    assert "none was ever made" in said
    assert world.report(LATE).health == "in trouble"
    assert world.mirrors.catch_up() == {}
    assert about_mirrors(world.report(LATE)) == []


def test_mirrors_that_nobody_keeps_any_more_are_a_trouble(world: World) -> None:
    world.mirrors.catch_up()
    world.change()
    assert about_mirrors(world.report()) == []
    (said,) = about_mirrors(world.report(LATE))
    assert str(world.orders) in said
    assert "nothing has moved them" in said
    world.config = replace(world.config, mirror=replace(world.config.mirror, late_s=3600.0))
    assert about_mirrors(world.report(LATE)) == []
    world.config = replace(world.config, mirror=replace(world.config.mirror, enabled=False))
    assert about_mirrors(world.report(2 * 24 * LATE)) == []


@pytest.mark.long
def test_mirror_that_never_moves_is_a_trouble_though_others_do(world: World) -> None:
    """Its step kills the process each time, so nobody records why."""
    world.mirrors.catch_up()
    world.change()
    with pytest.raises(PowerCutError), cut_at("mirror-planned"):
        world.mirrors.catch_up(world.mirrors.named(["dbo.orders"]))
    world.config = replace(world.config, mirror=replace(world.config.mirror, late_s=2.0))
    until = time.monotonic() + 3.0
    while time.monotonic() < until:
        world.server.commit((world.lines, "insert", int(1e6 * time.monotonic()) % 2**31, "a"))
        make_capture(world.server, world.config).stream()
        world.mirrors.catch_up(world.mirrors.named(["dbo.lines"]))
    (said,) = about_mirrors(world.report())
    assert f"those of {world.orders} are behind" in said
    world.mirrors.catch_up()
    assert about_mirrors(world.report()) == []


def test_mirror_that_was_never_begun_is_a_trouble_though_others_move(world: World) -> None:
    """Somebody keeps some of them only, or what begins it kills the process each time."""
    some = world.mirrors.named(["dbo.lines"])
    with patch.object(SystemClock, "now", lambda _: datetime.now(UTC) + LATE):
        world.mirrors.catch_up(some)
    assert about_mirrors(world.report()) == []
    (said,) = about_mirrors(world.report(LATE))
    assert f"those of {world.orders} are behind their topics" in said
    world.mirrors.catch_up()
    assert about_mirrors(world.report(LATE)) == []


def test_change_after_quiet_hours_is_not_late_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "now", lambda _: world.server.now)
    world.mirrors.catch_up()
    world.server.now += 24 * LATE
    world.change()
    changed = world.server.now - datetime.now(UTC)
    assert about_mirrors(world.report(changed)) == []
    assert len(about_mirrors(world.report(changed + LATE))) == 1


def test_mirrors_that_were_moved_in_the_future_are_behind_for_an_unknown_time(world: World) -> None:
    world.mirrors.catch_up()
    assert world.report(-timedelta(hours=1)).health == "healthy", "none is behind"
    world.change()
    report = world.report(-timedelta(hours=1))
    assert report.health == "not known"
    assert "for how long is not known" in report.headline
    world.mirrors.catch_up()
    assert world.report(-timedelta(hours=1)).health == "healthy"


def test_settings_that_allow_no_mirrors_are_a_trouble_at_once(world: World) -> None:
    world.config = replace(world.config, events=replace(world.config.events, skipped_operations=frozenset("d")))
    (said,) = about_mirrors(world.report())
    assert said.startswith("The mirrors: the settings allow none: skipped.operations 'd'")
    assert "remove it, or set mirror.enabled to false." in world.report().next_steps


def test_mirror_that_cannot_follow_is_named_with_its_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.mirrors.catch_up()
    topic = next(topic for topic in world.mirrors.states() if topic.endswith("orders"))

    def refuse(*_: object, **__: object) -> Mapping[str, CdcError]:
        return {topic: MirrorError("A column is called __op. Next: leave its table out.")}

    with monkeypatch.context() as patched:
        patched.setattr(Mirrors, "catch_up", refuse)
        world.mirrors.catch_up()
    (said,) = about_mirrors(world.report())
    assert said.startswith(f"the mirror of {world.orders}: it cannot follow its topic")
    assert "leave its table out." in world.report().next_steps
    lines = world.mirrors.named(["dbo.lines"])
    world.mirrors.catch_up(lines)
    assert about_mirrors(world.report()) == [said], "that of another table says nothing of it"
    world.mirrors.catch_up()
    assert about_mirrors(world.report()) == []


def test_mirrors_that_wait_for_a_snapshot_are_no_trouble_while_it_reads(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it reads; once it has, somebody has to find out where its rows end in the log."""
    world.mirrors.catch_up()
    world.change()
    world.mirrors.catch_up(world.mirrors.named(["dbo.lines"]))
    with pytest.raises(PowerCutError), cut_at("round-complete"):
        make_capture(world.server, world.config).snapshot([world.orders])
    found = world.report(LATE)
    assert about_mirrors(found) == []
    assert (found.health, found.troubles) == ("not known", ()), "a round that lasts for so long may hang"
    assert "it is not known whether a run reads" in found.headline
    monkeypatch.setattr(OpenReadings, "find_end", lambda *_: None)
    make_capture(world.server, world.config).snapshot()
    world.mirrors.catch_up(world.mirrors.named(["dbo.lines"]))
    (said,) = about_mirrors(world.report(LATE))
    assert f"those of {world.orders} wait until it is known" in said
    monkeypatch.undo()
    make_capture(world.server, world.config).stream()
    world.mirrors.catch_up()
    assert about_mirrors(world.report(LATE)) == []


def test_mirror_that_nobody_moves_is_a_trouble_though_another_table_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lacks events that it can take before the rows of which it is not known where they end."""
    world.mirrors.catch_up()
    world.change()
    monkeypatch.setattr(OpenReadings, "find_end", lambda *_: None)
    make_capture(world.server, world.config).snapshot([world.orders])
    with pytest.raises(PowerCutError), cut_at("round-complete"):
        make_capture(world.server, world.config).snapshot([world.lines])
    assert about_mirrors(world.report()) == []
    (said,) = about_mirrors(world.report(LATE))
    assert f"those of {world.orders} are behind their topics" in said
    world.mirrors.catch_up()
    assert about_mirrors(world.report(LATE)) == [], "it has come as far as it can while a snapshot is in flight"


def test_mirror_is_not_late_as_soon_as_a_snapshot_of_another_table_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could find out where its rows end in the log while that was reading, however long it did."""
    monkeypatch.setattr(SystemClock, "now", lambda _: world.server.now)
    monkeypatch.setattr(OpenReadings, "find_end", lambda *_: None)
    world.server.now = datetime.now(UTC)
    world.mirrors.catch_up()
    make_capture(world.server, world.config).snapshot([world.orders])
    world.change()
    world.mirrors.catch_up()
    with pytest.raises(PowerCutError), cut_at("round-complete"):
        make_capture(world.server, world.config).snapshot([world.lines])
    world.server.now += 9 * LATE
    make_capture(world.server, world.config).snapshot()
    ended = world.server.now - datetime.now(UTC)
    assert about_mirrors(world.report(ended)) == []
    (said,) = about_mirrors(world.report(ended + LATE))
    assert f"those of {world.orders} wait until it is known" in said


@pytest.mark.parametrize("left_out", [False, True], ids=["another is read", "left out"])
def test_mirror_that_cannot_begin_before_it_is_known_where_its_rows_end_is_not_late(
    world: World, monkeypatch: pytest.MonkeyPatch, left_out: bool
) -> None:
    """Nobody finds that out now, so nobody could make it."""
    monkeypatch.setattr(OpenReadings, "find_end", lambda *_: None)
    make_capture(world.server, world.config).snapshot([world.orders])
    with pytest.raises(PowerCutError), cut_at("round-complete"):
        make_capture(world.server, world.config).snapshot([world.lines])
    if left_out:
        world.config = replace(world.config, filters=replace(world.config.filters, table_exclude=("dbo.orders",)))
        make_capture(world.server, world.config).snapshot()
        world.mirrors.catch_up([world.lines])
    assert [text for text in about_mirrors(world.report(LATE)) if str(world.orders) in text] == []


def test_mirror_that_waits_for_a_database_that_is_left_out_waits_for_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.mirrors.catch_up()
    monkeypatch.setattr(OpenReadings, "find_end", lambda *_: None)
    make_capture(world.server, world.config).snapshot([world.orders])
    world.change()
    world.mirrors.catch_up()
    assert len(about_mirrors(world.report(LATE))) == 1
    world.config = replace(world.config, filters=replace(world.config.filters, table_exclude=("dbo.orders",)))
    assert about_mirrors(world.report(LATE)) == []


@pytest.mark.long
def test_mirror_before_a_reading_without_an_end_is_a_trouble_though_others_move(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has come as far as it can, and its topic goes on; each question for the end of the reading fails."""
    monkeypatch.setattr(SystemClock, "now", lambda _: world.server.now)
    world.mirrors.catch_up()

    def refused(*_: object, **__: object) -> None:
        raise QueryError("VIEW DATABASE STATE was denied.")

    def follow(number: int) -> timedelta:
        world.server.commit((world.orders, "insert", number, "b"), (world.lines, "insert", number, "a"))
        make_capture(world.server, world.config).stream()
        world.mirrors.catch_up()
        return world.server.now - datetime.now(UTC)

    with monkeypatch.context() as patched:
        patched.setattr(readings, "Moment", refused)
        make_capture(world.server, world.config).snapshot([world.orders])
        world.server.now += 24 * LATE
        assert about_mirrors(world.report(follow(2000))) == [], "what has come only now is not late"
        with monkeypatch.context() as older:
            states = {topic: replace(state, moved=None) for topic, state in world.mirrors.states().items()}
            older.setattr(MirrorLedger, "read", lambda _: states)
            older.setattr(overview_of_mirrors, "_made", lambda *_: world.server.now - 24 * LATE)
            older.setattr(overview_of_mirrors, "_came", lambda *_: None)
            older.setattr(overview_of_mirrors, "_times_read", lambda _: {})
            old = world.report(world.server.now - datetime.now(UTC) + LATE / 2)
            assert about_mirrors(old) == [], "an older record says less, and the manifest was folded"
        for turn in range(3):
            world.server.now += LATE / 2
            now = follow(2001 + turn)
        (said,) = about_mirrors(world.report(now))
        assert world.report(now).health == "in trouble"
        assert f"those of {world.orders} wait until it is known" in said
        assert world.mirrors.behind() == [], "no run of mirrors can do anything"
        with monkeypatch.context() as older:
            read = MirrorLedger.read
            topic = topic_name(world.orders, world.config.events)
            older.setattr(
                MirrorLedger,
                "read",
                lambda ledger: {
                    name: replace(state, moved=None) if name == topic else state for name, state in read(ledger).items()
                },
            )
            assert world.report(now).health == "in trouble", "an older record; another mirror has moved"
    follow(2010)
    assert about_mirrors(world.report(follow(2011) + LATE)) == []


@pytest.mark.parametrize(("error", "told"), [(LakeAwayError("No answer."), 1), (FencedError("Another one."), 0)])
def test_what_stops_all_mirrors_is_told_until_they_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch, error: CdcError, told: int
) -> None:
    def fail(*_: object, **__: object) -> Mapping[str, CdcError]:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Mirrors, "catch_up", fail)
        with pytest.raises(type(error)):
            world.mirrors.catch_up()
    assert len(about_mirrors(world.report())) == told
    world.mirrors.catch_up()
    assert about_mirrors(world.report()) == []


def test_kafka_that_is_late_is_a_trouble_after_its_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for behind_s, health in [(30.0, "healthy"), (120.0, "working"), (601.0, "in trouble"), (None, "not known")]:
        found = PublishedReport(waiting=2, behind_s=behind_s)
        monkeypatch.setattr(report_builder, "published_of", lambda *_, found=found: found)
        assert world.report().health == health


def without_a_file(folder: Path) -> None:
    """As if somebody had removed it."""
    Path(DeltaTable(str(folder)).file_uris()[0].removeprefix("file://")).unlink()


@pytest.mark.combinations
@pytest.mark.parametrize("role", ["current", "history"])
@pytest.mark.parametrize("what", ["file", "folder", "older copy"])
def test_mirror_whose_tables_lack_data_is_a_trouble_at_once_and_made_again(
    world: World, tmp_path: Path, what: str, role: str
) -> None:
    """Nothing changes, so no step would come to it."""
    world.change()
    world.mirrors.catch_up()
    place = Path(world.config.lake.path) / f"shop.{world.orders}.__{role}"
    shutil.copytree(place, tmp_path / "older")
    world.server.commit((world.orders, "update", 50, "b"))
    make_capture(world.server, world.config).stream()
    world.mirrors.catch_up()
    rows, told = DeltaTable(str(place)).to_pyarrow_table().num_rows, world.report(LATE)
    assert (told.health, world.mirrors.behind()) == ("healthy", [])
    if what == "file":
        without_a_file(place)
    else:
        shutil.rmtree(place)
    if what == "older copy":
        shutil.copytree(tmp_path / "older", place)
    (said,) = about_mirrors(world.report())
    assert said.startswith(f"the mirror of {world.orders}: {place.name} ")
    assert "The next mirror run rebuilds it" in said
    assert world.report().health == "in trouble"
    assert world.mirrors.behind() == [f"shop.{world.orders}"]
    again = CaptureMirrors(world.config, LocalRunner(1), SystemClock())
    assert again.catch_up() == {}
    assert (about_mirrors(world.report()), world.mirrors.behind()) == ([], [])
    assert DeltaTable(str(place)).to_pyarrow_table().num_rows == rows
