"""Repetition is bounded in number and in time, and only for errors that it can mend."""

import pytest

from cdc_assets.adapters.sqlserver import retry as sqlserver_retry
from cdc_assets.adapters.sqlserver.retry import ATTEMPTS, repeated
from cdc_assets.errors import CdcError, LockTimeoutError, QueryError, ServerBusyError


class Failing:
    def __init__(self, *errors: CdcError) -> None:
        self.errors, self.calls = list(errors), 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(sqlserver_retry.interruption, "sleep", found.append)
    return found


def busy(times: int) -> Failing:
    return Failing(*(ServerBusyError(str(number)) for number in range(times)))


def test_waits_grow(waits: list[float]) -> None:
    assert repeated(busy(3)) == "done"
    assert len(waits) == 3
    assert 0.1 <= waits[0] <= 0.3
    assert 0.4 <= waits[2] <= 1.2


def test_gives_up() -> None:
    action = busy(100)
    with pytest.raises(ServerBusyError, match=str(ATTEMPTS - 1)):
        repeated(action)
    assert action.calls == ATTEMPTS


@pytest.mark.parametrize("kind", [QueryError, LockTimeoutError])
def test_terminal_errors_and_locks_that_were_waited_for_are_raised_at_once(kind: type[CdcError]) -> None:
    action = Failing(kind("no"))
    with pytest.raises(kind):
        repeated(action)
    assert action.calls == 1


def test_not_when_the_caller_says_no() -> None:
    action = busy(1)
    with pytest.raises(ServerBusyError):
        repeated(action, may_retry=lambda: False)


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0.0, 61.0])
    monkeypatch.setattr(sqlserver_retry.time, "monotonic", lambda: next(moments))
    action = busy(5)
    with pytest.raises(ServerBusyError, match="0"):
        repeated(action)
    assert action.calls == 1
