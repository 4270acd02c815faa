"""How late a database is: the age of what waits, by cause, and the part of the report that shows it."""

from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.clocks import seconds_behind
from cdc_assets.core.lsn import Lsn
from cdc_assets.overview.capture import CaptureOverview
from cdc_assets.overview.report import DatabaseReport, Lag
from cdc_assets.overview.server import DatabaseFacts
from cdc_assets.overview.tables import DatabaseOverview


def database_report(found: DatabaseOverview, overview: CaptureOverview, job: CaptureJob | None) -> DatabaseReport:
    """One database; without a server that answers only up to where it is complete."""
    facts = overview.facts(found.database) if overview.knows(found.database) else None
    if facts is None or facts.problem is not None:
        return DatabaseReport(found.database, found.complete_to)
    # of a database of which nothing is read any more nothing is late, whether a run has recorded that or not
    reached = overview.state.complete_to(found.database) if overview.is_read(found.database) else None
    return DatabaseReport(
        database=found.database,
        complete_to=found.complete_to,
        committed=facts.times.get(found.complete_to) if found.complete_to else None,
        server_time=facts.now,
        newest=facts.newest,
        lag=lag_of(reached, overview.state.planned_until(found.database), facts, job),
        capture_job=(job.trouble or job.unknown or "reads the log") if job else "",
    )


def lag_of(reached: Lsn | None, planned: Lsn | None, facts: DatabaseFacts, job: CaptureJob | None) -> Lag:
    """Lag by cause: how old is what waits. The server's own times of commits are compared with its clock only, so that no other
    clock matters; a capture that reads nothing is late on a quiet database too, and a commit after quiet hours is not.

    Args:
        reached: LSN up to which the lake is complete.
        planned: end of the window in flight, if there is one.
    """
    newest = facts.newest
    unread = min(
        (known for known in (_age(facts, newest), job.quiet if job else None) if known is not None), default=None
    )
    if reached is None:
        return Lag(unread)
    if newest is None or newest <= reached:
        return Lag(unread, 0.0, 0.0)
    behind = _age(facts, facts.unread)
    if planned is None or planned <= reached:
        return Lag(unread, behind, 0.0)
    poll = _age(facts, facts.unplanned) if newest > planned else 0.0
    return Lag(unread) if behind is None or poll is None else Lag(unread, poll, max(0.0, behind - poll))


def _age(facts: DatabaseFacts, commit: Lsn | None) -> float | None:
    """Age of a commit by the server's clock; not known either if that clock was set back since."""
    return seconds_behind(facts.now, facts.times.get(commit) if commit is not None else None)
