"""An outage is a line when it begins, one in ten minutes, and one when it ends."""

import logging

import pytest

from cdc_assets.core import outages
from cdc_assets.core.outages import AGAIN_S, Outages, warn_seldom
from cdc_assets.errors import ConnectionLostError, ServerBusyError

LOG = logging.getLogger("cdc_assets_tests.outages")
AWAY = ConnectionLostError("Cannot reach db:1433: refused. Next: check it.")


class Clock:
    """The time, as the module asks for it."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Clock:
    found = Clock()
    monkeypatch.setattr(outages, "time", found)
    caplog.set_level(logging.INFO)
    return found


def test_an_hour_without_a_server_is_few_lines(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    found = Outages()
    found.end("Database Shop")
    for _ in range(360):
        found.report(LOG, "Database Shop", AWAY, "Retrying every 10 s.")
        clock.now += 10
    found.end("Database Shop")
    found.end("Database Shop")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "Database Shop: Cannot reach db:1433: refused. Next: check it. Retrying every 10 s."
    assert lines[1] == f"{lines[0]} This has lasted for 600 s."
    assert lines[-1] == "Database Shop: works again, after 3,600 s."
    assert len(lines) == 1 + 5 + 1


def test_other_cause_and_the_next_outage_are_told(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    found = Outages()
    for error in (AWAY, ServerBusyError("A deadlock"), AWAY):
        found.report(LOG, "Database Shop", error, "Retrying.")
    found.end("Database Shop")
    found.report(LOG, "Database Shop", AWAY, "Retrying.")
    assert [record.levelno for record in caplog.records] == [30, 30, 20, 30]


def test_same_line_of_single_attempts_is_not_repeated(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    for attempt in range(26):
        warn_seldom(LOG, f"orders could not be read: session {attempt} holds a lock.")
        clock.now += 3
    warn_seldom(LOG, "lines could not be read: session 7 holds a lock.")
    assert len(caplog.records) == 2
    clock.now += AGAIN_S
    warn_seldom(LOG, "orders could not be read: session 30 holds a lock.")
    assert len(caplog.records) == 3
