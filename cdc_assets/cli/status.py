"""`cdc-assets status` and `summary`: the state of a capture, and what it has written."""

from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from cdc_assets.cli.as_json import of_status, of_summary, print_json
from cdc_assets.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, out
from cdc_assets.cli.read import ReadCapture, read_capture
from cdc_assets.cli.report import EXIT_CODES, completeness_of, print_report
from cdc_assets.errors import LakeError
from cdc_assets.overview.report import Health


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
    if watch is None:
        raise typer.Exit(EXIT_CODES[_show_report(config, as_json, lines=False)])
    with suppress(KeyboardInterrupt):
        while True:
            if out.is_terminal and not as_json:
                out.clear()
            _show_report(config, as_json, lines=True)
            sleep(watch)


def _show_report(config: Path, as_json: bool, *, lines: bool) -> Health:
    """Read and show everything once."""
    capture = read_capture(config)
    seen = capture.inspect()
    if as_json:
        print_json(of_status(seen), lines=lines)
        return seen.report.health
    with suppress(LakeError):  # which the report has
        if not capture.known:
            _nothing(capture)
    print_report(seen)
    return seen.report.health


def summary(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Show topics, events by operation, positions and the location of the tables."""
    capture = read_capture(config)
    if not capture.known and not as_json:
        _nothing(capture)
        return
    counts, databases = capture.counts(), capture.databases()
    if as_json:
        tables = {topic: table for topic, (table, _) in capture.topics().items()}
        print_json(of_summary(capture.lake.capture, capture.root, tables, counts, databases))
        return
    operations = capture.operations.values()
    table = Table(Column("topic", overflow="fold"), *operations, "events", box=None, header_style="bold")
    for name, found in counts.items():
        table.add_row(name, *(f"{found.get(it, 0):,}" for it in operations), f"{sum(found.values()):,}")
    out.print(table)
    for one in databases or ():
        text = completeness_of(one.database, one.complete_to, one.lag_s, one.troubled)
        out.print(Text(text), soft_wrap=True)
    out.print(f"The tables are in {capture.root}", soft_wrap=True)


def _nothing(capture: ReadCapture) -> None:
    out.print(f"Nothing captured yet in {capture.root}.", soft_wrap=True)
