"""How SQL Server's own reader of the log is getting on.

A stopped SQL Server Agent raises no error anywhere: the maximum LSN stays where it
is, and whoever is complete to it looks healthy while its tables grow old (spec
sqlserver-cdc §1.4 no. 12, scenario 1).
"""

from dataclasses import dataclass

from cdc_assets.core.identifiers import quote

_QUIET_S = 15 * 60
"""A healthy job makes an entry every five minutes."""


@dataclass(frozen=True, slots=True)
class CaptureJob:
    """The job that reads a database's log into its change tables.

    Args:
        agent_running: whether the SQL Server Agent runs; None if it cannot be told, as on Azure SQL.
        quiet_s: seconds since the newest entry of `cdc.lsn_time_mapping`, of which a healthy job makes one every few
            minutes even if nothing changes; None before its first scan.
        error: why the newest scan failed; empty if it did not, or the login may not see it.
        problem: why the database could not be asked, with the next step; empty if it was.
    """

    database: str
    agent_running: bool | None
    quiet_s: int | None
    error: str = ""
    problem: str = ""

    @property
    def trouble(self) -> str:
        """What is wrong, and the next step; empty if the log is read."""
        if self.problem:
            return self.problem
        if self.agent_running is False:
            return f"{self.database}: the SQL Server Agent is stopped. Next: start the service"
        if self.error:
            return f"{self.database}: the capture job fails: {self.error}. Next: mend the cause; see sys.dm_cdc_errors"
        start = f"Next: USE {quote(self.database)}; EXEC sys.sp_cdc_start_job @job_type = N'capture';"
        if self.quiet_s is None:
            return f"{self.database}: the capture job has never scanned the log. {start}"
        if self.quiet_s > _QUIET_S:
            minutes = self.quiet_s // 60
            return (
                f"{self.database}: the capture job has made no entry for {minutes} minutes; it stands still, or reads "
                f"one very long transaction. {start}"
            )
        return ""
