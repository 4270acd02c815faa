"""Waits for a client's answers that end soon after a run was interrupted.

A call of librdkafka cannot be interrupted, so each is given a moment only, and is resumed or repeated until its time limit.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from typing import Any, Final, TypeVar

from cdc_assets.core.interruption import Interrupted, check

STEP_S: Final = 0.25
"""Seconds that a call which is resumed may take."""
_REQUEST_S: Final = 1.0
"""Seconds that a request which is repeated may take."""
PATIENCE_S: Final = 1.0
"""Seconds that an outcome is waited for although the run was interrupted: most come at once, and then it is known what is there."""

T = TypeVar("T")


class Wait:
    """One wait, with a time limit.

    Args:
        limit_s: its time limit in seconds.
        patience_s: for how long it lasts although the run was interrupted.
    """

    def __init__(self, limit_s: float, patience_s: float = 0.0) -> None:
        self._until, self._patience_s, self._asked_at = time.monotonic() + limit_s, patience_s, 0.0

    def go_on(self) -> None:
        """Called between two steps.

        Raises:
            TimeoutError: the time limit is over.
            Interrupted: the run is to end.
        """
        now = time.monotonic()
        try:
            check()
        except Interrupted:
            self._asked_at = self._asked_at or now
            if now - self._asked_at >= self._patience_s:
                raise
        if now > self._until:
            raise TimeoutError("it does not answer in time")


def repeated(kafka: Any, request: Callable[[float], T], limit_s: float) -> T:
    """The answer to a request that blocks for so many seconds as it is given.

    Raises:
        KafkaException: there is none within the time limit, or the broker refuses it.
        Interrupted: the run is to end.
    """
    wait = Wait(limit_s)
    while True:
        try:
            return request(min(_REQUEST_S, limit_s))
        except kafka.KafkaException as error:
            if error.args[0].code() not in (
                kafka.KafkaError._TIMED_OUT,
                kafka.KafkaError._TRANSPORT,
            ):  # not yet connected
                raise
            try:
                wait.go_on()
            except TimeoutError:
                raise error from None


def outcome(future: "Future[T]") -> T:
    """What a request to a broker has come to, which has a time limit of its own.

    Raises:
        Exception: of the request.
        Interrupted: the run is to end.
    """
    while True:
        try:
            return future.result(STEP_S)
        except NotYetError:
            if future.done():
                return future.result()
        check()
