"""Logs when SQL Server's capture job stops reading the log, and when it continues.

Nothing fails then: the maximum LSN stays where it is, and a stream that has nothing to do, or waits for the markers of
an incremental snapshot, seems healthy for ever (`core.capture_job`). So the job is checked while no changes arrive, and
only then. *Crash:* no state is kept; the next run checks again.
"""

import logging
from collections.abc import Iterable
from datetime import timedelta

from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.ports import Clock, Source
from cdc_assets.errors import CdcError

log = logging.getLogger(__name__)

CHECK_EVERY = timedelta(seconds=30)


class JobWatch:
    """Checks the capture jobs of a capture."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._checked: dict[str, timedelta] = {}
        self._jobs: dict[str, CaptureJob] = {}

    def check(self, databases: Iterable[str]) -> None:
        """Check the jobs from time to time; a query that fails is ignored, since reading the log will fail too."""
        now = self._clock.elapsed()
        for database in databases:
            if database in self._checked and now - self._checked[database] < CHECK_EVERY:
                continue
            self._checked[database] = now
            try:
                job = self._source.capture_job(database)
            except CdcError:
                continue
            before, self._jobs[database] = self._jobs.get(database), job
            if job.trouble and _kind(job) != (before and _kind(before)):
                log.warning("%s. No changes arrive until then; the stream waits.", job.trouble.rstrip("."))
            elif before and before.trouble and not job.trouble:
                log.info("%s: the capture job reads the log again.", database)


def _kind(job: CaptureJob) -> tuple[object, ...]:
    """What distinguishes one problem from another; its duration does not."""
    return bool(job.trouble), job.agent_running, job.error, job.quiet_s is None
