"""Lets code that has to end in time send queries that may hang: a tick of a sensor, a scrape of metrics.

Dagster gives a tick sixty seconds; after that its answer is lost, and what it has found with it. A server, a lake or a broker that
does not answer may keep it for longer, whatever time-outs drivers have. So it queries in a thread, and waits for it for a while. What
is not answered by then is not asked a second time: the next one waits for the same answer, and not long, since it has been late already.

*Two at a time* get one answer: the daemon's tick, and that of a person who tests the sensor.

*Crash:* no state is kept.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from datetime import UTC, datetime
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")

_OVERDUE_S, _LONGEST_OVERDUE_S = 10.0, 20.0
"""Seconds after which an answer that has not come is a trouble; the more if the one before it lasted, up to the second."""


def overdue_s(took_s: float) -> float:
    """Seconds after which a missing answer is reported.

    Args:
        took_s: for which the answer before it was waited.
    """
    return max(_OVERDUE_S, min(_LONGEST_OVERDUE_S, 3 * took_s))


class Asking(Generic[T]):
    """Queries one question at a time.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._under_way: Future[T] | None = None
        self.since = datetime.now(UTC)
        """When the newest question was queried."""

    @property
    def is_under_way(self) -> bool:
        """Whether a question has no answer yet."""
        return self._under_way is not None

    def ask(self, question: Callable[[], T], patience_s: float) -> T | None:
        """The answer, or that of an earlier question that had none yet; None if it does not come in time.

        Raises:
            Exception: the question's own.
        """
        with self._lock:
            if self._under_way is None:
                self.since = datetime.now(UTC)
                self._under_way = begun(self._name, question)
            pending = self._under_way
        if not wait([pending], patience_s).done:
            return None
        with self._lock:
            if self._under_way is pending:
                self._under_way = None
        return pending.result()


def begun(name: str, work: Callable[[], T], pause_s: float = 0.0) -> Future[T]:
    """Work in a thread, which lasts as long as the process at most.

    Args:
        pause_s: seconds after which it begins.
    """
    found = Future[T]()

    def do() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - who waits for the result gets it
            outcome = partial(found.set_exception, error)
        else:
            outcome = partial(found.set_result, result)
        outcome()

    thread = threading.Timer(pause_s, do)
    thread.name, thread.daemon = name, True
    thread.start()
    return found
