"""How many events were published lately."""

import time
from collections import deque

from cdc_assets.publish.offset import RATE_S


class Rate:
    """Events per second, the mean of the last `RATE_S` seconds."""

    def __init__(self) -> None:
        self._recent = deque[tuple[float, int]]()

    def add(self, rows: int) -> None:
        """Count what was committed just now."""
        self._recent.append((time.monotonic(), rows))

    def per_second(self, more: int = 0) -> float:
        """Events per second.

        Args:
            more: those that are about to be committed.
        """
        oldest = time.monotonic() - RATE_S
        while self._recent and self._recent[0][0] < oldest:
            self._recent.popleft()
        return round((more + sum(rows for _, rows in self._recent)) / RATE_S, 3)
