"""A capture's page between runs: no tick waits long for a look, and nothing that is old or of another time is told."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic, sleep

import dagster as dg
import pytest

from cdc_assets.defs import idle_page
from cdc_assets.defs.idle_page import IdlePage
from cdc_assets.defs.live import Seen, Subject
from cdc_assets.errors import LakeError
from cdc_assets.run.overview import CaptureReport
from cdc_assets.run.overview.report import Trouble
from cdc_assets_tests.patience import Patience


def seen(*troubles: str) -> Seen:
    """What a look has found."""
    found = tuple(Trouble("SalesDb", what) for what in troubles)
    return Seen(CaptureReport("shop", datetime.now(UTC), troubles=found))


class Looks:
    """Looks that last until they may end, each with an outcome of its own."""

    def __init__(self) -> None:
        self.may_end, self.begun = threading.Event(), 0
        self.found: Callable[[], Seen] = lambda: seen("quiet")

    def __call__(self) -> Seen:
        """One look."""
        self.begun += 1
        found = self.found
        assert self.may_end.wait(60)
        return found()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of that of the other modules."""
    monkeypatch.setattr(idle_page, "_PATIENCE_S", 0.1)


@pytest.fixture
def looks() -> Looks:
    """None has begun."""
    return Looks()


@pytest.fixture
def subject(looks: Looks) -> Subject:
    """A capture that is looked at."""
    return Subject("shop", dg.AssetKey("windows"), "windows", looks)


def troubles(page: IdlePage, subject: Subject) -> str:
    """What a tick tells of them once a look has ended."""
    patience = Patience(60)
    while not (events := page.events(subject, None)):
        assert patience
        sleep(0.01)
    return str(events[0].metadata["troubles"].value)


def test_tick_does_not_wait_for_a_look_that_lasts(subject: Subject, looks: Looks) -> None:
    page, began = IdlePage(), monotonic()
    assert not page.events(subject, None)
    assert not page.events(subject, None)
    assert monotonic() - began < 30  # a look lasts a minute
    looks.may_end.set()
    assert troubles(page, subject) == "1"
    assert looks.begun == 1
    assert not page.events(subject, None)  # it is not time for another one
    assert looks.begun == 1


def test_look_from_before_a_run_is_thrown_away(subject: Subject, looks: Looks) -> None:
    page = IdlePage()
    looks.found = lambda: seen("quiet", "away")
    assert not page.events(subject, None)
    page.forget()
    looks.found = lambda: seen("quiet")
    looks.may_end.set()
    assert troubles(page, subject) == "1"
    assert looks.begun == 2


def test_look_from_long_ago_is_thrown_away(subject: Subject, looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    page = IdlePage()
    looks.found = lambda: seen("quiet", "away")
    assert not page.events(subject, None)
    looks.may_end.set()
    while page._ended == 0.0:
        sleep(0.01)
    looks.found = lambda: seen("quiet")
    now = monotonic() + 2 * idle_page._OLD_S
    monkeypatch.setattr(idle_page, "monotonic", lambda: now)
    assert troubles(page, subject) == "1"
    assert looks.begun == 2


def test_tick_fails_with_a_look_and_the_next_one_looks_again(subject: Subject, looks: Looks) -> None:
    page = IdlePage()

    def broken() -> Seen:
        raise LakeError("The lake is gone. Next: bring it back.")

    looks.found = broken
    looks.may_end.set()
    with pytest.raises(LakeError, match="is gone"):
        troubles(page, subject)
    looks.found = lambda: seen("quiet")
    page._next = 0.0
    assert troubles(page, subject) == "1"


def test_look_that_will_last_begins_when_the_tick_has_ended(subject: Subject, looks: Looks) -> None:
    page = IdlePage()
    looks.may_end.set()
    assert troubles(page, subject) == "1"
    page._next, page._took = 0.0, 5.0
    looks.found = lambda: seen("quiet", "away")
    assert not page.events(subject, None)
    assert looks.begun == 1
    assert troubles(page, subject) == "2"
    assert looks.begun == 2
