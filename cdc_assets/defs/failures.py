"""How the steps of a capture end: retryable failures are retried, others end the step at once, terminated runs are canceled.

*No retry policy.* Dagster applies the retry policy of a step to its interruption as well: a terminated run would start
again, and stay *Canceling* until the monitor gives it up and the sensor starts another one beside it. So a step
requests its retry itself, and an interruption passes unchanged: Dagster then reports the run as canceled.

*A step begins* by recording itself and the process of its run, and that nothing is committed yet: a re-execution has its parent's tags.

*No run hangs.* A run that hangs where it cannot be interrupted, such as in a driver that waits for a dead network, is
reported as canceled and killed. That is as safe as any crash (`core.steps`), and better than an invisible writer.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process

import dagster as dg
from dagster import DagsterRunStatus

from cdc_assets.core.interruption import PATIENCE_S, listening
from cdc_assets.defs.process import ended_with_dev, process_of_run, process_tag
from cdc_assets.defs.runs import COMMITTED_TAG, LEFT_AT_TAG, MADE_WAY_TAG, PROGRESS_TAG, step_tag
from cdc_assets.defs.tags import tag_run
from cdc_assets.errors import CdcError

RETRY = dg.RetryPolicy(max_retries=3, delay=2, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
"""Number and delays of a step's retries after a retryable failure."""


@contextmanager
def as_failures() -> Iterator[None]:
    """Turn any `CdcError` into a `dagster.Failure`, which is retried only if the error is retryable.

    Raises:
        dagster.Failure: has the error's message as description and its class as metadata.
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
    """The body of a step: it can be terminated, and is retried after retryable failures.

    Raises:
        dagster.RetryRequested: it failed and is retried.
        dagster.Failure: it failed and is not retried.
        Interrupted: the run was to end.
    """

    def give_up() -> None:
        _end_process(context)

    run = context.run
    inherited = {tag: "" for tag in (COMMITTED_TAG, LEFT_AT_TAG, MADE_WAY_TAG, PROGRESS_TAG) if run.tags.get(tag)}
    own = process_tag(run.run_id, process_of_run(context)) | step_tag(context.op_execution_context.op_handle.name)
    tag_run(context.instance, run.run_id, own | inherited)

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
    """Kill this process if it only serves this run; without a report, Dagster's code server would count it as a failure."""
    if parent_process() is None:
        return
    run = context.instance.get_run_by_id(context.run.run_id)
    if run is not None and run.status is DagsterRunStatus.CANCELING:
        reason = f"The run did not end within {PATIENCE_S:.0f} s, so its process was killed; no data is lost."
        context.instance.report_run_canceled(run, reason)
    os.kill(os.getpid(), signal.SIGKILL)
