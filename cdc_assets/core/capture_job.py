"""Health of SQL Server's capture job, which reads the log.

A stopped SQL Server Agent raises no error anywhere: the maximum LSN stays where it is, and a capture that has reached
it seems healthy although its tables get old (spec sqlserver-cdc §1.4 no. 12, scenario 1).
"""

import math
from dataclasses import dataclass

from cdc_assets.core.clocks import CLOCK_SKEW_S
from cdc_assets.core.identifiers import quote

_QUIET_S = 15 * 60
"""Limit in seconds without a new entry; a healthy job adds one every five minutes."""


@dataclass(frozen=True, slots=True)
class CaptureJob:
    """The job that reads a database's log into its change tables.

    Args:
        agent_running: whether the SQL Server Agent runs; None if unknown, as on Azure SQL.
        quiet_s: seconds since the newest entry of `cdc.lsn_time_mapping`, to which a healthy job adds one every few
            minutes even if nothing changes; None before the first scan; negative if the clock was set back after it.
        error: reason for which the newest scan failed; empty if it succeeded or the login may not see the reason.
        problem: reason for which the database could not be queried, with the next step; empty if it was queried.
    """

    database: str
    agent_running: bool | None
    quiet_s: int | None
    error: str = ""
    problem: str = ""

    @property
    def quiet(self) -> float | None:
        """Seconds without a new entry; None if not known."""
        return None if self.quiet_s is None or self.quiet_s < -CLOCK_SKEW_S else float(max(0, self.quiet_s))

    @property
    def unknown(self) -> str:
        """Why it is unknown whether the job works, and the next step; empty if it is known."""
        if self.trouble or self.quiet_s is None or self.quiet is not None:
            return ""
        return (
            f"{self.database}: whether the capture job reads the log is not known: the server's clock was set back, and the job "
            "has added no entry to cdc.lsn_time_mapping since. Next: wait five minutes; if it still says so, see the job"
        )

    @property
    def trouble(self) -> str:
        """The problem and the next step; empty if the job works."""
        if self.problem:
            return self.problem
        if self.agent_running is False:
            return f"{self.database}: the SQL Server Agent is stopped. Next: start the service"
        if self.error:
            return f"{self.database}: the capture job fails: {self.error}. Next: fix the cause; see sys.dm_cdc_errors"
        start = f"Next: USE {quote(self.database)}; EXEC sys.sp_cdc_start_job @job_type = N'capture';"
        if self.quiet_s is None:
            return f"{self.database}: the capture job has never scanned the log. {start}"
        if self.quiet_s > _QUIET_S:
            limit = 15 * 2 ** int(math.log2(self.quiet_s / _QUIET_S))  # not another text, and record, at each minute
            return (
                f"{self.database}: the capture job has added no entry to cdc.lsn_time_mapping for more than {limit} minutes; it "
                f"has stopped or is reading one very long transaction. {start}"
            )
        return ""
