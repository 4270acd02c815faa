"""Reads what comes next while the last is used, over all topics with a few threads and within bounds.

A publisher has an iterator for each topic, all of them open at once. So the threads are of the process, and only so many results wait
as there is room; where there is none, the next one is made when it is requested. An iterator that is dropped waits for what it has begun.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import BoundedSemaphore
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_POOL: Final = ThreadPoolExecutor(2, "prefetch")
_ROOM: Final = BoundedSemaphore(4)


def prefetched(makers: Iterable[Callable[[], T]]) -> Iterator[T]:
    """What each makes, in their order; the next one is made while the last one is used, if there is room."""
    remaining = iter(makers)
    first = next(remaining, None)
    if first is None:
        return
    made = first()
    for make in remaining:
        following = _Following(make)
        try:
            yield made
            made = following.take()
        finally:
            following.drop()
    yield made


class _Following(Generic[T]):
    """What comes next: begun already, if there was room."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._begun: Future[T] | None = _POOL.submit(make) if _ROOM.acquire(blocking=False) else None

    def take(self) -> T:
        if self._begun is None:
            return self._make()
        begun = self._begun
        self.drop(cancel=False)
        return begun.result()

    def drop(self, *, cancel: bool = True) -> None:
        if self._begun is not None:
            if not (cancel and self._begun.cancel()):
                wait([self._begun])
            self._begun = None
            _ROOM.release()
