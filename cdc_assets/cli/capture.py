"""`cdc-assets capture`: snapshot and streaming without Dagster."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from cdc_assets.cli.console import DEFAULT_CONFIG, FAILED, ConfigOption, out, read_config, show_logs
from cdc_assets.cli.local import LocalRunner
from cdc_assets.config.kinds import LONGEST_MS
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.interruption import listening
from cdc_assets.core.ports import TaskRunner
from cdc_assets.errors import ConfigurationError
from cdc_assets.snapshot.modes import rule_of
from cdc_assets.streaming.capture import Capture
from cdc_assets.streaming.progress import Progress, StreamSummary, TroubledTable
from resources.bulk import MssqlBulkSource
from resources.clock import SystemClock
from resources.kafka import kafka_channels
from resources.sqlserver_source import SqlServerSource

ENDED = {
    "idle": "Nothing new for a while.",
    "deadline": "Time is up.",
    "yielded": "Gave way to another run.",
    "nothing": "No table to stream.",
}


def capture(
    config: ConfigOption = DEFAULT_CONFIG,
    local: Annotated[
        bool, typer.Option("--local", help="Run tasks in threads of this process, without Spark.")
    ] = False,
    snapshot_only: Annotated[bool, typer.Option("--snapshot-only", help="Do not stream.")] = False,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table", "-t", help="Read this table (`schema.table`) as a whole first, whatever the mode. Repeatable."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Never end for want of changes; end with Ctrl+C.")
    ] = False,
    idle: Annotated[
        float | None,
        typer.Option(
            min=0.1, max=LONGEST_MS / 1000, help="End after so many seconds without a change (stream.idle.timeout.ms)."
        ),
    ] = None,
) -> None:
    """Capture into the lake: the snapshot that the mode wants, then changes until nothing is new.

    Can be stopped at any moment, at best by Ctrl+C or SIGTERM, which end it at the next safe point; the next run goes on
    behind the last committed window.
    """
    show_logs()
    settings = _settings(read_config(config), follow, idle)
    with listening(), _runner(local) as runner, _open(settings, runner) as facade:
        done = (
            facade.snapshot(_chosen(facade, table), on_progress=_tell) if table else facade.snapshot(on_progress=_tell)
        )
        if done.tables or not done.failed:
            out.print(
                f"Snapshot: {_count(len(done.tables), 'table')}." if done.tables else "Snapshot: nothing to read."
            )
        _complain(done.failed)
        if snapshot_only or not rule_of(settings.snapshot).streams:
            raise typer.Exit(FAILED if done.failed else 0)
        summary = facade.stream(on_progress=_tell)
    _end(summary, failed=bool(done.failed))


def _settings(settings: CaptureConfig, follow: bool, idle: float | None) -> CaptureConfig:
    streaming = settings.streaming
    if follow:
        streaming = replace(streaming, idle_timeout_s=0.0, max_duration_s=0.0)
    elif idle is not None:
        streaming = replace(streaming, idle_timeout_s=idle)
    return replace(settings, streaming=streaming)


@contextmanager
def _open(settings: CaptureConfig, runner: TaskRunner) -> Iterator[Capture]:
    with SqlServerSource.of(settings) as source, kafka_channels(settings) as channels:
        yield Capture(settings, source, MssqlBulkSource.of(settings), runner, SystemClock(), channels=channels)


@contextmanager
def _runner(local: bool) -> Iterator[TaskRunner]:
    """Threads, or Spark; its session starts with the first rows and ends with the command."""
    if local:
        yield LocalRunner()
        return
    from resources.spark import SparkResource, stop_spark  # needs pyspark and a Java runtime, which --local does not

    try:
        yield SparkResource().runner()
    finally:
        stop_spark()


def _chosen(facade: Capture, names: list[str]) -> list[TableId]:
    """Captured tables by `schema.table` or `db.schema.table`, letter case ignored.

    Raises:
        ConfigurationError: a name is none of them.
    """
    known = [schema.table for schema in facade.discover()]
    chosen = []
    for name in names:
        found = [table for table in known if name.lower() in (table.within_database.lower(), str(table).lower())]
        if not found:
            raise ConfigurationError("table", name, "one of " + ", ".join(map(str, known)), "write it as schema.table")
        chosen += found
    return chosen


def _tell(progress: Progress) -> None:
    rows = sum(sum(table.rows.values()) for table in progress.tables.values())
    what = "window" if progress.kind == "stream" else "round"
    what += f" {progress.slices_done}/{progress.slices}" if progress.slices else ""
    lag = f", lag {progress.lag_s:.1f} s" if progress.lag_s is not None else ""
    out.print(
        f"{progress.database} {progress.kind} {what}: {_count(rows, 'event')} of {_count(len(progress.tables), 'table')} "
        f"to {progress.to_lsn}{lag}",
        soft_wrap=True,
    )


def _end(summary: StreamSummary, *, failed: bool) -> None:
    events = sum(sum(rows.values()) for rows in summary.rows.values())
    out.print(f"{ENDED[summary.ended]} {_count(summary.windows, 'window')}, {_count(events, 'event')}.")
    _complain([*summary.troubled, *summary.unread])
    if summary.troubled or summary.unread or failed:
        raise typer.Exit(FAILED)


def _complain(troubled: Sequence[TroubledTable]) -> None:
    for trouble in troubled:
        out.print(Text.assemble((f"{trouble.table} {trouble.status}: ", "bold red"), trouble.reason), soft_wrap=True)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
