"""In the hour after summer time ends, what was committed an hour ago has the time of now by the server's clock."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.report_builder import inspect_server
from cdc_assets_tests.unit.publish.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn

BACK = datetime.fromisoformat("2026-10-25T01:00:00")
"""Clocks show 3:00 in summer time, and then 2:00 again."""


class Place:
    """A server in Paris, and a lake."""

    def __init__(self, server: StandIn, lake: Path) -> None:
        self.server = server
        self.at(-90)
        self.world = World(server, lake)
        self.insert(1)
        self.world.capture("snapshot")

    def at(self, minutes: float) -> None:
        """Move the clock to so many minutes after the change."""
        now = BACK + timedelta(minutes=minutes)
        self.server.clock.offset_minutes = 60 if minutes >= 0 else 120
        self.server.clock.set(now)

    def insert(self, key: int) -> None:
        self.world.execute(f"INSERT INTO dbo.t VALUES ({key}, N'a')")
        self.server.agent.drain()

    def report(self) -> CaptureReport:
        return inspect_server(self.world.config, lambda: SqlServerSource(self.world.config.connection)).report


@pytest.fixture
def place(tmp_path: Path):  # type: ignore[no-untyped-def]
    with StandIn(databases=(DATABASE,)) as server:
        yield Place(server, tmp_path / "lake")


@pytest.mark.parametrize(("committed", "now"), [(-25.5, 35), (-0.2, 0.2), (-59.5, 1)])
def test_a_lake_that_is_an_hour_behind_is_not_healthy(place: Place, committed: float, now: float) -> None:
    place.at(committed)
    place.insert(2)
    for minute in range(int(committed) + 5, int(now), 5):
        place.at(minute)
        place.insert(100 + minute)
    place.at(now)
    place.insert(3)
    found = place.report()
    assert not found.healthy
    assert not any((database.lag.behind_s or 3600) < 60 for database in found.databases)


@pytest.mark.long
@pytest.mark.parametrize("now", [-30, 30, 90])
def test_one_that_has_all_but_the_last_seconds_is(place: Place, now: float) -> None:
    for minute in range(-40, int(now), 5):
        place.at(minute)
        place.insert(100 + minute)
    place.world.capture()
    place.at(now)
    place.insert(2)
    place.at(now + 0.05)
    found = place.report()
    assert [database.lag.behind_s for database in found.databases] == [pytest.approx(3, abs=1)]
