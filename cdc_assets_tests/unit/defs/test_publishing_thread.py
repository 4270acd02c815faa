"""The thread of a run that publishes: it begins again after whatever ends it, for a run may last for ever."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc_assets.defs import kafka
from cdc_assets.defs.kafka import KafkaFollower
from cdc_assets.errors import FencedError, LakeError

_LONG_S = 10.0


def follower(publish: Callable[..., Any]) -> KafkaFollower:
    """That of a run in which nobody else publishes."""
    alone = SimpleNamespace(others_at_work=lambda *_: False)
    catalog = SimpleNamespace(has_kafka=True, config=None, publishing_runs=lambda: alone)
    context = SimpleNamespace(instance=None, run=None, log=SimpleNamespace(error=lambda _: None))
    return KafkaFollower(cast(Any, catalog), cast(Any, context), cast(Any, SimpleNamespace(publish=publish)))


@pytest.mark.parametrize(
    "error", [FencedError("A command has published."), LakeError("It is away."), ValueError("unknown"), "its report"]
)
def test_publishing_begins_again(monkeypatch: pytest.MonkeyPatch, error: Exception | str) -> None:
    monkeypatch.setattr(kafka, "_RETRY_AFTER_S", 0.0)
    monkeypatch.setattr(kafka, "TICK_MARKER", SimpleNamespace(is_away=lambda _: False))
    begun = list[int]()
    again = threading.Event()

    def publish(_note: Callable[..., None], *, ends: Callable[[], bool]) -> None:
        begun.append(len(begun))
        if len(begun) == 1:
            raise error if isinstance(error, Exception) else LakeError("It is away.")
        again.set()
        while not ends():
            pass

    def report(self: KafkaFollower) -> None:
        del self
        if len(begun) == 1 and error == "its report":
            raise OSError("Dagster's storage does not answer.")

    monkeypatch.setattr(KafkaFollower, "_report", report)
    with follower(publish):
        assert again.wait(_LONG_S)
    assert len(begun) == 2
