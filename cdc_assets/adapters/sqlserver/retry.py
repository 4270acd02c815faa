"""Trying again, for a statement that only reads: a few times, with growing, jittered waits, and not for ever.

A database that is offline does not come back within a second: whoever asks decides when to look again. And a lock that
was waited for as long as allowed is not waited for once more, or the limit would be several times what was set.
"""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from cdc_assets.core import interruption
from cdc_assets.errors import CdcError, DatabaseAwayError, LockTimeoutError

log = logging.getLogger(__name__)

ATTEMPTS = 4
FIRST_WAIT_S = 0.2
BUDGET_S = 60.0
"""No attempt begins later than this after the first: a statement that runs into its time-out is not run four times."""

T = TypeVar("T")


def repeated(action: Callable[[], T], may_retry: Callable[[], bool] = lambda: True) -> T:
    """The action's result, or its last error.

    Args:
        action: may be called again after an error that says it is retryable.
        may_retry: asked after such an error.

    Raises:
        CdcError: what the last attempt raised.
    """
    started = time.monotonic()
    for attempt in range(1, ATTEMPTS):
        try:
            return action()
        except CdcError as failure:
            error = failure
            if (
                not error.retryable
                or isinstance(error, DatabaseAwayError | LockTimeoutError)
                or not may_retry()
                or time.monotonic() - started > BUDGET_S
            ):
                raise
        log.warning("%s. It is tried again (attempt %d of %d).", str(error).rstrip("."), attempt + 1, ATTEMPTS)
        interruption.sleep(FIRST_WAIT_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
    return action()
