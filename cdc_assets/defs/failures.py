"""Our errors as Dagster failures: what may be repeated is, what may not stops at once with the way out."""

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from cdc_assets.errors import CdcError

RETRY = dg.RetryPolicy(max_retries=3, delay=2, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""For failures that a repetition may mend; `as_failures` stops the others."""


@contextmanager
def as_failures() -> Iterator[None]:
    """Turn any `CdcError` into a `dagster.Failure` that is retried only if the error says that this can help.

    Raises:
        dagster.Failure: with the error's text as description and its class as metadata.
    """
    try:
        yield
    except CdcError as error:
        raise dg.Failure(
            description=str(error),
            metadata={"error": type(error).__name__, "retryable": error.retryable},
            allow_retries=error.retryable,
        ) from error
