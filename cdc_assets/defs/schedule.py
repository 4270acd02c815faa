"""When a sensor starts the next run: pauses after the runs that have ended, and how a tick waits for the next change.

*Run keys.* `capture:epoch:LSN`, where the epoch is the id of the previous run. A
repeated tick requests the same key and so starts nothing; a run that died
or stopped for another one changes the epoch, so the same LSN can be requested again.

*After a failure.* A run whose process was killed is restarted at once, unless that was the third in a row that ended so, whatever
keeps killing them: then a pause of at most a minute counts from its start, so one that has worked for long is still restarted
at once. A run that failed for another reason would fail again: the pause doubles with each
failure in a row, up to `LONGEST_PAUSE`. One that had committed windows before it failed begins a new row: a stream that works for
hours between two outages would else wait for minutes after each. A run that
committed everything but failed one table's check, or could not read one table,
does not delay the next run: the other tables must not wait for it. Tables that
could not be read are retried after such a pause of their own, while the others are streamed;
so are tables of the loaded code location that are not on the server now.

*A clock that was set back.* Pauses count from the ends of runs, as they are recorded. A run that ended in the future ended
before the clock was set back, and nothing is paused after it.

*After a termination.* A terminated run should not be followed by the next one at once: the sensor waits for
`AFTER_TERMINATION`, and says so.

*An idle capture.* Dagster's daemon evaluates a sensor every five seconds, whatever its interval is, so that a change waited for 2.5 seconds in
the median. A tick that finds nothing therefore repeats a small question to each database every `poll.interval.ms` over one connection, for
`sensor.wait.ms` in all, which ends before the daemon's next evaluation. What it then answers is decided from the beginning, as by a tick that
begins at that moment: a run may have been started by hand meanwhile. A waiting tick holds a thread of the daemon and one of the code server.
So one capture of a code location waits at a time, and none if the daemon evaluates all sensors in one thread (`sensors: {use_threads: true}` in
`dagster.yaml` is needed), or if the sensor is evaluated by a program and not by the daemon.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from time import monotonic, sleep

import dagster as dg
from dagster import DagsterRunStatus

from cdc_assets.core.lsn import Lsn
from cdc_assets.defs.runs import COMMITTED_TAG, FAILURE_REASON_TAG, MADE_WAY_TAG, PROGRESS_TAG, CaptureRuns
from cdc_assets.errors import CdcError

AFTER_TERMINATION = timedelta(minutes=1)
"""Time for a user who terminated a run to stop the sensor before the next run starts."""
FIRST_PAUSE = timedelta(seconds=15)
LONGEST_PAUSE = timedelta(minutes=15)
_LONGEST_AFTER_KILLS = timedelta(minutes=1)
"""Runs that are killed may have committed much, which nothing on them says."""
_AHEAD = timedelta(minutes=1)
"""How much the clock of a machine may be ahead of another's."""
MAX_FAILURES = 10
"""Maximum number of failures in a row that are counted."""
_OWN_FAILURES = frozenset({"STEP_FAILURE", "RUN_EXCEPTION", "JOB_INITIALIZATION_FAILURE"})
"""Dagster's reasons of runs that would fail again: in a step, in a resource, or before both."""
_MANY = 3
"""Runs in a row that have ended without a word, after which that is a trouble: one that was killed is only restarted; or that have
made way for another code location."""
_TURN = threading.Lock()

Asks = Callable[[], bool]
"""Whether something has come that was not read; one cheap query."""
Records = Sequence[dg.RunRecord]
"""Records of ended runs, newest first."""


def pause_of(runs: CaptureRuns, instance: dg.DagsterInstance) -> tuple[Records, str]:
    """The newest ended runs of a capture, and why no run may start now; empty if one may."""
    if active := runs.active(instance):
        return (), f"Run {active[0].run_id[:8]} of {active[0].job_name} is still running."
    records, why = runs.finished(instance, MAX_FAILURES), ""
    if again := terminated_until(records):
        why = f"The last run was terminated; the next starts after {again:%H:%M:%S} UTC, unless this sensor is stopped."
    elif ends := pause_ends(records):
        why = f"The last run failed; the next starts after {ends:%H:%M:%S} UTC."
    return records, why


def waits_until(records: Records, pause: timedelta) -> datetime | None:
    """The end of a pause after the newest of some runs; None if it is over, or that run ended in the future."""
    ended = records[0].end_time if records else None
    if ended is None:
        return None
    end, now = datetime.fromtimestamp(ended, UTC), datetime.now(UTC)
    return end + pause if end <= now + _AHEAD and end + pause > now else None


def retry_time(records: Records, tag: str, what: str) -> datetime | None:
    """Time from which a run may start for the same reason as the last one; None if now."""
    is_same = bool(records) and records[0].dagster_run.tags.get(tag) == what
    return waits_until(records, FIRST_PAUSE) if is_same else None


def growing_retry_time(records: Records, tag: str, what: str | None = None) -> datetime | None:
    """Time from which a run may start for a reason that the runs before did not end; None if now. The pause doubles with
    each run in a row that was started for it.

    Args:
        what: the reason; None takes any that the tag names.
    """
    values = (record.dagster_run.tags.get(tag) for record in records)
    tries = len(list(takewhile(lambda value: value is not None and what in (None, value), values)))
    return waits_until(records, _doubled(tries))


def pause_ends(records: Records, *, of_any_kind: bool = False) -> datetime | None:
    """Time from which the next run may start after failures; None if now.

    Args:
        of_any_kind: whether to count runs too that failed only for some of their tables, or that could read none.
    """
    failures = failures_in_a_row(records, of_any_kind=of_any_kind)
    pause = _doubled(failures - 1) if failures else timedelta()
    if ended := ended_in_a_row(records):
        pause = max(pause, min(_LONGEST_AFTER_KILLS, _doubled(len(ended) - _MANY)) - _lasted(ended[0]))
    return waits_until(records, pause) if pause > timedelta() else None


def _lasted(record: dg.RunRecord) -> timedelta:
    """How long a run has worked, as far as that is recorded."""
    start, end = record.start_time, record.end_time
    return timedelta(seconds=max(0.0, end - start)) if start is not None and end is not None else timedelta()


def _doubled(times: int) -> timedelta:
    """The first pause, doubled so many times."""
    pause: timedelta = min(LONGEST_PAUSE, FIRST_PAUSE * 2**times)
    return pause


def terminated_until(records: Records) -> datetime | None:
    """Time from which the next run may start if the last one was terminated; None if now."""
    is_terminated = bool(records) and records[0].dagster_run.status is DagsterRunStatus.CANCELED
    return waits_until(records, AFTER_TERMINATION) if is_terminated else None


def streaming_starts(records: Records, snapshot: str, delay_s: float) -> datetime | None:
    """Time at which the delay after a snapshot run ends; None if it is over, or another run ended since.

    Args:
        snapshot: name of the snapshot job.
        delay_s: `streaming.delay.ms` in seconds.
    """
    is_snapshot = delay_s > 0 and bool(records) and records[0].dagster_run.job_name == snapshot
    return waits_until(records, timedelta(seconds=delay_s)) if is_snapshot else None


def failures_in_a_row(records: Records, *, of_any_kind: bool = False) -> int:
    """Number of the newest runs in a row that failed for a reason of their own; one that had committed windows before is the
    first of its row."""
    count = 0
    for record in records:
        run = record.dagster_run
        if run.status is DagsterRunStatus.FAILURE and (not run.tags.get(COMMITTED_TAG) or of_any_kind):
            count += run.tags.get(FAILURE_REASON_TAG) in _OWN_FAILURES
            if run.tags.get(PROGRESS_TAG):
                break
        elif run.status is DagsterRunStatus.SUCCESS and run.tags.get(COMMITTED_TAG) == "0" and of_any_kind:
            count += 1
        else:
            break
    return count


def ended_in_a_row(records: Records) -> Records:
    """The newest runs in a row that failed for whatever reason and did not say that they had committed anything; none if they
    are few."""
    found = list(takewhile(lambda record: _is_fruitless(record.dagster_run), records))
    return found if len(found) >= _MANY else []


def _is_fruitless(run: dg.DagsterRun) -> bool:
    return run.status is DagsterRunStatus.FAILURE and not (run.tags.get(COMMITTED_TAG) or run.tags.get(PROGRESS_TAG))


def made_way_for(records: Records) -> str:
    """The code location for whose runs each of the newest ones has stopped; empty if not all have, or they are few."""
    others = [record.dagster_run.tags.get(MADE_WAY_TAG, "") for record in records[:_MANY]]
    return others[0] if len(others) == _MANY and all(others) else ""


def is_failing(records: Records) -> bool:
    """Whether the last run failed for a reason of its own, or as one of many in a row: the page says so until another one reports."""
    return bool(failures_in_a_row(records[:1]) or ended_in_a_row(records))


def run_key(capture: str, records: Records, what: Lsn | str) -> str:
    """Key of a run; see the module's head."""
    epoch = records[0].dagster_run.run_id[:8] if records else "first"
    return f"{capture}:{epoch}:{what}"


def change_comes(
    context: dg.SensorEvaluationContext,
    began: float,
    wait_s: float,
    every_s: float,
    connected: Callable[[], AbstractContextManager[Asks]],
) -> bool:
    """Wait, if this tick may, until something has come that was not read; returns whether it has.

    Args:
        began: when the tick began, on the monotonic clock.
        wait_s: how long a tick may take.
        every_s: interval between two questions.
        connected: opens a connection over which the questions are sent.
    """
    until = began + wait_s
    if monotonic() + every_s >= until or not _may_wait(context) or not _TURN.acquire(blocking=False):
        return False
    try:
        with suppress(CdcError), connected() as has_come:  # the next tick reports it, if it lasts
            while monotonic() + every_s < until:
                sleep(every_s)
                if has_come():
                    return True
    finally:
        _TURN.release()
    return False


def _may_wait(context: dg.SensorEvaluationContext) -> bool:
    """Whether the daemon evaluates the sensor, in a thread that others do not wait for."""
    return context.instance_ref is not None and bool(context.instance.get_sensor_settings().get("use_threads"))
