"""`capture --until-now` ends when everything is in the lake that was committed when it began, also on a busy table."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from cdc_assets.cli.main import app
from cdc_assets.config.load import load_config
from cdc_assets.errors import FencedError
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.delta import MirrorTables
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets_tests.contract.capture_file import properties_of
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from mssql_standin.control import StandIn

TOPIC = f"shop.{DATABASE}.dbo.orders"


class World:
    """A server whose capture job is at work, and a capture of it that is run by the command."""

    def __init__(self, server: StandIn, path: Path) -> None:
        self.server, self._file, self._lake = server, path / "shop.json", path / "lake"
        self.make("orders")
        self.insert(0)

    def make(self, name: str) -> None:
        self.sql(f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY)")
        self.sql(f"EXEC sys.sp_cdc_enable_table @source_schema=N'dbo', @source_name=N'{name}', @role_name=NULL")
        self.server.agent.drain()

    def sql(self, statement: str) -> None:
        self.server.execute(statement, database=DATABASE)

    def insert(self, key: int, name: str = "orders") -> None:
        self.sql(f"INSERT INTO dbo.{name} VALUES ({key})")

    def capture(self, *options: str, **changes: str) -> Result:
        properties = {**properties_of(self.server, self._lake), "mirror.reconcile.settle.ms": "500", **changes}
        self._file.write_text(json.dumps({name.replace("__", "."): text for name, text in properties.items()}))
        return CliRunner().invoke(app, ["capture", "--local", "-c", str(self._file), *options])

    def keys(self) -> set[int]:
        rows = rows_of_topic(load_config(self._file), TOPIC)
        return {row["value"]["after"]["id"] for row in rows}  # type: ignore[index]

    def mirrored(self) -> set[int]:
        found = MirrorReader(MirrorTables.of(load_config(self._file)), TOPIC).current()
        return set(found["id"].to_pylist())

    @contextmanager
    def busy(self, first: int) -> Iterator[None]:
        """Somebody commits rows all the time."""
        ended = threading.Event()

        def write() -> None:
            key = first
            while not ended.is_set():
                self.insert(key)
                key += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            ended.set()
            writer.join()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with StandIn(databases=(DATABASE,)) as server:
        server.agent.start()
        yield World(server, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("late_s", [0.0, 2.0], ids=["at once", "late"])
def test_it_ends_on_a_busy_table_with_all_that_was_committed(world: World, late_s: float) -> None:
    assert world.capture("--until-now").exit_code == 0
    assert world.keys() == {0}
    world.server.agent.latency_s = late_s
    for key in range(1, 20):
        world.insert(key)
    with world.busy(first=100):
        done = world.capture("--until-now", "--timeout", "60", mirror__enabled="true")
        assert done.exit_code == 0, done.output
    assert "Everything that was committed" in done.output
    assert set(range(20)) <= world.keys()
    assert set(range(20)) <= world.mirrored()


def test_a_capture_job_that_does_not_read_is_waited_for(world: World) -> None:
    world.capture("--until-now")
    world.server.agent.pause()
    world.insert(1)
    begun = time.monotonic()
    done = world.capture("--until-now", "--timeout", "2")
    assert time.monotonic() - begun < 20
    assert done.exit_code == 3
    assert "the capture job has not captured what was committed before the start" in done.output.replace("\n", " ")
    assert world.keys() == {0}
    world.server.agent.resume()
    assert world.capture("--until-now", "--timeout", "60").exit_code == 0
    assert world.keys() == {0, 1}


def test_what_a_stopped_table_lacks_is_told(world: World) -> None:
    world.make("lines")
    world.capture("--until-now")
    world.sql("EXEC sys.sp_cdc_disable_table @source_schema=N'dbo', @source_name=N'lines', @capture_instance=N'all'")
    world.insert(1)
    done = world.capture("--until-now", "--timeout", "60")
    assert done.exit_code == 1
    assert f"{DATABASE}.dbo.lines has stopped" in done.output
    assert world.keys() == {0, 1}, "the others are complete"


def test_what_the_server_does_not_capture_is_told(world: World) -> None:
    world.sql("CREATE TABLE dbo.plain (id int NOT NULL PRIMARY KEY)")
    done = world.capture("--until-now", "--timeout", "60")
    assert done.exit_code == 1
    assert f"{DATABASE}.dbo.plain is not captured by the server" in done.output
    assert world.keys() == {0}, "the others are complete"


def test_a_mirror_that_cannot_be_made_is_told_also_if_another_process_keeps_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fenced(*_: object, **__: object) -> None:
        raise FencedError("Another process keeps the mirrors.")

    world.sql("CREATE TABLE dbo.coarse (at datetime2(7) NOT NULL PRIMARY KEY)")
    world.sql("EXEC sys.sp_cdc_enable_table @source_schema=N'dbo', @source_name=N'coarse', @role_name=NULL")
    world.sql("INSERT INTO dbo.coarse VALUES ('2026-01-02 03:04:05.1234567')")
    world.server.agent.drain()
    options = {"mirror__enabled": "true", "time__precision__mode": "connect"}
    assert world.capture("--until-now", "--timeout", "60", **options).exit_code == 1
    monkeypatch.setattr(CaptureMirrors, "catch_up", fenced)
    done = world.capture("--until-now", "--timeout", "60", **options)
    assert done.exit_code == 1, done.output
    assert f"the mirror shop.{DATABASE}.dbo.coarse" in done.output.replace("\n", " ")


def test_the_mirror_of_a_table_that_the_settings_leave_out_is_not_waited_for(world: World) -> None:
    world.make("lines")
    assert world.capture("--until-now", mirror__enabled="true").exit_code == 0
    world.insert(1)
    done = world.capture("--until-now", mirror__enabled="true", table__include__list="dbo[.]orders")
    assert done.exit_code == 0, done.output
    assert world.mirrored() == {0, 1}


def test_what_the_mirror_of_a_table_lacks_that_the_settings_leave_out_fails_nothing(world: World) -> None:
    """Its topic is not waited for either, and nothing that the command could do would end it."""
    world.sql("CREATE TABLE dbo.coarse (at datetime2(7) NOT NULL PRIMARY KEY)")
    world.sql("EXEC sys.sp_cdc_enable_table @source_schema=N'dbo', @source_name=N'coarse', @role_name=NULL")
    world.sql("INSERT INTO dbo.coarse VALUES ('2026-01-02 03:04:05.1234567')")
    world.server.agent.drain()
    options = {"mirror__enabled": "true", "time__precision__mode": "connect"}
    assert world.capture("--until-now", "--timeout", "60", **options).exit_code == 1
    done = world.capture("--until-now", "--timeout", "60", **options, table__include__list="dbo[.]orders")
    assert done.exit_code == 0, done.output


def test_a_server_that_breaks_off_is_waited_for_and_not_longer_than_the_time(world: World) -> None:
    world.capture("--until-now")
    world.insert(1)
    broken = "cdc-assets: rows_per_commit"
    world.server.faults.error(596, "The session is in the kill state.", matching=broken, times=10_000)
    done = world.capture("--until-now", "--timeout", "5", retriable__restart__connector__wait__ms="100")
    assert done.exit_code == 3, done.output
    assert world.keys() == {0}


@pytest.mark.parametrize(
    "options", [["--timeout", "5"], ["--until-now", "--follow"], ["--until-now", "--idle", "5"]], ids=" ".join
)
def test_options_that_contradict_it(world: World, options: list[str]) -> None:
    done = world.capture(*options)
    assert done.exit_code == 2
    assert "--until-now" in done.output
