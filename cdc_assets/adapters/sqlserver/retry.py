"""Retries of read-only statements: a few times, with growing, jittered waits.

An offline database does not come back within a second, so its error is not retried here; the caller decides. A lock
time-out is not retried either, because the total wait would be a multiple of the configured limit.
"""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from cdc_assets.core import interruption
from cdc_assets.core.outages import warn_seldom
from cdc_assets.core.task_counters import note_retry
from cdc_assets.errors import CdcError, DatabaseAwayError, LockTimeoutError

log = logging.getLogger(__name__)

ATTEMPTS = 4
FIRST_WAIT_S = 0.2
BUDGET_S = 60.0
"""Seconds after the first attempt within which another may begin, so that a statement that times out is not run four
times."""

T = TypeVar("T")


def repeated(action: Callable[[], T], may_retry: Callable[[], bool] = lambda: True, budget_s: float = BUDGET_S) -> T:
    """Run an action, with retries; return its result or raise its last error.

    Args:
        action: function that may be called again after a retryable error.
        may_retry: function called after such an error; says whether to retry.
        budget_s: seconds after the first attempt within which another may begin.

    Raises:
        CdcError: error of the last attempt.
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
                or time.monotonic() - started > budget_s
            ):
                raise
        note_retry(error)
        warn_seldom(log, f"{str(error).rstrip('.')}. Retrying (attempt {attempt + 1} of {ATTEMPTS}).")
        interruption.sleep(FIRST_WAIT_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))  # noqa: S311 - jitter
    return action()
