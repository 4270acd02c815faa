"""Each way in which a capture can be broken is told by page, command, checks and metrics within half a minute, and so is its end.

Metrics are pushed by the run that streams; between runs nobody pushes any.

Played in the real `dagster dev`, between runs and beside one that streams (`make test-ways`). The promise behind it: no page says
healthy while the lake lacks a change, or nobody knows.
"""

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pyodbc
import pytest

from cdc_assets_tests.beside import beside
from cdc_assets_tests.e2e.conftest import Daemon, dagster_dev
from cdc_assets_tests.shop import TABLES, Shop, open_shop
from cdc_assets_tests.ways.breakage import BESIDE, BETWEEN, WAYS, Way
from cdc_assets_tests.ways.collector import Collector, collecting
from cdc_assets_tests.ways.sight import Sight
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
    """A capture that was healthy, and what changes its tables."""

    daemon: Daemon
    workload: Workload
    collector: Collector | None

    def is_exact(self) -> bool:
        """Whether the lake has each row of the server, once no more come."""
        shop = self.daemon.shop
        with self.workload.resting():
            self.daemon.wait_until(lambda: shop.differences() == {}, "the lake has each row", 60)
        return True


@pytest.fixture(scope="module", params=[BETWEEN, BESIDE])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """A healthy capture."""
    streams = request.param == BESIDE
    with open_shop(tmp_path_factory.mktemp("ways")) as shop, collecting() as collector, ExitStack() as work:
        own = {"stream.idle.timeout.ms": "3600000" if streams else "300"}
        own |= {"snapshot.partitions": "1", "retriable.restart.connector.wait.ms": "2000"}
        own |= {"database.query.timeout.ms": "10000"}  # a read that nobody answers is waited for that long
        if streams:
            own |= {"metrics.otlp": "true"}
            work.enter_context(patch.dict(os.environ, collector.environment))
        shop.write(own)
        with dagster_dev(shop) as found:
            found.wait_until(lambda: _snapshotted(shop), "the sensor takes the initial snapshot")
            workload = Workload(shop)
            if streams:
                work.enter_context(beside(workload.work))
            yield Played(found, workload, collector if streams else None)
            work.close()


def _snapshotted(shop: Shop) -> bool:
    state = shop.view().state
    return set(TABLES) <= {table.table for table in state.tables} and not state.snapshots


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_way_is_told_and_so_is_its_end(played: Played, way: Way, request: pytest.FixtureRequest) -> None:
    daemon, sight = played.daemon, Sight(played.daemon, None if way.of_settings else played.collector)
    mode = request.node.callspec.params["played"]
    if way.only not in ("", mode):
        pytest.skip(f"{way.name} is there only {way.only}")
    sight.await_all(healthy=True, since=time.monotonic(), within_s=120)
    with way.broken(daemon):
        broken = sight.await_all(healthy=False, since=time.monotonic(), within_s=SOON_S + way.later_s)
        assert re.search(way.told, broken["page"][1]), broken["page"][1]
    way.mended(daemon)
    mended = sight.await_all(healthy=True, since=time.monotonic(), within_s=SOON_S)
    told = [f"{name} {broken[name][0]:.0f} and {mended[name][0]:.0f} s" for name in broken]
    with Path(os.environ.get("CDC_WAYS_TABLE", os.devnull)).open("a") as table:
        table.write(f"| {request.node.callspec.id} | {' | '.join(told)} |\n")
    assert played.is_exact()
