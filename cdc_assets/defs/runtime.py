"""Lets a run that makes progress outlast Dagster's limit for runs.

`run_monitoring.max_runtime_seconds` ends runs that no longer report, such as those of a host that died, which would keep their
pool for ever. A first snapshot may take longer than any such limit, and with an isolation of one moment it would begin again each time.
So a run moves its own limit while it commits: it counts from the last commit, and not from the start. One that commits nothing is ended
as before. A limit that a user has set for a run is kept.

*Crash:* the tag stays as it is, and the limit counts from the last commit.
"""

from time import monotonic, time
from typing import Final

import dagster as dg

from cdc_assets.defs.tags import tag_run

_MOVED_TAG: Final = ".dagster/cdc_runtime"
"""On a run whose limit was moved by this module, and on one that has its tags."""
_EVERY_S: Final = 600.0
"""Most seconds between two moves; a quarter of a limit that is shorter, or a run would meet its end before the next one."""


class Runtime:
    """The time that a run may take."""

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self._instance, self._run_id = context.instance, context.run.run_id
        self._began, self._next = time(), 0.0
        is_given = dg.MAX_RUNTIME_SECONDS_TAG in context.run.tags and _MOVED_TAG not in context.run.tags
        self._limit_s = 0 if is_given else context.instance.run_monitoring_max_runtime_seconds

    def note_progress(self) -> None:
        """Called after each commit."""
        if self._limit_s <= 0 or monotonic() < self._next:
            return
        self._next = monotonic() + min(_EVERY_S, self._limit_s / 4)
        record = self._instance.get_run_record_by_id(self._run_id)
        began = record.start_time if record and record.start_time else self._began
        until = str(int(time() - began) + self._limit_s)
        tag_run(self._instance, self._run_id, {dg.MAX_RUNTIME_SECONDS_TAG: until, _MOVED_TAG: "true"})
