"""`cdc-assets capture --follow`: retries errors that would end any other run.

Retryable errors are retried after `retriable.restart.connector.wait.ms`, up to `errors.max.retries` times in a row: a
server that is away at the start or that has no free resources, a capture job that has not scanned the log yet. The loop
over windows does the same for itself; this module covers what comes before the loop, and what the loop gives up. Each
attempt continues where the one before stopped, because that is recorded in the lake; nothing is kept here that a crash
could lose.

Settings are read again before each attempt, so that a changed password is found where `${file:…}` refers to it. A
rejected password is not tried again before it has changed: repeating it could lock the login.

A table whose rows could not be read because of a lock, a deadlock or a lost connection is read again after each pause,
while the other tables stream.
"""

import logging
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from cdc_assets.core.interruption import sleep
from cdc_assets.core.outages import Outages
from cdc_assets.core.task_counters import note_retry
from cdc_assets.errors import CdcError, ConfigurationError, CredentialsError, RetryableError
from cdc_assets.shared.progress import ShouldYield

log = logging.getLogger(__name__)

_CAPTURE = "The capture"

LOGIN = ("database.user", "database.password")
"""Properties that the server checks."""

S = TypeVar("S")
T = TypeVar("T")


class Pace(Protocol):
    """How often and after which pause a failed attempt is repeated."""

    @property
    def retry_wait_s(self) -> float:
        """`retriable.restart.connector.wait.ms` in seconds."""

    @property
    def max_retries(self) -> int:
        """`errors.max.retries`; -1 for ever."""


class Retries(Generic[S]):
    """Repeats attempts that fail for a temporary reason.

    Args:
        read: returns the settings as they are in the file now.
        pace: returns the pace that the settings give.
        login: returns what the server must accept; compared only.
        refers_to_file: whether the settings take user or password from a file.
    """

    def __init__(
        self,
        read: Callable[[], S],
        pace: Callable[[S], Pace],
        login: Callable[[S], object],
        refers_to_file: Callable[[], bool],
    ) -> None:
        self._read, self._pace, self._login, self._refers_to_file = read, pace, login, refers_to_file
        self._failures, self._outages = 0, Outages()

    def progress(self) -> None:
        """Reset the number of failures after something was committed."""
        self._failures = 0
        self.answered()

    def answered(self) -> None:
        """Tell the end of an outage, if there was one."""
        self._outages.end(_CAPTURE)

    def run(self, attempt: Callable[[S], T]) -> T:
        """Result of the first attempt that succeeds.

        Raises:
            CdcError: an attempt failed with an error that is not retryable, or failed too often.
        """
        settings = self._read()
        while True:
            try:
                return attempt(settings)
            except RetryableError as error:
                self._wait(error, settings)
                settings = self._read_again(settings)
            except CredentialsError as error:
                settings = self._other_credentials(error, settings)

    def _other_credentials(self, error: CdcError, refused: S) -> S:
        """Settings with other credentials; if these come from a file, wait until it has them."""
        while self._login(found := self._read_again(refused)) == self._login(refused):
            if not self._refers_to_file():
                raise error
            self._wait(error, refused)
        log.warning("The settings have another user or password now; trying again with it.")
        return found

    def _read_again(self, before: S) -> S:
        """The current settings; the previous ones while their file is being written."""
        try:
            return self._read()
        except ConfigurationError as error:
            log.warning("The settings cannot be read now; continuing with the previous ones: %s", error)
            return before

    def _wait(self, error: CdcError, settings: S) -> None:
        streaming = self._pace(settings)
        note_retry(error)
        self._failures += 1
        if 0 <= streaming.max_retries < self._failures:
            raise error
        self._outages.report(log, _CAPTURE, error, f"Retrying every {streaming.retry_wait_s} s.")
        sleep(streaming.retry_wait_s)


def limits(follow: bool, idle: float | None) -> dict[str, Any]:
    """When a run ends, where the command says something else than the settings: fields of both kinds of settings."""
    if follow:
        return {"idle_timeout_s": 0.0, "max_duration_s": 0.0}
    return {} if idle is None else {"idle_timeout_s": idle}


def after(seconds: float) -> ShouldYield:
    """A predicate that becomes True this many seconds after its first call, so that time before the stream does not count."""
    end: float | None = None

    def passed() -> bool:
        nonlocal end
        end = end or time.monotonic() + seconds
        return time.monotonic() >= end

    return passed
