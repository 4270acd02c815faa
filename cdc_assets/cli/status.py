"""`cdc-assets status` and `summary`: the state of a capture, and what it has written."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from cdc_assets.adapters.sqlserver.source import quick_source
from cdc_assets.cli.as_json import of_status, of_summary, print_json
from cdc_assets.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, configuration_file, out, read_lake_config
from cdc_assets.cli.engine_status import engine_status, engine_summary
from cdc_assets.cli.topic_events import OPERATIONS, rows_by_operation
from cdc_assets.config.engine import is_engine_file
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import CdcError
from cdc_assets.run.overview import CaptureOverview, CaptureReport, DatabaseOverview, look_at
from cdc_assets.run.overview.drift import OverviewSource
from cdc_assets.run.overview.report import STOPPED, DatabaseReport
from cdc_assets.run.overview.words import describe_condition, describe_lag

STYLES = {
    "streaming": "green",
    "snapshotted": "green",
    "excluded": "dim",
    "waiting": "yellow",
    "snapshotting": "yellow",
}
_HEALTH = {"healthy": "bold green", "working": "bold yellow", "in trouble": "bold red"}


def status(
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    watch: Annotated[
        float | None,
        typer.Option("--watch", "-w", min=0.5, help="Show it again after each so many seconds, until Ctrl+C."),
    ] = None,
) -> None:
    """Show whether a capture is healthy and why not, position and state of every table, lag by cause, and what to do next.

    A table streams if neither the manifest nor the lake nor the server reports a problem. If the server cannot be
    reached, the output says so and covers only the manifest and the lake.
    """
    place = configuration_file(config)

    def look() -> None:
        if is_engine_file(place):
            engine_status(place, as_json=as_json, lines=watch is not None)
        else:
            _look(*read_lake_config(config), as_json, lines=watch is not None)

    if watch is None:
        look()
        return
    with suppress(KeyboardInterrupt):
        while True:
            if out.is_terminal and not as_json:
                out.clear()
            look()
            time.sleep(watch)


def _look(settings: CaptureConfig, unresolved: CdcError | None, as_json: bool, *, lines: bool) -> None:
    """Read and show everything once."""
    lake = CaptureOverview(settings)
    if not lake.known and not as_json:
        _nothing(lake)
        return
    report = look_at(settings, lambda: _opened(settings, unresolved))
    if as_json:
        print_json(of_status(report), lines=lines)
    else:
        print_report(report)


def print_report(report: CaptureReport) -> None:
    """Print a capture's report as a person reads it."""
    out.print(Text(f"{report.capture} is {report.headline}", _HEALTH[report.health]), soft_wrap=True)
    out.print(_tables(report))
    for trouble in report.troubles:
        out.print(Text(str(trouble)), soft_wrap=True)
    for database in report.databases:
        out.print(Text(_sentence(database, report)), soft_wrap=True)
    for line in (*_work(report), *report.advice):
        out.print(Text(line), soft_wrap=True)
    for number, step in enumerate(report.next_steps, 1):
        out.print(Text(f"Next {number}: {step}", "cyan"), soft_wrap=True)


def _tables(report: CaptureReport) -> Table:
    table = Table(
        Column("topic", overflow="fold"),
        "state",
        "complete to",
        Column("instance", overflow="fold"),
        box=None,
        header_style="bold",
    )
    for found in report.tables:
        position = str(found.complete_to) if found.complete_to else "not streamed"
        condition = Text(describe_condition(found), STYLES.get(found.condition, "bold red"))
        table.add_row(found.topic or str(found.table), condition, position, found.instance or "–")
    return table


def _sentence(database: DatabaseReport, report: CaptureReport) -> str:
    stopped = [table for table in report.tables if table.table.database == database.database]
    troubled = sum(table.condition in STOPPED for table in stopped)
    return completeness_of(DatabaseOverview(database.database, database.complete_to, database.age_s, troubled))


def _work(report: CaptureReport) -> Iterator[str]:
    """Lag, rates, queue and head-room, each if there is something to say."""
    for database in report.databases:
        if database.server_time is not None:
            yield f"{database.database}: {describe_lag(database.lag)}"
    if report.rates.rows:
        yield f"{report.rates.rows:,.1f} events a second in the last {report.rates.seconds:.0f} s"
    for entry in report.queue:
        state = "paused" if entry.paused else f"read up to key {entry.reached}" if entry.reached else "not begun"
        yield f"incremental snapshot of {entry.table}: {state}, {entry.rows:,} rows"
    if report.headroom_h is not None:
        yield f"unread changes are kept for {report.headroom_h:,.1f} h at least"
    if report.last_ddl is not None:
        ddl = report.last_ddl
        yield f"last structure recorded: {ddl.kind} of {ddl.table} at {ddl.lsn}"


@contextmanager
def _opened(settings: CaptureConfig, unresolved: CdcError | None) -> Iterator[OverviewSource]:
    """The server, with short time-outs.

    Raises:
        CdcError: it cannot be reached, or its password is not known.
    """
    if unresolved is not None:
        raise unresolved
    with quick_source(settings) as source:
        yield source


def summary(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Show topics, events by operation, positions and the location of the tables."""
    if is_engine_file(place := configuration_file(config)):
        engine_summary(place, as_json=as_json)
        return
    overview = CaptureOverview(read_lake_config(config)[0])
    if not overview.known and not as_json:
        _nothing(overview)
        return
    topics = overview.tables if overview.known else []
    counts = {topic.topic: rows_by_operation(overview.lake, topic.directories) for topic in topics}
    if as_json:
        print_json(of_summary(overview, counts))
        return
    table = Table(Column("topic", overflow="fold"), *OPERATIONS.values(), "events", box=None, header_style="bold")
    for name, found in counts.items():
        numbers = [f"{found.get(operation, 0):,}" for operation in OPERATIONS.values()]
        table.add_row(name, *numbers, f"{sum(found.values()):,}")
    out.print(table)
    _databases(overview.databases)
    out.print(f"The tables are in {overview.lake.location.root}", soft_wrap=True)


def _nothing(overview: CaptureOverview) -> None:
    out.print(f"Nothing captured yet in {overview.lake.location.root}.", soft_wrap=True)


def _databases(databases: Sequence[DatabaseOverview]) -> None:
    for database in databases:
        out.print(Text(completeness_of(database)), soft_wrap=True)


def completeness_of(database: DatabaseOverview) -> str:
    """A sentence saying up to which LSN a database is complete."""
    text = f"{database.database} is complete to {database.complete_to or 'no position: nothing streams'}"
    text += f", {database.lag_s:,.0f} s behind the server's clock" if database.lag_s is not None else ""
    tables = "1 table, which is" if database.troubled == 1 else f"{database.troubled} tables, which are"
    return f"{text}, except {tables} not" if database.troubled and database.complete_to else text
