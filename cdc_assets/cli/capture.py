"""`cdc-assets capture`: snapshot and streaming without Dagster."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated

import typer
from rich.text import Text

from cdc_assets.adapters.spark.early import EarlyRunner
from cdc_assets.adapters.spark.launch import Launch
from cdc_assets.adapters.spark.settings import DEFAULT_FILE, SparkSettings, spark_settings
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.assembly.capture import open_capture
from cdc_assets.capture.capture import Capture
from cdc_assets.cli.bars import SnapshotBars
from cdc_assets.cli.console import (
    DEFAULT_CONFIG,
    FAILED,
    ConfigOption,
    configuration_file,
    err,
    out,
    read_config,
    show_logs,
)
from cdc_assets.cli.ending import give_up
from cdc_assets.cli.engine import capture_by_engine
from cdc_assets.cli.exported import exported
from cdc_assets.cli.follow import LOGIN, Retries, after, limits
from cdc_assets.cli.until_now import Goal, check_goal
from cdc_assets.config.engine import is_engine_file
from cdc_assets.config.kinds import LONGEST_MS
from cdc_assets.config.load import load_config, refers_to_file
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.config.snapshot_modes import rule_of
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.interruption import listening, sleep
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.ran_on import count_of
from cdc_assets.errors import ConfigurationError
from cdc_assets.shared.progress import OnProgress, Progress, SnapshotSummary, StreamSummary, TroubledTable, is_temporary

_SESSION = "cdc_assets.adapters.spark.session"
ENDED = {
    "idle": "Stopped because nothing new arrived.",
    "deadline": "Stopped because the time was up.",
    "yielded": "Stopped to let another run continue.",
    "nothing": "No table to stream.",
    "goal": "Done.",
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
            "--table",
            "-t",
            help="First read this table (`schema.table`) completely, whatever the snapshot mode; with --snapshot-only, no other. "
            "Repeatable.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep running when nothing is new; stop with Ctrl+C.")
    ] = False,
    idle: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=LONGEST_MS / 1000,
            help="End after this many seconds without a change (stream.idle.timeout.ms).",
        ),
    ] = None,
    until_now: Annotated[
        bool,
        typer.Option(
            "--until-now",
            help="End when the lake, and its mirrors, hold everything that is committed now, also while more is.",
        ),
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1, max=LONGEST_MS / 1000, help="With --until-now: end after this many seconds with exit code 3."
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", min=0, max=65535, help="Serve metrics for Prometheus here (metrics.port)."),
    ] = None,
) -> None:
    """Capture into the lake: the snapshot that the mode requires, then changes until nothing is new.

    Can be stopped at any moment. Ctrl+C or SIGTERM stop it at the next safe point. The next run continues after the
    last committed window.
    """
    show_logs()
    # another connector's capture has a loop of its own, and few of the options
    if is_engine_file(place := configuration_file(config)):
        _refuse_for_engines(
            {
                "--local": local,
                "--snapshot-only": snapshot_only,
                "--table": bool(table),
                "--until-now": until_now,
            }
        )
        capture_by_engine(place, follow, idle, metrics_port)
        return
    check_goal(until_now, timeout, {"--follow": follow, "--idle": idle is not None, "--snapshot-only": snapshot_only})
    # options win over properties
    settings = _settings(read_config(config), follow or until_now, idle)
    if settings.mirror.enabled and not until_now:
        out.print("This command does not update mirrors. Dagster's runs, `cdc-assets mirror` and --until-now do.")
    run = CaptureRun(table or [], snapshot_only=snapshot_only, follow=follow)

    # settings are read again before each attempt, so that a rotated password is taken
    def read() -> CaptureConfig:
        return _settings(load_config(place), follow, idle)

    # metrics and tasks outlast attempts; each attempt opens the capture itself
    with (
        listening(give_up),
        exported(settings, read, metrics_port) as run.note,
        task_runner(local, f"{settings.name} capture") as runner,
    ):
        if follow:
            run.retries = Retries(
                read,
                lambda found: found.streaming,
                lambda found: found.connection,
                lambda: refers_to_file(place, LOGIN),
            )
            summary = run.retries.run(lambda now: run.attempt(now, runner))
        elif until_now:
            run.goal = Goal(settings, runner, timeout)
            summary = run.goal.pursue(lambda: run.attempt(settings, runner))
        else:
            summary = run.attempt(settings, runner)
    if summary is None:
        _print_left_out(run.left_out)
        raise typer.Exit(FAILED if run.failed or run.left_out else 0)
    _end(summary, "goal" if until_now and summary.ended == "yielded" else summary.ended, failed=bool(run.failed))


def _refuse_for_engines(options: Mapping[str, bool]) -> None:
    """Options that mean nothing where a connector of its own reads.

    Raises:
        ConfigurationError: one of them is given.
    """
    for option, given in options.items():
        if given:
            raise ConfigurationError(
                "option",
                option,
                "a capture of SQL Server; another connector follows its own properties (snapshot.mode)",
                "leave it out",
            )


class CaptureRun:
    """One execution of the command.

    Args:
        tables: names of tables that are read first, whatever the snapshot mode.
        snapshot_only: whether to skip streaming.
        follow: whether to retry tables that could not be read for a temporary reason.
    """

    def __init__(self, tables: list[str], *, snapshot_only: bool, follow: bool) -> None:
        self._names, self._snapshot_only, self._follow = tables, snapshot_only, follow
        self._takes_due = not (tables and snapshot_only)
        self._requested: list[TableId] = []
        """Tables of these names that are still to be read."""
        self._reported: set[str] = set()
        self._bars = SnapshotBars(err)
        self.failed: Sequence[TroubledTable] = ()
        """Tables that could not be read."""
        self.left_out: Mapping[str, str] = {}
        """Databases of which it is not known what is to be read, with the reason."""
        self.retries: Retries[CaptureConfig] | None = None
        self.goal: Goal | None = None
        """When to end, with `--until-now`."""
        self.note: OnProgress = _ignore
        """Counts each commit, for metrics."""

    def attempt(self, settings: CaptureConfig, runner: TaskRunner) -> StreamSummary | None:
        """Take snapshots and stream; None if nothing is to be streamed.

        Raises:
            ConfigurationError: the include lists match no table, also at the end of the attempt.
            CdcError: the server or the lake failed as a whole; the next attempt continues where this one stopped.
        """
        streams = rule_of(settings.snapshot).streams and not self._snapshot_only
        pause_s = settings.streaming.retry_wait_s
        with self._bars, open_capture(settings, runner, self._progress) as facade:
            ends = _never
            if self.goal is not None:
                self.goal.until = facade.until_now()
                ends = self.goal.until.should_end
            while True:
                self._snapshot(facade)
                again = self._follow and is_temporary(self.failed)
                summary = None
                if streams:
                    summary = facade.stream(should_yield=after(pause_s) if again else ends)
                if not again:
                    if summary is None or summary.ended == "nothing":
                        facade.check_includes()
                    return summary
                if summary is None or summary.ended != "yielded":
                    sleep(pause_s)

    def _snapshot(self, facade: Capture) -> None:
        if self._names:
            self._requested, self._names = _chosen(facade, self._names), []
        done = SnapshotSummary()
        if self._requested:
            done += self._read(facade, self._requested)
        if self._takes_due:  # the stream leaves out what it finds waiting
            done += self._read(facade, None)
        if self.retries is not None:
            self.retries.answered()
        first = not self._reported and not self.failed
        if done.tables or (first and not done.failed):
            out.print(
                f"Snapshot: {count_of(len(done.tables), 'table')}." if done.tables else "Snapshot: nothing to read."
            )
        self.failed, self.left_out = done.failed, done.left_out
        _print_troubled([trouble for trouble in done.failed if trouble.reason not in self._reported])
        self._reported = {trouble.reason for trouble in done.failed}

    def _read(self, facade: Capture, tables: Sequence[TableId] | None) -> SnapshotSummary:
        done = facade.snapshot(tables)
        self._requested = [table for table in self._requested if table not in done.tables]
        return done

    def _progress(self, progress: Progress) -> None:
        self.note(progress)
        if self._reported and progress.kind != "stream" and not progress.tables and not progress.troubled:
            return  # the same tables failed again
        if self.retries is not None:
            self.retries.progress()
        if not self._bars.note(progress):
            _print_progress(progress)


def _ignore(_: Progress) -> None:
    pass


def _never() -> bool:
    return False


def _settings(settings: CaptureConfig, follow: bool, idle: float | None) -> CaptureConfig:
    return replace(settings, streaming=replace(settings.streaming, **limits(follow, idle)))


@contextmanager
def task_runner(local: bool, name: str) -> Iterator[TaskRunner]:
    """A runner over threads or Spark; the Spark session starts when there is work and ends with the command.

    Args:
        local: whether to leave Spark out.
        name: capture and command, for the name of Spark's application.
    """
    if local:
        yield LocalRunner(why="--local")
        return
    settings = spark_settings(file=DEFAULT_FILE)
    launch = Launch()
    runner = EarlyRunner(settings, lambda: _spark(settings, name, launch), launch=launch)
    try:
        yield runner
    finally:
        if not runner.end_start() and _SESSION in sys.modules:
            sys.modules[_SESSION].stop_spark()


def _spark(settings: SparkSettings, name: str, launch: Launch) -> TaskRunner:
    """Spark as the runner of tasks; a run without work, and `--local`, need neither pyspark nor Java."""
    from cdc_assets.adapters.spark.session import LazySession

    return LazySession(settings, name=f"cdc-assets {name}", launch=launch).runner()


def _chosen(facade: Capture, names: list[str]) -> list[TableId]:
    """Captured tables named `schema.table` or `db.schema.table`, ignoring letter case.

    Raises:
        ConfigurationError: a name matches no captured table.
    """
    known = [schema.table for schema in facade.discover()]
    chosen = []
    for name in names:
        found = [table for table in known if name.lower() in (table.within_database.lower(), str(table).lower())]
        if not found:
            raise ConfigurationError("table", name, "one of " + ", ".join(map(str, known)), "write it as schema.table")
        chosen += found
    return chosen


def _print_progress(progress: Progress) -> None:
    rows = sum(sum(table.rows.values()) for table in progress.tables.values())
    what = "window" if progress.kind == "stream" else "round"
    what += f" {progress.slices_done}/{progress.slices}" if progress.slices else ""
    lag = f", lag {progress.lag_s:.1f} s" if progress.lag_s is not None else ""
    out.print(
        f"{progress.database} {progress.kind} {what}: {count_of(rows, 'event')} in {count_of(len(progress.tables), 'table')} "
        f"to {progress.to_lsn}{lag}; ran on {progress.ran_on}",
        soft_wrap=True,
    )


def _end(summary: StreamSummary, ended: str, *, failed: bool) -> None:
    events = sum(sum(rows.values()) for rows in summary.rows.values())
    out.print(f"{ENDED[ended]} {count_of(summary.windows, 'window')}, {count_of(events, 'event')}.")
    _print_troubled([*summary.troubled, *summary.unread])
    _print_left_out(summary.left_out)
    if summary.troubled or summary.unread or summary.left_out or failed:
        raise typer.Exit(FAILED)


def _print_troubled(troubled: Sequence[TroubledTable]) -> None:
    for trouble in troubled:
        out.print(Text.assemble((f"{trouble.table} {trouble.status}: ", "bold red"), trouble.reason), soft_wrap=True)


def _print_left_out(databases: Mapping[str, str]) -> None:
    for database, reason in databases.items():
        out.print(Text.assemble((f"{database} left out: ", "bold red"), reason), soft_wrap=True)
