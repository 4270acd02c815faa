"""`cdc-assets status` and `summary`: the state of a capture, and what it has written."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from time import sleep
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from cdc_assets.adapters.sqlserver.source import quick_source
from cdc_assets.assembly.publishing import ask_marker
from cdc_assets.cli.as_json import of_status, of_summary, print_json
from cdc_assets.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, configuration_file, out, read_lake_config
from cdc_assets.cli.engine_status import engine_status, engine_summary
from cdc_assets.cli.report import EXIT_CODES, completeness_of, print_report
from cdc_assets.cli.topic_events import OPERATIONS, rows_by_operation
from cdc_assets.config.engine import is_engine_file
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import CdcError, LakeError
from cdc_assets.overview import CaptureOverview, CaptureReport, DatabaseOverview, look_at
from cdc_assets.overview.drift import OverviewSource


def status(
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    watch: Annotated[
        float | None,
        typer.Option("--watch", "-w", min=0.5, help="Refresh every N seconds, until Ctrl+C."),
    ] = None,
) -> None:
    """Show whether a capture is healthy and why not, position and state of every table, lag by cause, and what to do next.

    A table streams if neither the manifest nor the lake nor the server reports a problem. If the server cannot be
    reached, the output says so and covers only the manifest and the lake.

    Exit code: 0 if all is well, 1 if something is in trouble, 2 if that is not known.
    """
    place = configuration_file(config)

    def look() -> CaptureReport:
        if is_engine_file(place):
            return engine_status(place, as_json=as_json, lines=watch is not None)
        return _look(*read_lake_config(config), as_json, lines=watch is not None)

    if watch is None:
        raise typer.Exit(EXIT_CODES[look().health])
    with suppress(KeyboardInterrupt):
        while True:
            if out.is_terminal and not as_json:
                out.clear()
            look()
            sleep(watch)


def _look(settings: CaptureConfig, unresolved: CdcError | None, as_json: bool, *, lines: bool) -> CaptureReport:
    """Read and show everything once."""
    lake = CaptureOverview(settings)
    report = look_at(settings, lambda: _opened(settings, unresolved), marker=ask_marker(settings))
    if as_json:
        print_json(of_status(report), lines=lines)
        return report
    with suppress(LakeError):  # which the report tells
        if not lake.known:
            _nothing(lake)
    print_report(report)
    return report


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
    counts = {topic.topic: rows_by_operation(overview.lake, overview.directories(topic.topic)) for topic in topics}
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
    for found in databases:
        text = completeness_of(found.database, found.complete_to, found.lag_s, found.troubled)
        out.print(Text(text), soft_wrap=True)
