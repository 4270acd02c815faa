"""How the steps of a capture end: what may be repeated is, what may not stops at once with the way out, what is terminated ends.

*No retry policy.* Dagster applies the policy of a step to its interruption as well: a run that somebody terminates would
begin again, and stay *Canceling* until the monitor gives it up and the sensor starts another one beside it. So a step asks
for its repetition itself, and an interruption goes through untouched: Dagster then tells the run as canceled.

*Nothing stays.* A run that hangs in a place which nobody can interrupt, such as a driver that waits on a dead network, is
told as canceled and killed. That is as harmless as any death (`core.steps`), and better than a writer that nobody sees.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process

import dagster as dg
from dagster import DagsterRunStatus

from cdc_assets.core.interruption import PATIENCE_S, listening
from cdc_assets.defs.process import ended_with_dev
from cdc_assets.errors import CdcError

RETRY = dg.RetryPolicy(max_retries=3, delay=2, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""How often and when a step that failed is repeated, if a repetition may mend it."""


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


@contextmanager
def as_step(context: dg.AssetExecutionContext) -> Iterator[None]:
    """The body of a step: it can be terminated, and is repeated after failures that a repetition may mend.

    Raises:
        dagster.RetryRequested: it failed.
        dagster.Failure: it failed for good.
        Interrupted: the run was asked to end.
    """

    def give_up() -> None:
        _end_process(context)

    with listening(give_up), ended_with_dev():
        try:
            with as_failures():
                yield
        except Exception as error:
            if isinstance(error, dg.Failure) and not error.allow_retries:
                raise
            wait_s = RETRY.calculate_delay(context.retry_number + 1)
            raise dg.RetryRequested(RETRY.max_retries, wait_s) from error


def _end_process(context: dg.AssetExecutionContext) -> None:
    """Kill this process, if it works for this run alone; Dagster's code server sees it and, unless told, takes it for a failure."""
    if parent_process() is None:
        return
    run = context.instance.get_run_by_id(context.run.run_id)
    if run is not None and run.status is DagsterRunStatus.CANCELING:
        reason = f"The run did not come to its end within {PATIENCE_S:.0f} s, so its process was killed; nothing is lost by it."
        context.instance.report_run_canceled(run, reason)
    os.kill(os.getpid(), signal.SIGKILL)
