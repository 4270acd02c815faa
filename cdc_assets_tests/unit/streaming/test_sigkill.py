"""A real process, real drivers and the stand-in: SIGKILL at each named step loses and doubles nothing."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import STEPS, VARIABLE
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of, run
from cdc_assets_tests.unit.streaming.lake_reader import Event, events_of
from cdc_assets_tests.warm import run_module
from mssql_standin.control import StandIn

pytestmark = pytest.mark.crash

TABLES = ("lines", "orders")
SNAPSHOT = ["snapshot-planned", "history-written", "round-planned", "round-written", "table-committed:2"]
SNAPSHOT += ["round-complete", "snapshot-complete"]
STREAM = ["window-planned", "files-written", "table-committed:1", "table-committed:2", "window-complete:2"]


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        for name in TABLES:
            server.execute(
                f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY, note nvarchar(50))", database=DATABASE
            )
            server.execute(
                f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{name}', @role_name = NULL",
                database=DATABASE,
            )
            server.execute(f"INSERT INTO dbo.{name} VALUES (1, N'a'), (2, N'b'), (3, N'c')", database=DATABASE)
        server.agent.drain()
        yield server


def change(server: StandIn, number: int) -> None:
    """Four transactions over both tables."""
    for name in TABLES:
        server.execute(f"INSERT INTO dbo.{name} VALUES ({number}, N'new')", database=DATABASE)
        server.execute(f"UPDATE dbo.{name} SET note = N'by {number}' WHERE id IN (1, {number})", database=DATABASE)
    server.agent.drain()


def killed(server: StandIn, lake: Path, what: str, step: str) -> None:
    environment = {"CHILD_PORT": str(server.port), "CHILD_PASSWORD": server.password, "CHILD_LAKE": str(lake)}
    done = run_module("cdc_assets_tests.unit.streaming.child", what, environment=environment | {VARIABLE: step})
    assert done.returncode == -signal.SIGKILL, done.said


def events(server: StandIn, lake: Path, name: str) -> list[Event]:
    config = config_of(server.port, server.password, str(lake))
    return events_of(config, TableId(DATABASE, "dbo", name))


@pytest.mark.parametrize("step", SNAPSHOT)
def test_snapshot_killed(server: StandIn, tmp_path: Path, step: str) -> None:
    config = config_of(server.port, server.password, str(tmp_path))
    killed(server, tmp_path, "snapshot", step)
    change(server, 10)
    run(config, "snapshot")
    run(config, "stream")
    for name in TABLES:
        found = events(server, tmp_path, name)
        reads = [event.key for event in found if event.op == "r"]
        assert sorted(reads) in ([1, 2, 3], [1, 2, 3, 10])
        state = {event.key: event.after["note"] for event in found if event.after}
        assert state == {1: "by 10", 2: "b", 3: "c", 10: "by 10"}
        assert len({event.position for event in found}) == len(found)


@pytest.mark.parametrize("step", STREAM)
def test_stream_killed(server: StandIn, tmp_path: Path, step: str) -> None:
    config = config_of(server.port, server.password, str(tmp_path))
    run(config, "snapshot")
    change(server, 10)
    killed(server, tmp_path, "stream", step)
    change(server, 11)
    run(config, "stream")
    for name in TABLES:
        found = [event for event in events(server, tmp_path, name) if event.op != "r"]
        assert [(event.op, event.key) for event in found] == [
            ("c", 10), ("u", 1), ("u", 10), ("c", 11), ("u", 1), ("u", 11)
        ]  # fmt: skip


def test_steps_are_listed() -> None:
    assert {step.partition(":")[0] for step in SNAPSHOT + STREAM} <= set(STEPS)
