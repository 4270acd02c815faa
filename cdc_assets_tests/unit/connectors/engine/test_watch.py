"""A database that is asked beside the connector: silence ends the run, a refusal is an answer."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cdc_assets.connectors.engine.watch import SourceWatch, WatchedFeed
from cdc_assets.errors import CdcError, ConnectionLostError, CredentialsError, EngineError
from cdc_assets_tests.unit.connectors.engine.feeds import ListFeed


class Probe:
    """Answers as it is told."""

    def __init__(self, error: CdcError | None = None, *, is_read: bool | None = None) -> None:
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
    while probe.looks < (1 if isinstance(probe.error, EngineError) else 12):
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
    "probe", [Probe(CredentialsError("no")), Probe(EngineError("no driver")), Probe(is_read=True), Probe()]
)
def test_a_refusal_is_an_answer_and_without_a_driver_nothing_is_watched(probe: Probe) -> None:
    feed = watched(probe)
    assert feed.next(0) is None
    assert feed.started
    feed.close()
