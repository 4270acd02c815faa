"""Waiting for what other processes do, on a machine that may stand still meanwhile.

A suspended virtual machine or a stopped group of processes is no fault of what is waited for: when it goes on, nothing has had
time to work. So a wait counts what passes between two looks, and of a long pause only so much as a look takes on a loaded machine.
"""

import time
from collections.abc import Callable

_LONGEST_LOOK_S = 15.0


class Patience:
    """Seconds that are left to wait; true while there are some.

    Args:
        seconds: how many of them.
    """

    def __init__(self, seconds: float) -> None:
        self._left, self._looked = seconds, time.monotonic()

    def __bool__(self) -> bool:
        """Count what has passed since the last look."""
        now = time.monotonic()
        self._left -= min(now - self._looked, _LONGEST_LOOK_S)
        self._looked = now
        return self._left > 0


def wait_until(holds: Callable[[], object], seconds: float, told: Callable[[], object], every: float = 0.5) -> None:
    """Look again and again until something holds.

    Args:
        holds: what is waited for.
        seconds: how long at most.
        told: what to say when it has not come.
        every: seconds between two looks.
    """
    patience = Patience(seconds)
    while not holds():
        assert patience, told()
        time.sleep(every)
