"""What `cdc-assets capture --follow` waits for, and would end any other run.

Errors that may pass are waited out with `retriable.restart.connector.wait.ms` between attempts, as often in a row as
`errors.max.retries` says: a server that is away at the start, one without room, a capture job that has not scanned the log
yet. The loop over windows does the same for itself; here is what comes before it, and what it gives up. An attempt goes on
where the one before stopped, because the lake says where that was; so nothing is remembered here that a crash could lose.

Settings are read again before each attempt, so a password that was changed is found where `${file:…}` says. A refused one
is not offered again before it has changed: repeating it could lock the login.

A table whose rows could not be read for a lock, a deadlock or a lost connection is asked for again after each pause, while
the others stream.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from cdc_assets import errors
from cdc_assets.capture.progress import ShouldYield, TroubledTable
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.interruption import sleep
from cdc_assets.errors import CdcError, ConfigurationError, CredentialsError, RetryableError

log = logging.getLogger(__name__)

T = TypeVar("T")


class Patience:
    """Repeats what fails for a reason that may pass.

    Args:
        read: gives the settings as the file has them now.
        refers_to_file: whether user or password stand in a file that the settings name.
    """

    def __init__(self, read: Callable[[], CaptureConfig], refers_to_file: Callable[[], bool]) -> None:
        self._read, self._refers_to_file = read, refers_to_file
        self._failures = 0
        self._told = ""

    def progress(self) -> None:
        """Something was achieved: the next failure is the first one again."""
        self._failures, self._told = 0, ""

    def run(self, attempt: Callable[[CaptureConfig], T]) -> T:
        """What an attempt comes to.

        Raises:
            CdcError: of the first attempt that failed for good, or once too often.
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

    def _other_credentials(self, error: CdcError, refused: CaptureConfig) -> CaptureConfig:
        """Settings with others; if they stand in a file, it is waited until it has them."""
        while (found := self._read_again(refused)).connection == refused.connection:
            if not self._refers_to_file():
                raise error
            self._wait(error, refused)
        log.warning("The settings have another user or password by now: they are tried.")
        return found

    def _read_again(self, before: CaptureConfig) -> CaptureConfig:
        """The settings of now; while their files are being written, those of before."""
        try:
            return self._read()
        except ConfigurationError as error:
            log.warning("The settings cannot be read again now, and stay as they were: %s", error)
            return before

    def _wait(self, error: CdcError, settings: CaptureConfig) -> None:
        streaming = settings.streaming
        self._failures += 1
        if 0 <= streaming.max_retries < self._failures:
            raise error
        if type(error).__name__ != self._told:
            log.warning("%s Trying again every %s s.", error, streaming.retry_wait_s)
            self._told = type(error).__name__
        sleep(streaming.retry_wait_s)


def may_pass(failed: Sequence[TroubledTable]) -> bool:
    """Whether one of the tables failed for a reason that may pass; the reason begins with the error's name."""
    kinds = (getattr(errors, trouble.reason.partition(":")[0], None) for trouble in failed)
    return any(isinstance(kind, type) and issubclass(kind, RetryableError) for kind in kinds)


def after(seconds: float) -> ShouldYield:
    """True once so many seconds have passed since it was first asked: what comes before is not the stream's time."""
    end: float | None = None

    def passed() -> bool:
        nonlocal end
        end = end or time.monotonic() + seconds
        return time.monotonic() >= end

    return passed
