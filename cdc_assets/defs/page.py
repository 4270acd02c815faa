"""A capture's report as metadata of its window manifest: the page that says whether the capture is healthy.

Dagster's pages show Markdown in place if it has fewer than a thousand characters, and plot numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

import dagster as dg

from cdc_assets.core.ran_on import NOWHERE
from cdc_assets.defs.markdown import escaped, markdown_table
from cdc_assets.defs.row_facts import OPERATIONS, ran_on_facts
from cdc_assets.defs.runbook import HEALTH_PAGES, runbook_url
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.formatting import (
    describe_condition,
    describe_jobs,
    describe_outlook,
    duration,
    without_numbers,
)
from cdc_assets.overview.report import STOPPED, DatabaseReport, TableCondition, TableReport

_SHOWN_IN_PLACE = 990
_MAX_TABLES = 200
_MAX_TROUBLES, _SHORT = 5, 100
_ORDER = get_args(TableCondition)


def page_of(report: CaptureReport) -> dict[str, Any]:
    """Metadata: first what a person reads, then numbers."""
    facts: dict[str, Any] = {
        "health": report.headline,
        "page": dg.MetadataValue.md(_summary(report)),
        "tables": dg.MetadataValue.md(_tables(report)),
        "seen_at": dg.MetadataValue.timestamp(report.at),
    }
    if report.findings:
        steps = (f"1. {escaped(str(trouble))}" for trouble in report.findings)
        facts["what_to_do"] = dg.MetadataValue.md("\n".join(steps))
    if report.advice:
        facts["advice"] = dg.MetadataValue.md("\n".join(f"* {escaped(text)}" for text in report.advice))
    if report.health in HEALTH_PAGES:
        facts["runbook"] = dg.MetadataValue.text(runbook_url(HEALTH_PAGES[report.health]))
    if report.queue:
        rows = [
            (
                str(entry.table),
                entry.reached or "–",
                "–" if entry.rows is None else f"{entry.rows:,}",
                "paused" if entry.paused else "",
            )
            for entry in report.queue
        ]
        heads = ("requested snapshot of", "key reached", "rows", "")
        facts["queue"] = dg.MetadataValue.md(markdown_table(heads, rows))
    if report.ran_on:
        facts |= ran_on_facts(next((found for found in report.ran_on.values() if found.pages), NOWHERE))
        facts["ran_on"] = dg.MetadataValue.md("\n".join(f"* {line}" for line in describe_jobs(report.ran_on)))
    return facts | _numbers(report)


def shown_facts(page: Mapping[str, Any]) -> tuple[object, ...]:
    """What a page says, without the numbers in it, which change all the time: of two pages that say the same only one is reported.

    Args:
        page: metadata, made here or read from Dagster's storage.
    """
    values = {name: value.value if isinstance(value, dg.MetadataValue) else value for name, value in page.items()}
    texts = ("".join(filter(str.isalpha, str(values.get(name, "")))) for name in ("health", "what_to_do"))
    return (*texts, *sorted((name, value) for name, value in values.items() if name.startswith("tables_")))


def _summary(report: CaptureReport) -> str:
    head = f"**{report.capture} is {report.health}** at {report.at:%Y-%m-%d %H:%M:%S} UTC\n\n"
    rest = _rest(report)
    found = [escaped(str(trouble).partition("Next: ")[0].strip()) for trouble in report.findings[:_MAX_TROUBLES]]
    found = found or [escaped(text) for text in report.unfinished[:_MAX_TROUBLES]]
    more = len(report.findings) - _MAX_TROUBLES
    lines = _fitting(found, _SHOWN_IN_PLACE - len(head) - len(rest) - 20) + ([f"and {more} more"] if more > 0 else [])
    text = head + "".join(f"* {line}\n" for line in lines) + rest
    return text if len(text) <= _SHOWN_IN_PLACE else text[:_SHOWN_IN_PLACE].rstrip() + " …"


def _fitting(texts: Sequence[str], room: int) -> list[str]:
    """The texts, of which the longest are cut if all together need more characters; each keeps `_SHORT`, or a fair share."""
    longest, left = 0, len(texts)
    for length in sorted(len(text) + 3 for text in texts):
        if length * left > room:
            break
        room, left = room - length, left - 1
        longest = length
    limit = max(_SHORT, room // left - 3) if left else longest
    return [text if len(text) <= limit else text[: limit - 2].rstrip("\\ ") + " …" for text in texts]


def _rest(report: CaptureReport) -> str:
    """What the page says after the reasons."""
    facts = [fact for found in report.databases for fact in _database(found)]
    lines = ["", *markdown_table(facts[0], facts[1:]).splitlines(), ""] if facts else [""]
    counts = ", ".join(f"{count} {name}" for name, count in report.counts().items())
    lines.append(f"Tables: {counts or 'none'}. {report.rates.rows:,.1f} events a second.")
    lines += [f"{text[0].upper()}{text[1:]}." for text in describe_outlook(report)]
    if report.last_ddl:
        ddl = report.last_ddl
        lines.append(f"Last DDL: {ddl.kind} of {escaped(str(ddl.table))}, {ddl.at:%Y-%m-%d %H:%M:%S} UTC.")
    return "\n".join(lines)


def _database(found: DatabaseReport) -> Iterator[Sequence[str]]:
    """Fact by fact below each other: the page is narrow, and what is cut off is not read."""
    yield "database", found.database
    yield "complete to", str(found.complete_to or "–")
    yield "committed (server)", f"{found.committed:%Y-%m-%d %H:%M:%S %z}" if found.committed else "unknown"
    yield from ((f"lag: {cause}", duration(seconds)) for cause, seconds in found.lag_by_cause.items())


def _tables(report: CaptureReport) -> str:
    ordered = sorted(report.tables, key=lambda table: _ORDER.index(table.condition))
    rows = [(str(found.table), describe_condition(found), str(found.complete_to or "–"), _note(found))
            for found in ordered[:_MAX_TABLES]]  # fmt: skip
    more = f"\n\nand {len(ordered) - _MAX_TABLES} more" if len(ordered) > _MAX_TABLES else ""
    return markdown_table(("table", "state", "complete to", "why"), rows) + more


def _note(table: TableReport) -> str:
    if table.condition in (*STOPPED, "waiting", "not captured"):
        return table.reason
    return f"lacks changes {table.lacks} (gap.policy=ignore, or not all rows are read)" if table.lacks else ""


def _numbers(report: CaptureReport) -> dict[str, Any]:
    """Numbers that the page plots; those that are not known are left out, so that no plot shows a zero for them."""
    lags = [database.lag for database in report.databases]
    numbers: dict[str, float | None] = {
        "lag_capture_job_seconds": _maximum(lag.capture_job_s for lag in lags),
        "lag_poll_seconds": _maximum(lag.poll_s for lag in lags),
        "lag_windows_seconds": _maximum(lag.windows_s for lag in lags),
        "rows_per_second": report.rates.rows,
        "headroom_hours": report.headroom_h,
        "headroom_bytes": report.room_bytes,
    }
    if report.published is not None and not report.published.problem:
        numbers |= {
            "kafka_waiting_windows": report.published.waiting,
            "kafka_behind_seconds": report.published.behind_s,
            "kafka_events_per_second": report.published.per_second,
        }
    numbers |= {f"{OPERATIONS.get(op, op)}_per_second": rate for op, rate in report.rates.by_operation.items()}
    counts: dict[str, int] = {
        "healthy": int(report.healthy),
        "troubles": len(report.troubles),
        "unknown": len(report.unknown),
        "queued": len(report.queue),
    }
    counts |= {f"tables_{name.replace(' ', '_')}": count for name, count in report.counts().items()}
    return {**{name: round(value, 3) for name, value in numbers.items() if value is not None}, **counts}


def _maximum(values: Any) -> float | None:
    return max((value for value in values if value is not None), default=None)


def differs(before: CaptureReport, now: CaptureReport) -> bool:
    """Whether health or troubles are others, or a table does something else."""
    return _said(before) != _said(now)


def _said(report: CaptureReport) -> tuple[object, ...]:
    """Health, what each table does, and all findings without the numbers in them, which change all the time."""
    findings = {(trouble.where, without_numbers(trouble.what)) for trouble in report.findings}
    return report.health, findings, {table.table: table.condition for table in report.tables}


def unchanging(report: CaptureReport) -> CaptureReport:
    """The report without what changes while nothing happens."""
    databases = tuple(
        replace(found, server_time=None, lag=replace(found.lag, capture_job_s=None)) for found in report.databases
    )
    published = replace(report.published, behind_s=None) if report.published else None
    return replace(report, at=datetime.min.replace(tzinfo=UTC), databases=databases, published=published)
