"""Each way in which a capture can be broken is told by page, command, checks and metrics within half a minute, and so is its end.

Played in the real `dagster dev`, between runs and beside one that streams, and without Dagster (`make test-ways`). Metrics are pushed by a
run, and served by the command; between runs there are none. A sensor pauses after runs that failed, and only then is the end told later. The promise behind it: no page says
healthy while the lake lacks a change, or nobody knows.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pyodbc
import pytest

from cdc_assets_tests.beside import beside
from cdc_assets_tests.e2e.conftest import dagster_dev
from cdc_assets_tests.shop import TABLES, Shop, open_shop
from cdc_assets_tests.ways.breakage import ALONE, BESIDE, BETWEEN, WAYS, Keeper, Way
from cdc_assets_tests.ways.collector import collecting
from cdc_assets_tests.ways.command import kept_running
from cdc_assets_tests.ways.sight import Looks, Seen, Sight, Status, await_all
from mssql_standin.errors import SqlError

pytestmark = [pytest.mark.ways, pytest.mark.timeout(900)]

SOON_S = float(os.environ.get("CDC_WAYS_SOON_S", "30"))
"""How long it may take until all say it, and until all say that it is over."""


class Workload:
    """A new customer each second, unless it rests."""

    def __init__(self, shop: Shop) -> None:
        self._shop, self._rests = shop, threading.Lock()

    def work(self, over: threading.Event) -> None:
        """Until the event is set; what the server refuses meanwhile is no part of it."""
        while not over.wait(1):
            with self._rests, suppress(pyodbc.Error, SqlError):
                self._shop.add_customers(1)

    def resting(self) -> AbstractContextManager[object]:
        """A block without new rows."""
        return self._rests


@dataclass
class Played:
    """A capture that was healthy, and what changes its tables.

    Args:
        look: makes what is looked at for a way.
    """

    keeper: Keeper
    workload: Workload
    look: Callable[[Way], Looks]

    def is_exact(self) -> bool:
        """Whether the lake has each row of the server, once no more come."""
        shop = self.keeper.shop
        with self.workload.resting():
            self.keeper.wait_until(lambda: shop.differences() == {}, "the lake has each row", 60)
        return True


OWN = {
    "snapshot.partitions": "1",
    "retriable.restart.connector.wait.ms": "2000",
    "database.query.timeout.ms": "10000",  # a read that nobody answers is waited for that long
}


@pytest.fixture(scope="module", params=[BETWEEN, BESIDE, ALONE])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """A healthy capture."""
    play = {BETWEEN: _between, BESIDE: _beside, ALONE: _alone}[request.param]
    with open_shop(tmp_path_factory.mktemp("ways")) as shop, play(shop, Workload(shop)) as found:
        yield found


@contextmanager
def _between(shop: Shop, workload: Workload) -> Iterator[Played]:
    shop.write(OWN | {"stream.idle.timeout.ms": "300"})
    with dagster_dev(shop) as daemon:
        daemon.wait_until(lambda: _snapshotted(shop), "the sensor takes the initial snapshot")
        yield Played(daemon, workload, lambda way: Sight(daemon).looks())


@contextmanager
def _beside(shop: Shop, workload: Workload) -> Iterator[Played]:
    shop.write(OWN | {"stream.idle.timeout.ms": "3600000", "metrics.otlp": "true"})
    with collecting() as collector, patch.dict(os.environ, collector.environment), dagster_dev(shop) as daemon:
        daemon.wait_until(lambda: _snapshotted(shop), "the sensor takes the initial snapshot")
        with beside(workload.work):
            yield Played(daemon, workload, lambda way: Sight(daemon, collector).looks(is_command_asked=not way.of_runs))


@contextmanager
def _alone(shop: Shop, workload: Workload) -> Iterator[Played]:
    shop.write(OWN)
    with kept_running(shop) as command:
        command.wait_until(lambda: _snapshotted(shop), "the command takes the initial snapshot")
        with beside(workload.work):
            yield Played(
                command, workload, lambda way: {"status": Status(shop).look, "metrics": lambda: Seen(*command.scrape())}
            )


def _snapshotted(shop: Shop) -> bool:
    state = shop.view().state
    return set(TABLES) <= {table.table for table in state.tables} and not state.snapshots


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_way_is_told_and_so_is_its_end(played: Played, way: Way, request: pytest.FixtureRequest) -> None:
    keeper, looks = played.keeper, played.look(way)
    there = request.node.callspec.params["played"]
    if there not in way.there:
        pytest.skip(f"{way.name} is there only {' and '.join(way.there)}")
    await_all(looks, healthy=True, since=time.monotonic(), within_s=120)
    with way.broken(keeper):
        broken = await_all(looks, healthy=False, since=time.monotonic(), within_s=SOON_S + way.later_s)
        words = broken["page"][1] if "page" in broken else "\n".join(said for _, said in broken.values())
        assert re.search(way.told, words), words
    way.mended(keeper)
    paused_s = 0.0 if there == ALONE else way.paused_s
    mended = await_all(looks, healthy=True, since=time.monotonic(), within_s=SOON_S + paused_s)
    told = [f"{name} {broken[name][0]:.0f} and {mended[name][0]:.0f} s" for name in broken]
    with Path(os.environ.get("CDC_WAYS_TABLE", os.devnull)).open("a") as table:
        table.write(f"| {request.node.callspec.id} | {' | '.join(told)} |\n")
    assert played.is_exact()
