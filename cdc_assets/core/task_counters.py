"""Counts what no event shows: values and updates that a task changed or left out, and retries of this process.

`counting` collects what the code that it encloses counts, in one thread; a task returns it with its result, so that only what is
committed is counted. Retries belong to no result: they are counted for the whole process.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Final

NULLED: Final = "nulled"
"""Values that fit no event and became null (`event.converting.failure.handling.mode`)."""
UNCHANGED: Final = "unchanged"
"""Updates that changed nothing visible and were left out (`skip.messages.without.change`)."""
UNAVAILABLE: Final = "unavailable"
"""Values that the log does not hold, replaced by `unavailable.value.placeholder`."""
TRANSACTIONS: Final = "transactions"
"""Transactions, if `provide.transaction.metadata` is on."""

_open: ContextVar[Counter[str] | None] = ContextVar("counts", default=None)
_retries: Counter[str] = Counter()
_lock = Lock()


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Collect what is counted inside of the block."""
    counts: Counter[str] = Counter()
    token = _open.set(counts)
    try:
        yield counts
    finally:
        _open.reset(token)


def count(name: str, number: int) -> None:
    """Add to a count of the enclosing `counting`; without one nothing is counted."""
    counts = _open.get()
    if counts is not None and number:
        counts[name] += number


def note_retry(error: Exception) -> None:
    """Count a retry; its cause is the error's class."""
    with _lock:
        _retries[type(error).__name__] += 1


def retries() -> Mapping[str, int]:
    """Retries of this process by cause."""
    with _lock:
        return dict(_retries)
