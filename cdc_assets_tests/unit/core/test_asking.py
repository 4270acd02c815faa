"""A question that hangs is asked once, whoever waits for its answer."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cdc_assets.core.asking import Asking


def test_two_who_wait_get_the_same_answer() -> None:
    """The second one failed, though the answer was there: the daemon's tick, or that of a person who tests the sensor."""
    for number in range(20):
        asking, began, goes_on = Asking[int]("question"), threading.Event(), threading.Event()

        def question(number: int = number, began: threading.Event = began, goes_on: threading.Event = goes_on) -> int:
            began.set()
            assert goes_on.wait(60)
            return number

        with ThreadPoolExecutor(2) as pool:
            answers = [pool.submit(asking.ask, question, 60) for _ in range(2)]
            assert began.wait(60)
            goes_on.set()
        assert {answer.result() for answer in answers} == {number}
        assert not asking.is_under_way


def test_answer_that_comes_late_is_that_of_the_next_one() -> None:
    asking, goes_on = Asking[str]("question"), threading.Event()

    def late() -> str:
        assert goes_on.wait(60)
        raise ValueError("late")

    assert asking.ask(late, 0.0) is None
    assert asking.is_under_way
    goes_on.set()
    with pytest.raises(ValueError, match="late"):
        asking.ask(lambda: "another", 60)
    assert asking.ask(lambda: "another", 60) == "another"
