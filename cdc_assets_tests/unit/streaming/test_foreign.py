"""A capture beside another program that rewrites the files of its tables: each event is there once at the end, and nothing is
called healthy that holds events twice."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.cli import doctor
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import listening
from cdc_assets.errors import FencedError
from cdc_assets.lake.sink import Append, commit
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.overview import CaptureReport, inspect_server
from cdc_assets.overview.report import LATE_S
from cdc_assets.shared.instances import before
from cdc_assets_tests.unit.lake.writing import join_all
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.histories import World
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedClock, SimulatedServer


def report_of(world: World) -> CaptureReport:
    @contextmanager
    def opened() -> Iterator[SimulatedServer]:
        yield world.server

    return inspect_server(world.config, opened, now=world.server.now).report  # type: ignore[arg-type]


def positions(config: CaptureConfig, table: TableId) -> list[str]:
    return [event.position for event in events_of(config, table)]


def stale(world: World, table: TableId) -> None:
    """A rewrite that was planned before the capture's own and is committed after it."""
    topic = f"shop.{table}"
    late = DeltaTable(str(Path(world.config.lake.path) / topic))
    assert join_all(TopicTables.of(world.config), topic)
    late.optimize.compact()


@pytest.mark.long
def test_what_is_there_twice_is_trouble_until_a_run_has_undone_it(tmp_path: Path) -> None:
    world = World(str(tmp_path))
    make_capture(world.server, world.config).snapshot()
    for pick in range(6):
        world.work([pick, pick + 1])
        make_capture(world.server, world.config).stream()
    assert report_of(world).health == "healthy"
    table = world.tables[0]
    before = positions(world.config, table)
    stale(world, table)
    assert len(positions(world.config, table)) > len(before)
    report = report_of(world)
    assert report.health == "in trouble"
    assert "rows in a second time" in report.headline
    [found] = [result for result in doctor._topics(world.config, None) if not result.ok]
    assert (found.check, found.blocking, found.subject) == ("rewriting", True, f"shop.{table}")

    make_capture(world.server, world.config).stream()
    assert sorted(positions(world.config, table)) == sorted(before)
    report = report_of(world)
    assert report.health == "healthy"
    assert any("rows in a second time" in text for text in report.advice), "it is told that it was so"
    [found] = [result for result in doctor._topics(world.config, None) if not result.ok]
    assert (found.check, found.blocking) == ("writers", False)


@pytest.mark.long
def test_what_the_log_does_not_tell_any_more_is_not_known_until_a_run_has_compared_positions(tmp_path: Path) -> None:
    world = World(str(tmp_path))
    make_capture(world.server, world.config).snapshot()
    for pick in range(6):
        world.work([pick, pick + 1])
        make_capture(world.server, world.config).stream()
    table, other = world.tables[:2]
    before = sorted(positions(world.config, table))
    stale(world, table)
    for topic in (f"shop.{table}", f"shop.{other}"):
        handle = DeltaTable(str(tmp_path / topic))
        handle.create_checkpoint()
        handle.optimize.compact()
        for version in range(handle.version()):
            (tmp_path / topic / "_delta_log" / f"{version:020d}.json").unlink()
    world.server.now += timedelta(seconds=2 * LATE_S)
    report = report_of(world)
    assert report.health == "not known"
    assert {trouble.where for trouble in report.unknown} == {f"shop.{table}", f"shop.{other}"}
    assert "it is not known whether other programs have put rows in a second time" in report.headline

    make_capture(world.server, world.config).stream()
    assert sorted(positions(world.config, table)) == before
    world.server.now += timedelta(seconds=2 * LATE_S)
    report = report_of(world)
    assert report.health == "healthy"
    [advice] = report.advice
    assert f"of shop.{table}, or one before it, a commit of another program, has put" in advice


def test_what_another_program_appends_and_removes_is_told(tmp_path: Path) -> None:
    world = World(str(tmp_path))
    make_capture(world.server, world.config).snapshot()
    world.work([0, 1, 2, 3])
    make_capture(world.server, world.config).stream()
    table = world.tables[0]
    handle = DeltaTable(str(tmp_path / f"shop.{table}"))
    version, rows = handle.version(), len(positions(world.config, table))
    handle.delete("value['op'] = 'r'")
    gone = rows - len(positions(world.config, table))
    assert gone > 0
    make_capture(world.server, world.config).stream()
    report = report_of(world)
    assert report.health == "healthy"
    assert list(report.advice) == [
        f"version {version + 1} of shop.{table}, DELETE of another program, has removed {gone} rows"
    ]


class Vacuuming:
    """Removes what no version of a topic names when a file of it is about to be committed."""

    def __init__(self, lake: str, topic: str) -> None:
        self.lake, self.left = lake, [topic]

    def write(self, append: Append) -> bool:
        if append.directory in self.left:
            self.left.remove(append.directory)
            handle = DeltaTable(f"{self.lake}/{append.directory}")
            handle.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        return commit(append)


@pytest.mark.parametrize("policy", ["fail", "resnapshot"])
def test_a_vacuum_that_takes_files_which_are_being_committed_is_noticed_by_the_same_run(
    tmp_path: Path, policy: str
) -> None:
    world = World(str(tmp_path))
    config = replace(world.config, streaming=replace(world.config.streaming, gap_policy=policy))  # type: ignore[arg-type]
    make_capture(world.server, config).snapshot()
    table = world.tables[0]
    sink = Vacuuming(config.lake.path, f"shop.{table}")
    lost = world.server.commit((table, "insert", 900, "its event is lost"))
    make_capture(world.server, config, sink=sink).stream()
    assert not sink.left
    state = make_capture(world.server, config).state().tables[table]
    assert state.gaps == ((before(lost), lost),)
    if policy == "fail":
        assert state.status == "gap"
        assert "missing" in state.reason
    else:
        assert state.status == "healthy"
        assert {event.key for event in events_of(config, table)} == world.server.rows[table].keys()


@pytest.mark.parametrize("step", ["files-joined", "replacement-checked"])
def test_a_run_that_is_overtaken_while_it_joins_files_ends(tmp_path: Path, step: str) -> None:
    world = World(str(tmp_path), compact_after_files=2)
    make_capture(world.server, world.config).snapshot()
    for pick in range(3):
        world.work([pick, pick + 1])
        make_capture(world.server, world.config).stream()
    world.work([3, 4, 5])
    waiting = [step]

    def overtake(name: str) -> None:
        if name == step and waiting:
            waiting.pop()
            make_capture(world.server, world.config).stream()

    with listening(overtake), pytest.raises(FencedError):
        make_capture(world.server, world.config).stream()
    assert not waiting
    for table in world.tables:
        found = positions(world.config, table)
        assert len(found) == len(set(found))
    assert report_of(world).health == "healthy"


class Rewriting:
    """Rewrites all tables of a lake again and again, without looking what the others do."""

    _pause_s = 0.01
    """Between two tables, so that what it is beside has a part of the machine."""

    def __init__(self, lake: Path) -> None:
        self._lake, self._ends, self.count = lake, threading.Event(), 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ends.is_set():
            for folder in sorted(self._lake.iterdir()):
                with suppress(DeltaError, OSError):
                    DeltaTable(str(folder)).optimize.compact()
                    self.count += 1
                self._ends.wait(self._pause_s)

    def __enter__(self) -> "Rewriting":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


@pytest.mark.long
def test_a_program_that_rewrites_everything_all_the_time(tmp_path: Path) -> None:
    """`OPTIMIZE` in a loop over every directory of the lake, for 200 windows."""
    world = World(str(tmp_path), compact_after_files=4)
    make_capture(world.server, world.config).snapshot()
    config = replace(world.config, streaming=replace(world.config.streaming, max_iteration_transactions=1))
    mirrors = CaptureMirrors(config, LocalRunner(1), SimulatedClock(world.server))
    with Rewriting(tmp_path) as other:
        for pick in range(200):
            world.work([pick % 64, (pick * 7) % 64, (pick * 13) % 64])
            if pick % 10 == 9:
                make_capture(world.server, config).stream()
                mirrors.catch_up()
    assert other.count > 50
    make_capture(world.server, config).stream()
    assert not mirrors.catch_up()
    assert report_of(world).health == "healthy"
    for table in world.tables:
        found = positions(config, table)
        assert len(found) == len(set(found))
        rows = {row["id"]: row["note"] for row in MirrorReader(mirrors.tables, f"shop.{table}").current().to_pylist()}
        assert rows == {key: row["note"] for key, row in world.server.rows[table].items()}
        history = MirrorReader(mirrors.tables, f"shop.{table}").versions().to_pylist()
        versions = [(row["id"], row["_valid_from_lsn"], row["_valid_to_lsn"]) for row in history]
        assert len(versions) == len(set(versions))
