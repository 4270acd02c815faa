"""The sensor's tick of an idle capture waits until the database's log goes on."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from unittest.mock import patch

import dagster as dg
import pytest

from cdc_assets.connectors.engine.source import LogPoint, binlog_point
from cdc_assets.defs import schedule
from cdc_assets_tests.dagster.engines.deployment import Database, Deployment


@pytest.fixture
def idle(shop: Deployment) -> Iterator[Deployment]:
    shop.changes()
    shop.more |= {"sensor.wait.ms": "1000", "poll.interval.ms": "100"}
    with patch.object(schedule, "_may_wait", return_value=True):
        yield shop


def test_a_change_starts_a_run_within_the_tick(idle: Deployment) -> None:
    idle.more["sensor.wait.ms"] = "20000"
    began = time.monotonic()
    with ThreadPoolExecutor(1) as others:
        others.submit(lambda: (time.sleep(0.5), setattr(idle.database, "end", 12)))
        request = idle.tick()
    assert request.tags["cdc/position"] == "bin.000001:12"
    assert time.monotonic() - began < 15


@pytest.mark.long
def test_an_idle_tick_asks_for_the_end_once_a_poll(idle: Deployment) -> None:
    asked: list[float] = []

    def log_end(self: Database) -> LogPoint:
        asked.append(time.monotonic())
        return binlog_point("bin.000001", self.end)

    began = time.monotonic()
    with patch.object(Database, "log_end", log_end):
        assert idle.tick().skip_message == "Nothing new."
    assert 3 <= len(asked) <= 15
    assert all(late - early >= 0.09 for early, late in pairwise(asked[2:-2]))
    assert time.monotonic() - began < 4


@pytest.mark.long
def test_a_log_that_grows_by_nothing_that_is_captured_is_waited_behind(idle: Deployment) -> None:
    ends = iter(range(11, 10_000))
    began = time.monotonic()
    with (
        patch.object(Database, "has_no_changes_between", return_value=True),
        patch.object(Database, "log_end", lambda _: binlog_point("bin.000001", next(ends))),
    ):
        assert idle.tick().skip_message == "Nothing new."
    assert time.monotonic() - began >= 0.7
    assert next(ends) > 14


@pytest.mark.long
def test_a_change_between_the_answer_and_the_wait_is_not_missed(idle: Deployment) -> None:
    ends = iter([10, 12])
    with patch.object(Database, "log_end", lambda _: binlog_point("bin.000001", next(ends, 12))):
        assert isinstance(idle.tick(), dg.RunRequest)


@pytest.mark.long
def test_a_database_that_goes_away_meanwhile_ends_the_wait(idle: Deployment) -> None:
    with ThreadPoolExecutor(1) as others:
        others.submit(lambda: (time.sleep(0.3), setattr(idle.database, "away", True)))
        answer = idle.tick()
    assert not isinstance(answer, dg.RunRequest)


@pytest.mark.long
def test_it_does_not_wait_beside_another_capture_or_if_it_may_not(idle: Deployment) -> None:
    with patch.object(schedule, "sleep", side_effect=AssertionError):
        with schedule._TURN:
            assert idle.tick().skip_message == "Nothing new."
        idle.more["sensor.wait.ms"] = "0"
        assert idle.tick().skip_message == "Nothing new."
