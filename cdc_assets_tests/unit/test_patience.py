"""The wait of the long suites."""

import itertools
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from cdc_assets_tests.patience import wait_until


@pytest.fixture
def sleeps() -> Iterator[list[float]]:
    """A clock on which nothing takes time but sleeping; the sleeps, to which a test may add longer ones."""
    done: list[float] = []
    with (
        patch("cdc_assets_tests.patience.time.sleep", done.append),
        patch("cdc_assets_tests.patience.time.monotonic", lambda: sum(done)),
    ):
        yield done


def test_what_comes_is_waited_for(sleeps: list[float]) -> None:
    wait_until(lambda: len(sleeps) == 5, 10, lambda: "not told")
    assert sleeps == [0.5] * 5


def test_what_does_not_come_is_told_when_the_time_is_over(sleeps: list[float]) -> None:
    with pytest.raises(AssertionError, match="nothing came"):
        wait_until(lambda: False, 10, lambda: "nothing came")
    assert sum(sleeps) == 10


def test_a_machine_that_stood_still_has_not_used_the_time_up(sleeps: list[float]) -> None:
    looks = itertools.count()

    def holds() -> bool:
        if (look := next(looks)) == 3:
            sleeps.append(600)
        return look == 20

    wait_until(holds, 30, lambda: "given up")


def test_looks_that_take_long_use_the_time_up(sleeps: list[float]) -> None:
    with pytest.raises(AssertionError):
        wait_until(lambda: sleeps.append(12), 30, lambda: "given up")
    assert sum(sleeps) < 60
