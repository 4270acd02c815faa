"""How parts of a capture's report read, in the command line and on Dagster's pages."""

import re
from collections.abc import Iterator, Mapping

from cdc_assets.core.ran_on import RanOn
from cdc_assets.overview.report import CaptureReport, DatabaseReport, TableReport
from cdc_assets.publish.view import PublishedReport

_NUMBER = re.compile(r"(?<![\w.])\d[\d,.:]*")
"""A number by itself, or before a unit; not digits of a name."""
_LSN = re.compile(r"\b[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}\b")


def describe_condition(table: TableReport) -> str:
    """What a table is doing; with percent and remaining time while it is read."""
    if table.percent is None:
        return table.condition
    left = f", {duration(table.eta_s)} left" if table.eta_s is not None else ""
    return f"{table.condition} {table.percent:.0f} %{left}"


def describe_lag(database: DatabaseReport) -> str:
    """Seconds by cause."""
    return "lag by cause: " + ", ".join(f"{name} {duration(value)}" for name, value in database.lag_by_cause.items())


def describe_published(published: PublishedReport) -> str:
    """How far the topics in Kafka are, and how fast."""
    reached = f"events up to {published.lsn}" if published.lsn else "no event of a table yet"
    waiting = (
        f"{published.waiting:,} windows wait, behind: {duration(published.behind_s)}"
        if published.waiting
        else "nothing waits"
    )
    waiting += f", for {published.held}" if published.held else ""
    return f"published to Kafka: {reached}; {waiting}; {published.per_second:,.1f} events a second"


def describe_headroom(hours: float) -> str:
    """How long unread changes are still there; what is past is not a time that is left."""
    if hours <= 0:
        return "unread changes are older than the clean-up keeps them, and may be removed at any moment"
    return f"unread changes are kept for {duration(3600 * hours)} at least"


def describe_outlook(report: CaptureReport) -> Iterator[str]:
    """How far the topics in Kafka are, and how long unread changes are still there, as far as that is known."""
    if report.published is not None and not report.published.problem:
        yield describe_published(report.published)
    if report.headroom_h is not None:
        yield describe_headroom(report.headroom_h)
    if report.room_bytes is not None:
        yield f"unread changes are kept until the log has grown by {report.room_bytes / 2**20:,.0f} MB"


def describe_jobs(ran_on: Mapping[str, RanOn]) -> Iterator[str]:
    """Where jobs have run, a line for each kind."""
    for kind, found in ran_on.items():
        yield f"{kind} jobs ran on {found}"


def duration(seconds: float | None) -> str:
    """A duration in its two largest units."""
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def without_numbers(text: str) -> str:
    """A text without numbers that change all the time, such as ages; digits of a name stay."""
    return _NUMBER.sub("", text)


def without_places(text: str) -> str:
    """A text without LSNs that move all the time: a page that names them would be another one at each look."""
    return _LSN.sub("…", text)
