"""Prints a capture's report as a person reads it, whichever connector makes the capture."""

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Column, Table
from rich.text import Text

from cdc_assets.cli.console import FAILED, out
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.checks.check import Found, Inspection
from cdc_assets.overview.formatting import (
    describe_condition,
    describe_jobs,
    describe_lag,
    describe_outlook,
)
from cdc_assets.overview.report import STOPPED, DatabaseReport, Health, Reached

STYLES = {
    "streaming": "green",
    "snapshotted": "green",
    "excluded": "dim",
    "not captured": "dim",
    "waiting": "yellow",
    "snapshotting": "yellow",
}
_HEALTH: Mapping[Health, str] = {
    "healthy": "bold green", "working": "bold yellow", "not known": "bold magenta", "in trouble": "bold red",
}  # fmt: skip
_WELL, _NOT_KNOWN = 0, 2
EXIT_CODES: Mapping[Health, int] = {
    "healthy": _WELL, "working": _WELL, "not known": _NOT_KNOWN, "in trouble": FAILED,
}  # fmt: skip
"""Exit code of `cdc-assets status`."""


def print_report(seen: Inspection) -> None:
    """Print a capture's report and checks as a person reads them."""
    report = seen.report
    out.print(Text(f"{report.capture} is {report.headline}", _HEALTH[report.health]), soft_wrap=True)
    out.print(_tables(report))
    for trouble in report.findings:
        out.print(Text(str(trouble)), soft_wrap=True)
    for database in report.databases:
        out.print(Text(_sentence(database, report)), soft_wrap=True)
    for line in (*_work(report), *report.advice, *_checks(seen.found)):
        out.print(Text(line), soft_wrap=True)
    for number, step in enumerate(report.next_steps, 1):
        out.print(Text(f"Next {number}: {step}", "cyan"), soft_wrap=True)


def _tables(report: CaptureReport) -> Table:
    table = Table(Column("topic", overflow="fold"), "state", "complete to", box=None, header_style="bold")
    has_instances = not any(isinstance(found.complete_to, str) for found in report.tables)
    if has_instances:
        table.add_column("instance", overflow="fold")
    has_dropped = any(found.complete_after for found in report.tables)
    if has_dropped:
        table.add_column("complete after")
    has_gaps = any(found.ignored_gaps for found in report.tables)
    if has_gaps:
        table.add_column("lacks", overflow="fold")
    for found in report.tables:
        position = str(found.complete_to or "not streamed")
        condition = Text(describe_condition(found), STYLES.get(found.condition, "bold red"))
        instance = [found.instance or "–"] if has_instances else []
        since = [str(found.complete_after or "–")] if has_dropped else []
        lacks = [found.lacks or "–"] if has_gaps else []
        table.add_row(found.topic or str(found.table), condition, position, *instance, *since, *lacks)
    return table


def _sentence(database: DatabaseReport, report: CaptureReport) -> str:
    own = [table for table in report.tables if table.table.database == database.database or len(report.databases) == 1]
    troubled = sum(table.condition in STOPPED for table in own)
    return completeness_of(database.database, database.complete_to, database.age_s, troubled)


def _work(report: CaptureReport) -> Iterator[str]:
    """Lag, rates, queue and head-room, each if there is something to say."""
    for database in report.databases:
        if isinstance(database.newest, str) and database.newest != database.complete_to:
            yield f"{database.database}: the log ends at {database.newest}"
        if database.server_time is not None:
            yield f"{database.database}: {describe_lag(database)}"
    if report.rates.rows:
        yield f"{report.rates.rows:,.1f} events a second in the last {report.rates.seconds:.0f} s"
    for entry in report.queue:
        state = "paused" if entry.paused else f"read up to key {entry.reached}" if entry.reached else "not begun"
        rows = "" if entry.rows is None else f", {entry.rows:,} rows"
        yield f"requested snapshot of {entry.table}: {state}{rows}"
    yield from describe_outlook(report)
    yield from describe_jobs(report.ran_on)
    if report.last_ddl is not None:
        ddl = report.last_ddl
        yield f"last structure recorded: {ddl.kind} of {ddl.table} at {ddl.lsn}"


def _checks(found: Sequence[Found]) -> Iterator[str]:
    """Results of checks under the names that Dagster shows, and the tables for which they did not pass."""
    for word in ("failed", "warned", "passed"):
        names: dict[str, list[str]] = {}
        for one in found:
            if one.verdict.word == word:
                names.setdefault(one.check.name, []).extend([str(one.subject)] if one.subject else [])
        of = {name: f" of {', '.join(tables)}" if tables and word != "passed" else "" for name, tables in names.items()}
        if of:
            yield f"checks {word}: {', '.join(f'{name}{tables}' for name, tables in of.items())}"


def completeness_of(database: str, complete_to: Reached | None, age_s: float | None, troubled: int) -> str:
    """A sentence saying up to where a database is complete.

    Args:
        age_s: seconds between that commit and the server's clock.
        troubled: number of tables of which that is not true.
    """
    text = f"{database} is complete to {complete_to}" if complete_to else f"No table of {database} streams"
    text += f", {age_s:,.0f} s behind the server's clock" if age_s is not None else ""
    tables = "1 table, which is" if troubled == 1 else f"{troubled} tables, which are"
    return f"{text}, except {tables} not" if troubled and complete_to else text
