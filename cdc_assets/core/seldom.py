"""What is done at most once in so many seconds, wherever a loop comes by more often."""

from time import monotonic


class Seldom:
    """Says at most once in so many seconds that something is due."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._next = seconds, 0.0

    def due(self) -> bool:
        """Whether it is; counted from here if so."""
        now = monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
