"""Says in the log when the server stops reading its own log, or begins again.

Nothing fails then: the maximum LSN stays where it is, and a stream that has nothing to do, or waits for the markers of an
incremental snapshot, looks well for ever (`core.capture_job`). So the question is asked while nothing comes, and only then.
Nothing is kept, so there is nothing that a crash could leave; the next run asks again.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.ports import Clock, Source
from cdc_assets.errors import CdcError

log = logging.getLogger(__name__)

CHECK_EVERY = timedelta(seconds=30)


class JobWatch:
    """Asks how the capture jobs of a capture are getting on."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._checked: dict[str, datetime] = {}
        self._jobs: dict[str, CaptureJob] = {}

    def check(self, databases: Iterable[str]) -> None:
        """Ask, from time to time; a question that fails is left to whoever reads the log."""
        now = self._clock.now()
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
                log.warning("%s. Nothing new comes until then; the stream waits", job.trouble.rstrip("."))
            elif before and before.trouble and not job.trouble:
                log.info("%s: the capture job reads the log again.", database)


def _kind(job: CaptureJob) -> tuple[object, ...]:
    """What distinguishes one trouble from another; the minutes of a standstill do not."""
    return bool(job.trouble), job.agent_running, job.error, job.quiet_s is None
