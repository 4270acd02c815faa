"""The check `health` of every capture: what its page says, as a check.

Other checks are about one thing each, and can be right while the capture is in trouble: a mirror cannot follow, no run publishes, a right on one
change table was taken away, a run waits in a queue, an expression matches nothing. This one is made of the report that is the
page, where that is shown. So it passes only if that is healthy, or at work without need for anybody to act.
"""

from collections.abc import Iterator

from cdc_assets.overview.checks.check import Check, Facts, Subject, Verdict
from cdc_assets.overview.report import STOPPED, CaptureReport

_MAX_NAMED = 20


def health_result(report: CaptureReport) -> Verdict:
    """Fails if somebody has to act; warns if something is not known, or late. A snapshot that is being read is neither."""
    found = list(_found(report))
    more = [f"And {len(found) - _MAX_NAMED} more."] if len(found) > _MAX_NAMED else []
    text = "\n".join([*found[:_MAX_NAMED], *more]) or "No action is needed."
    facts = {"troubles": len(report.troubles), "unknown": len(report.unknown)}
    return Verdict(not found, text, report.health == "in trouble", facts)


def _found(report: CaptureReport) -> Iterator[str]:
    yield from map(str, report.findings)
    if not report.troubles:
        yield from (f"{it.table}: {it.reason or it.condition}" for it in report.tables if it.condition in STOPPED)
    yield from report.late if report.health == "working" else ()
    if report.health == "not known" and not report.unknown:
        yield "nothing is captured yet"


def _health(facts: Facts, subject: Subject) -> Verdict:
    del subject
    return health_result(facts.report)


HEALTH = Check(
    name="health",
    of="capture",
    about="Nothing on the page of the capture needs action: tables, mirrors, Kafka, runs and settings.",
    error="the page of the capture is in trouble",
    warning="something is not known, or late by more than a minute; a snapshot is neither",
    page="in-trouble",
    when="half-hourly",
    made_of="report",
    result=_health,
)
