"""Runs of a capture that wait in Dagster's queue, and what for.

*A clock that was set back:* a run that was made in the future was made before that. It is reported at once, since how long it has waited is not
known, and otherwise it would be reported only when its time has come again.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from dagster import DagsterRun, DagsterRunStatus, RunsFilter

from cdc_assets.core.seldom import Seldom
from cdc_assets.defs.runs import WAITING, CaptureRuns
from cdc_assets.overview.report import Trouble

_AT_WORK = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
_SOON_S = 60.0
"""Seconds that a run may wait before it is reported; and by which clocks of two machines may differ."""
_CHECK_EVERY_S = 1.0
"""Seconds between two checks for a run that waits."""


def waiting_too_long(instance: dg.DagsterInstance, runs: CaptureRuns) -> Iterator[Trouble]:
    """The capture's oldest run that has not started for more than a minute, as a trouble that says what it waits for."""
    found = instance.get_run_records(RunsFilter(statuses=WAITING), ascending=True)
    late = [record for record in found if abs(_age_s(record)) > _SOON_S and runs.concerns(instance, record.dagster_run)]
    for record in late[:1]:
        run, age_s = record.dagster_run, _age_s(record)
        waited = f"for {age_s:.0f} s" if age_s > 0 else "since before the clock was set back"
        yield Trouble(
            "Dagster's queue",
            f"run {run.run_id[:8]} of {run.job_name} has waited {waited}: {_reason(instance, run, runs)}",
        )


def _age_s(record: dg.RunRecord) -> float:
    return time.time() - record.create_timestamp.timestamp()


def _reason(instance: dg.DagsterInstance, run: DagsterRun, runs: CaptureRuns) -> str:
    if run.status is DagsterRunStatus.NOT_STARTED:
        return "Dagster has not started it. Next: see the log of the daemon and of what starts runs"
    working = instance.get_runs(RunsFilter(statuses=_AT_WORK))
    anywhere = runs.of("")  # a pool is known by its name only
    holders = [other for other in working if anywhere.concerns(instance, other)]
    if full := _full(instance, run, [other for other in working if other not in holders]):
        return f"{', '.join(full)} is full. Next: wait for the runs that fill it, or allow more"
    if holders:
        names = ", ".join(f"{other.run_id[:8]} of {other.job_name}" for other in holders)
        return f"{names} holds the pool of the capture. Next: wait for it, or end it if it makes no progress"
    limit = max_runs(instance)
    if limit is not None and len(working) >= limit:
        return (
            f"{len(working)} runs are active, and no more are allowed (concurrency.runs.max_concurrent_runs). "
            "Next: wait for one to end, or allow more"
        )
    return "Dagster's daemon has not taken it. Next: see whether the daemon runs, and its log: a pool or a limit for tags may be full"


def max_runs(instance: dg.DagsterInstance) -> int | None:
    """How many runs Dagster lets work at a time; None if as many as there are."""
    queue = instance.get_concurrency_config().run_queue_config
    return queue.max_concurrent_runs if queue and queue.max_concurrent_runs >= 0 else None


def _full(instance: dg.DagsterInstance, run: DagsterRun, others: Sequence[DagsterRun]) -> list[str]:
    """Pools that a run needs, where Dagster gives pools to whole runs, and limits for its tags, that other runs fill.

    Args:
        others: runs that are at work.
    """
    config, found = instance.get_concurrency_config(), list[str]()
    granularity = config.pool_config.pool_granularity
    if granularity is not None and granularity.value == "run":
        held = Counter(pool for other in others for pool in _pools(other))
        limits = {limit.name: limit.limit for limit in instance.event_log_storage.get_pool_limits()}
        found += [f"pool {pool}" for pool in sorted(_pools(run)) if pool in limits and held[pool] >= limits[pool]]
    of_tags = config.run_queue_config.tag_concurrency_limits if config.run_queue_config else ()
    return found + [f"the limit for tag {limit['key']}" for limit in of_tags if _is_reached(limit, run, others)]


def _is_reached(limit: Mapping[str, Any], run: DagsterRun, others: Sequence[DagsterRun]) -> bool:
    """Whether a limit for runs with a tag lets this run not begin."""
    key, of = limit["key"], limit.get("value")
    own = run.tags.get(key)
    if own is None or (isinstance(of, str) and own != of):
        return False
    is_of_value = isinstance(of, str) or bool(of and of.get("applyLimitPerUniqueValue"))
    same = [other for other in others if key in other.tags and (not is_of_value or other.tags[key] == own)]
    return len(same) >= int(limit["limit"])


def _pools(run: DagsterRun) -> Collection[str]:
    return (run.run_op_concurrency.all_pools or ()) if run.run_op_concurrency else ()


def somebody_waits(runs: CaptureRuns, instance: dg.DagsterInstance, own_run: str) -> Callable[[], bool]:
    """A predicate, evaluated repeatedly: whether another run of the capture waits for the pool that the caller holds, or its place
    among the runs that may be active, and for nothing else. The sensor requests none while one is at work, so that is one that
    somebody has requested.

    Args:
        own_run: id of the caller's run.
    """
    check = Seldom(_CHECK_EVERY_S)

    def waits() -> bool:
        if not check.due() or not (waiting := runs.waiting(instance)):
            return False
        limit, working = max_runs(instance), instance.get_runs(RunsFilter(statuses=_AT_WORK))
        others = [run for run in working if run.run_id != own_run]
        if limit is not None and len(working) >= limit:  # the place that the caller leaves goes to the oldest
            oldest = instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.QUEUED]), limit=1, ascending=True)
            waiting = [run for run in waiting if len(others) < limit and run.run_id in {one.run_id for one in oldest}]
        return any(not _full(instance, run, others) for run in waiting)

    return waits
