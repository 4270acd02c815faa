"""A database that is asked beside the connector: silence ends the run, a refusal is an answer."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cdc_assets.connectors.engine import watch
from cdc_assets.connectors.engine.watch import SourceWatch, WatchedFeed
from cdc_assets.errors import ConnectionLostError, CredentialsError, EngineError
from cdc_assets_tests.unit.connectors.engine.feeds import ListFeed


class Probe:
    """Answers as it is told."""

    def __init__(self, error: Exception | None = None, *, is_read: bool | None = None) -> None:
        self.error, self._is_read, self.looks = error, is_read, 0

    def check_replication(self) -> bool | None:
        return self._is_read

    @contextmanager
    def open(self) -> Iterator[Any]:
        self.looks += 1
        if self.error:
            raise self.error
        yield self


def watched(probe: Probe) -> WatchedFeed:
    feed = WatchedFeed(ListFeed([], []), SourceWatch(probe.open, every_s=0.01))
    deadline = time.monotonic() + 30
    is_answered = probe.error is None or isinstance(probe.error, ConnectionLostError | CredentialsError)
    while probe.looks < (12 if is_answered else 1):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return feed


@pytest.mark.parametrize(
    ("probe", "text"),
    [
        (Probe(ConnectionLostError("db:1 cannot be reached.")), "has not answered .*db:1 cannot be reached"),
        (Probe(is_read=False), "does not read the log"),
    ],
)
def test_silence_ends_the_run(probe: Probe, text: str) -> None:
    feed = watched(probe)
    with pytest.raises(ConnectionLostError, match=text):
        feed.next(0)
    assert feed.started is (probe.error is None)
    feed.close()


@pytest.mark.parametrize(
    "probe",
    [
        Probe(CredentialsError("no")),
        Probe(EngineError("no driver")),
        Probe(RuntimeError("a package that the driver needs is missing")),
        Probe(is_read=True),
        Probe(),
    ],
)
def test_a_refusal_is_an_answer_and_without_a_driver_nothing_is_watched(
    monkeypatch: pytest.MonkeyPatch, probe: Probe
) -> None:
    feed = watched(probe)
    assert feed.next(0) is None
    if isinstance(probe.error, EngineError | RuntimeError):  # also long after the last answer
        monkeypatch.setattr(watch, "_FRESH_S", -1.0)
        deadline = time.monotonic() + 30
        while not feed.started and time.monotonic() < deadline:
            time.sleep(0.01)
    assert feed.started
    feed.close()


def test_one_error_of_a_drivers_own_does_not_end_the_watch() -> None:
    """A connection that breaks off may bring it; the database may be silent from then on."""

    class Broken(Probe):
        @contextmanager
        def open(self) -> Iterator[Any]:
            self.looks += 1
            if self.looks == 1:
                raise RuntimeError("no such byte")
            raise ConnectionLostError("db:1 cannot be reached.")
            yield self

    with pytest.raises(ConnectionLostError, match="has not answered"):
        watched(Broken(ConnectionLostError(""))).next(0)
