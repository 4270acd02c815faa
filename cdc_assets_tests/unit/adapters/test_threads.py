"""The thread runner keeps order and stops at the first error."""

import threading
import time

import pytest

from cdc_assets.adapters.threads import LocalRunner
from cdc_assets_tests.jobs import JOB


def test_results_in_task_order() -> None:
    def slow_first(number: int) -> int:
        time.sleep(0.02 if number == 0 else 0)
        return number * number

    assert LocalRunner(3).run(slow_first, range(6), JOB) == [0, 1, 4, 9, 16, 25]
    assert LocalRunner(3).run(slow_first, [], JOB) == []
    assert LocalRunner().parallelism >= 1


def test_tasks_run_at_once() -> None:
    barrier = threading.Barrier(2, timeout=240)
    assert LocalRunner(2).run(lambda _: barrier.wait() >= 0, [1, 2], JOB) == [True, True]


def test_first_error_is_raised_after_the_others_stopped() -> None:
    started: list[int] = []
    ended: list[int] = []

    def task(number: int) -> None:
        started.append(number)
        if number == 0:
            raise ValueError("first")
        time.sleep(0.05)
        ended.append(number)

    with pytest.raises(ValueError, match="first"):
        LocalRunner(2).run(task, range(50), JOB)
    assert sorted(started[1:]) == sorted(ended)
    assert len(started) < 50
