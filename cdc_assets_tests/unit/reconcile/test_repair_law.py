"""The law of repairs: beside writers, and whatever dies, a repair makes the mirror what the server has, and spoils no row.

Random statements change rows, some of them without the log; a capture, its mirror, incremental snapshots and `--repair` run now and then
beside further statements, and die at a random step now and then. At the end every row that the log alone has changed must be right
without a repair, for a READ that came too late would have spoilt it; and after repairs all rows are. `CDC_REPAIR_SEEDS` plays
more of them than three.
"""

import contextlib
import os
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.steps import listening
from cdc_assets.errors import CaptureNotReadyError
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.reconcile.run import Reconciler, Wishes
from cdc_assets_tests.crashes import PowerCutError, cut_after
from cdc_assets_tests.unit.mirror.versions import check_versions
from cdc_assets_tests.unit.reconcile.world import World
from mssql_standin.control import StandIn

SEEDS = range(int(os.environ.get("CDC_REPAIR_SEEDS", "3")))
STEPS = 24
ACTS = ["work"] * 5 + ["change_silently"] * 4 + ["follow"] * 3 + ["mirror"] * 2 + ["ask"] + ["repair"] * 6
ROWS, REPAIRS = 40, 8


class Player:
    """What happens to a world, chosen by a seed."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._rng, self._lock = world, random.Random(seed), threading.Lock()  # noqa: S311 - can be repeated
        self._next, self._asked = 1000, 0
        self.silent: set[int] = set()
        """Keys of rows that were changed without the log."""
        self.said: list[str] = []
        world.meanwhile = self.beside

    def play(self, steps: int) -> None:
        """Play so many acts."""
        for act in self._rng.choices(ACTS, k=steps):
            self.said.append(act)
            getattr(self, act)()

    def work(self) -> None:
        """Some statements that the log records."""
        for _ in range(self._rng.randint(1, 3)):
            self._world.sql(self._statement()[1])

    def beside(self) -> None:
        """Perhaps another one, while something is read."""
        with self._lock:
            if self._rng.random() < 0.3:
                _, text = self._statement()
                self.said.append(f"  beside: {text}")
                self._world.sql(text)

    def change_silently(self) -> None:
        """A statement that it does not record."""
        keys, text = self._statement()
        self.silent |= keys
        self._world.behind_the_log(text)

    def follow(self) -> None:
        """The capture reads what is new."""
        with self._dying():
            self._world.follow()

    def mirror(self) -> None:
        """The mirror takes what is new."""
        with self._dying():
            assert not self._world.mirrors().catch_up()

    def ask(self) -> None:
        """Somebody asks for an incremental snapshot."""
        self._asked += 1
        self._world.signal(
            f"ask-{self._asked}", "execute-snapshot", type="INCREMENTAL", data_collections=[str(self._world.table)]
        )

    def repair(self) -> None:
        """Compare and repair the whole table, or some of its ranges."""
        with self._dying(), contextlib.suppress(CaptureNotReadyError):
            self.repaired(self._rng.choice([None, None, 2]))

    def repaired(self, ranges: int | None = None) -> int:
        """Number of rows that differed."""
        with SqlServerSource(self._world.config.connection) as source:
            bulk = Beside(MssqlBulkSource(self._world.config.connection), self)
            mirrors, clock = self._world.mirrors(), Following(self._world)
            one = Reconciler(self._world.config, source, bulk, LocalRunner(2), clock, mirrors)
            return one.reconcile(self._world.table, Wishes(ranges=ranges, repair=True, timeout_s=60)).differing

    @contextlib.contextmanager
    def _dying(self) -> Iterator[None]:
        step = self._rng.choice([0] * 12 + list(range(1, 49, 4)))
        with listening(cut_after(step)), contextlib.suppress(PowerCutError):
            yield

    def _statement(self) -> tuple[set[int], str]:
        """Keys of the rows that it changes, and the statement."""
        found = self._world.server.execute("SELECT id FROM dbo.t", database=self._world.table.database)
        key = self._rng.choice([row[0] for row in found])
        self._next += 1
        new, text = self._next, f"N'note {self._next}'"
        again = f"DELETE FROM dbo.t WHERE id = {key}; INSERT INTO dbo.t VALUES ({key}, {text}, N'big {new}')"
        return self._rng.choice(
            [
                ({key}, f"UPDATE dbo.t SET note = {text} WHERE id = {key}"),
                ({key}, f"UPDATE dbo.t SET big = {text} WHERE id = {key}"),
                ({new}, f"INSERT INTO dbo.t VALUES ({new}, {text}, N'big')"),
                ({key}, f"DELETE FROM dbo.t WHERE id = {key}"),
                ({key}, again),
                ({key, new}, f"UPDATE dbo.t SET id = {new} WHERE id = {key}"),
            ]
        )


@dataclass
class Beside:
    """`core.ports.BulkSource` that has somebody write before each read."""

    bulk: MssqlBulkSource
    player: Player

    def reaching(self, database: str, lsn: Lsn, *, captured: bool = True, left: Sequence[str] = ()) -> "Beside":
        return Beside(self.bulk.reaching(database, lsn, captured=captured, left=left), self.player)

    def read(self, statement: str, parameters: Sequence[object] = ()) -> Iterator[pa.RecordBatch]:
        self.player.beside()
        return self.bulk.read(statement, parameters)


@dataclass
class Following(SystemClock):
    """A clock on whose waits the capture runs."""

    world: World

    def sleep(self, seconds: float) -> None:
        self.world.follow()
        super().sleep(seconds)


def by_key(rows: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Rows by key, which no two of them share."""
    found = {row["id"]: {name: row[name] for name in ("id", "note", "big")} for row in rows}
    assert len(found) == len(rows)
    return found


def on_both(world: World) -> tuple[dict[int, dict[str, Any]], dict[int, dict[str, Any]]]:
    """Rows of the server and of the mirror."""
    names = ("id", "note", "big")
    found = world.server.execute(f"SELECT {', '.join(names)} FROM dbo.t", database=world.table.database)
    server = [dict(zip(names, row, strict=True)) for row in found]
    return by_key(server), by_key(MirrorReader(world.mirrors().tables, world.topic).current().to_pylist())


@pytest.mark.law
@pytest.mark.parametrize("seed", SEEDS)
def test_repairs_make_the_mirror_right_and_spoil_no_row(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("cdc_assets.adapters.sqlserver.ranges.MIN_ROWS_PER_RANGE", 10)
    rows = ", ".join(f"({at}, N'row {at}', N'{'x' * at}')" for at in range(1, ROWS + 1))
    world = World(server, str(tmp_path), "id int NOT NULL PRIMARY KEY, note nvarchar(50), big nvarchar(max)", rows)
    player = Player(world, seed)
    player.play(STEPS)
    said = "\n".join(player.said)
    world.meanwhile = lambda: None
    for _ in range(2):
        world.follow()
    assert not world.mirrors().catch_up(), said
    here, there = on_both(world)
    wrong = {key for key in here.keys() | there.keys() if here.get(key) != there.get(key)}
    assert wrong <= player.silent, f"{wrong - player.silent} were spoilt\n{said}"
    for _ in range(REPAIRS):
        differing = player.repaired()
        world.follow()
        world.follow()
        assert not world.mirrors().catch_up()
        if not differing:
            break
    assert not differing, said
    here, there = on_both(world)
    check_versions(MirrorReader(world.mirrors().tables, world.topic).versions().to_pylist(), said)
    assert here == there, said
    assert not world.mirrors().catch_up(anew=True)
    assert on_both(world) == (here, here), said
