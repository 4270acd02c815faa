"""Events with large values: a task holds few of them at a time, however many there are."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.lake import pieces
from cdc_assets.mirror import staged
from cdc_assets_tests.unit.mirror.world import World, ordered
from cdc_assets_tests.unit.streaming.child import DATABASE, run
from mssql_standin.control import StandIn

BYTES = 256 * 1024


@pytest.mark.long
def test_events_are_staged_in_portions_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = list[int]()

    def noted(tables: Iterable[pa.Table], least: int) -> Iterator[pa.Table]:
        for portion in pieces.portions(tables, least):
            held.append(portion.nbytes)
            yield portion

    monkeypatch.setattr(pieces, "PORTION_BYTES", BYTES)
    monkeypatch.setattr(staged, "portions", noted)
    with StandIn(databases=(DATABASE,)) as server:
        world = World(server, tmp_path / "lake", "id int NOT NULL PRIMARY KEY, image varbinary(max)")
        for key in range(40):
            server.execute("INSERT INTO dbo.t VALUES (?, ?)", key, bytes([key]) * 70_000, database=DATABASE)
        server.agent.drain()
        # not in this process: while the driver waits for a large value, it would stop the server, too
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            pool.submit(run, world.config, "snapshot").result(120)
        world.mirror()
        assert ordered(world.rows()) == ordered(world.on_server("id, image"))
    assert sum(held) > 40 * 70_000
    assert max(held) < 3 * BYTES, "a portion, and what came with its last batch"
