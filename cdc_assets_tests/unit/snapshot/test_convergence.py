"""Whatever the isolation, whoever writes and whatever dies: topics in their order end in the server's state."""

import random
from pathlib import Path

import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.steps import listening
from cdc_assets_tests.crashes import PowerCutError
from cdc_assets_tests.unit.snapshot.world import DATABASE, World
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from mssql_standin.control import StandIn
from mssql_standin.errors import SqlError


class Storm:
    """Writes at each step unless a lock is in the way, and ends the run at one of them."""

    def __init__(self, world: World, chance: random.Random, cut: int) -> None:
        self._world, self._chance, self._left = world, chance, cut

    def __call__(self, name: str) -> None:
        for _ in range(self._chance.randrange(3)):
            self._write()
        self._left -= 1
        if self._left == 0:
            raise PowerCutError(name)

    def _write(self) -> None:
        table, key = self._chance.choice("ab"), self._chance.randrange(1, 12)
        note = f"v{self._chance.randrange(10**6)}"
        statement = self._chance.choice(
            [
                f"UPDATE dbo.{table} SET note = '{note}' WHERE id = {key}",
                f"DELETE FROM dbo.{table} WHERE id = {key}",
                f"INSERT INTO dbo.{table} SELECT {key}, '{note}' WHERE NOT EXISTS (SELECT 1 FROM dbo.{table} WHERE id = {key})",
            ]
        )
        try:
            self._world.server.execute(f"SET LOCK_TIMEOUT 0; {statement}", database=DATABASE)
        except SqlError as error:
            assert error.number == 1222  # noqa: PT017
            return
        if self._chance.random() < 0.7:  # else the capture job is late
            self._world.server.agent.drain()


def state_of_topic(world: World, table: TableId) -> dict[int, str]:
    """What applying the topic in position order gives; each position occurs once."""
    rows = sorted(rows_of_topic(world.config, f"shop.{table}"), key=lambda row: str(row["position"]))
    assert len({row["position"] for row in rows}) == len(rows)
    state: dict[int, str] = {}
    for row in rows:
        key: int = row["key"]["id"]  # type: ignore[index]
        after = (row["value"] or {}).get("after")  # type: ignore[attr-defined]
        if after is None:
            state.pop(key, None)
        else:
            state[key] = after["note"]
    return state


@pytest.mark.long
@pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read", "exclusive", "snapshot"])
@pytest.mark.parametrize("seed", range(2))
def test_topics_end_in_the_servers_state(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str, seed: int
) -> None:
    monkeypatch.setattr("cdc_assets.snapshot.rounds._ROUND_SLICES", 1)
    monkeypatch.setattr("cdc_assets.snapshot.rounds.MIN_SLICE", 1)
    chance = random.Random(f"{isolation} {seed}")  # noqa: S311 - a repeatable workload
    world = World(server, str(tmp_path), snapshot__isolation__mode=isolation, snapshot__mode="always")
    tables = [world.make("a", 8), world.make("b", 8)]
    server.execute(f"ALTER DATABASE {DATABASE} SET ALLOW_SNAPSHOT_ISOLATION ON")
    for _ in range(3):
        try:
            with listening(Storm(world, chance, chance.randrange(2, 14))), world.capture() as capture:
                capture.snapshot()
                capture.stream()
        except PowerCutError:
            continue
    server.agent.drain()
    with listening(Storm(world, chance, 10**9)):
        world.snapshot()
    server.agent.drain()
    world.stream()
    for table in tables:
        rows = server.execute(f"SELECT id, note FROM dbo.{table.table}", database=DATABASE)
        assert state_of_topic(world, table) == dict(rows)
