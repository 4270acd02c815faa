"""SIGKILL on the command line's process at each step of an incremental snapshot: the next run goes on where it stopped."""

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import VARIABLE
from cdc_assets.ledger.signal_state import QueuedTable
from cdc_assets_tests.unit.signals.world import SIGNALS, World, check_law, values
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.warm import run_module
from mssql_standin.control import StandIn

pytestmark = pytest.mark.crash

ROWS = 2500
"""Two rounds of 1024 rows and a smaller one."""

KILLS = [
    ("marker-written", "the greatest key is fixed, the open marker of the first round is written"),
    ("chunk-read", "rows are staged"),
    ("marker-written:2", "the close marker is written"),
    ("signals-recorded", "the files of the first round are recorded"),
    ("reads-committed", "they are committed, which was not noted"),
    ("signals-recorded", "the queue has moved on"),
    ("signals-recorded:3", "the second round is through, the third is recorded"),
    ("signals-recorded:2", "the queue is empty, which nobody was told"),
]
"""Steps at which one run after the other dies, and what is true then."""

DONE = [("TABLE_SCAN_COMPLETED", "SUCCEEDED"), ("COMPLETED", "")]


def capture(config: Path, step: str = "") -> int:
    arguments = ["capture", "--local", "--config", str(config)]
    done = run_module("cdc_assets.cli.main", *arguments, environment={VARIABLE: step})
    assert done.returncode in (0, -signal.SIGKILL), done.said
    return done.returncode


def configuration(world: World, path: Path) -> Path:
    """The world's capture as a file."""
    connection = world.config.connection
    properties = {
        "name": world.config.name,
        "topic.prefix": "shop",
        "database.hostname": "127.0.0.1",
        "database.port": str(connection.port),
        "database.user": connection.user,
        "database.password": connection.password,
        "database.names": DATABASE,
        "driver.encrypt": "no",
        "lake.path": world.config.lake.path,
        "signal.data.collection": SIGNALS,
        "incremental.snapshot.chunk.size": "1",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": "notes",
        "poll.interval.ms": "20",
        "stream.idle.timeout.ms": "100",
    }
    path.write_text(json.dumps(properties))
    return path


def reached(world: World) -> tuple[int, int]:
    """How many rows the lake has as READs, and up to which key the queue has moved."""
    state = world.state().signals.get(DATABASE)
    entry = state.queue[0] if state and state.queue else QueuedTable(TableId("", "", ""), "")
    return entry.rows, int((entry.last or ("0",))[0] or 0)


def test_killed_at_each_step_it_continues_where_it_stopped(tmp_path: Path) -> None:
    with StandIn(databases=(DATABASE,)) as server:
        world = World(server, str(tmp_path / "lake"))
        table = world.make("orders", "id int PRIMARY KEY, version int")
        for start in range(1, ROWS, 500):
            world.sql(f"INSERT INTO dbo.orders VALUES {values(*(f'{n}, {n}' for n in range(start, start + 500)))}")
        config = configuration(world, tmp_path / "capture.json")
        assert capture(config) == 0
        world.signal("s1", "execute-snapshot", data_collections=[str(table)])
        expected, moved = {number: number for number in range(1, ROWS + 1)}, [(0, 0)]
        for number, (step, meaning) in enumerate(KILLS):
            assert capture(config, step) == -signal.SIGKILL, f"{step} was not reached: {meaning}"
            moved.append(reached(world))
            for key in (10 + number, ROWS - number):
                expected[key] = 10_000 + number
                world.sql(f"UPDATE dbo.orders SET version = {expected[key]} WHERE id = {key}")
        assert moved[: len(KILLS)] == sorted(moved[: len(KILLS)])
        assert capture(config) == 0
        times = Counter(row["id"] for row in world.reads(table))
        assert set(times.values()) == {1}
        assert {key for key, version in expected.items() if version <= ROWS} <= set(times)
        check_law(world, table, expected)
        assert not list((tmp_path / "lake" / "shop.__staging").iterdir())
        assert not world.state().signals[DATABASE].queue
        assert world.notes() == [("STARTED", ""), *[("IN_PROGRESS", "")] * 3, *DONE]
