"""The `changes` assets of a capture: one multi-asset, one loop.

*When a run ends.* The sensor's runs follow the log until it is idle, and make way for any other run of the capture, for they come back. They end
also when the settings have changed, since a run keeps those with which it began: the next one has the new ones. A login alone is no reason, for
it is read again where it is refused; nor are settings that cannot be read, with which none could begin. A run
that somebody else starts has a goal: what was committed when it began. It ends there, also while more is committed, so that
what is selected downstream starts, and yields to none before; and it reports each selected asset, whether or not it had events,
since to Dagster an asset without an event was not materialized. With a time in its configuration it follows like the sensor's.

*Crash:* nothing of the goal is recorded; a step that is repeated takes another one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import time
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_assets.capture.log_levels import enable_info_logs
from cdc_assets.capture.until_now import UntilNow
from cdc_assets.config.kinds import LONGEST_MS
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ran_on import count_of
from cdc_assets.core.seldom import Seldom
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.checks.events import specs_of
from cdc_assets.defs.continuity import ContinuityReport
from cdc_assets.defs.kafka import KafkaFollower
from cdc_assets.defs.mirrors import MirrorFollower
from cdc_assets.defs.notices import Notices
from cdc_assets.defs.queue import somebody_waits
from cdc_assets.defs.reporter import Reporter
from cdc_assets.defs.runs import (
    COMMITTED_TAG,
    LEFT_AT_TAG,
    MADE_WAY_TAG,
    PROGRESS_TAG,
    CaptureRuns,
    is_asked_for,
    repository_of,
)
from cdc_assets.defs.server_view import server_view
from cdc_assets.defs.system import SystemReport
from cdc_assets.defs.tags import tag_run
from cdc_assets.defs.turns import Turns
from cdc_assets.defs.writing import reported_in_any_case, writing, writing_assets
from cdc_assets.errors import ConfigurationError
from cdc_assets.metrics.exports import exported_metrics
from cdc_assets.overview.checks.sqlserver import CONTINUITY
from cdc_assets.shared.progress import Progress, StreamSummary

_CHECK_EVERY_S = 1.0
"""Seconds between two checks whether another run wants its turn."""
_SETTINGS_EVERY_S = 5.0
"""Seconds between two checks whether the settings have changed."""


class StreamConfig(dg.Config):
    """How long a run streams. If neither time is set, it ends when it has read what was committed when it began, or after the
    times of the capture's configuration; the sensor's runs after these only."""

    idle_timeout_s: float | None = Field(
        default=None, ge=0, le=LONGEST_MS / 1000, description="End after this many seconds without a change; 0: never."
    )
    max_duration_s: float | None = Field(
        default=None,
        ge=0,
        le=LONGEST_MS / 1000,
        description="End after this many seconds, at a window border; 0: never.",
    )
    report_every_s: float = Field(
        default=10.0, ge=0, description="Minimum interval in seconds between two materializations of a table."
    )

    @property
    def limits(self) -> dict[str, float]:
        """The times that are set, by the fields of the capture's settings in whose place they are."""
        given = {"idle_timeout_s": self.idle_timeout_s, "max_duration_s": self.max_duration_s}
        return {name: seconds for name, seconds in given.items() if seconds is not None}


def changes_assets(catalog: CaptureCatalog) -> dg.AssetsDefinition:
    """The multi-asset. Even if only some assets are selected, all tables are streamed, since the log is read once for all."""
    names = catalog.names
    specs = [*catalog.specs("changes", deps="source"), *catalog.system_specs()]

    @writing_assets(catalog, names.changes_op, specs, check_specs=specs_of(CONTINUITY, catalog))
    def changes(context: dg.AssetExecutionContext, config: StreamConfig) -> Iterator[Any]:
        resource: CaptureResource = getattr(context.resources, names.resource)
        # the sensor has found work, so Spark is started beside what comes first; a run of somebody else may have none
        if is_asked_for(context.run, names.sensor):
            resource.get_ready()
        enable_info_logs()
        have_changed = _settings_have_changed(context, resource)
        runs = catalog.runs().of(repository_of(context.run))
        # one run of a capture at a time, also where pools have no limit
        with writing(catalog, context, server_view(catalog, resource)) as written:
            system, page = SystemReport(catalog, written), written.page
            reporter = Reporter(catalog, "changes", context, written, config.report_every_s)
            continuity = ContinuityReport(catalog, context, page.board)
            mirrors = MirrorFollower(catalog, context, resource)
            listed = {schema.table for schema in catalog.tables}

            # called after each committed window: whatever Dagster shows is in the lake by then
            def on_progress(progress: Progress) -> None:
                page.note(catalog.key(table, "changes") for table in progress.tables)
                reporter.on_progress(progress)
                system.note(progress)
                continuity.on_progress(progress, capture.state)
                mirrors.note_commit()
                count(progress)

            opened = resource.open(
                context.run.run_id,
                on_progress,
                Notices(catalog, context).send,
                written.writers.topics,
                on_read=reporter.on_read,
                limits=config.limits,
            )
            kafka = KafkaFollower(catalog, context, resource)
            exported = exported_metrics(catalog.config.metrics, catalog.prefix, page.report)
            with exported as count, kafka, opened as capture, page.fresh():
                if (gap_s := runs.gap_s(context.instance)) is not None:
                    context.log.info(f"Nothing was streamed for {gap_s:.1f} s since the run before.")
                # where the log ends is fixed before the first read, so that the run ends however much is written meanwhile
                goal = capture.until_now() if _has_goal(catalog, context, config) else None
                with _noting_progress(context, reporter), reported_in_any_case(reporter.report_all):
                    summary = capture.stream(
                        should_yield=_after_a_turn(
                            goal.should_end if goal else _should_leave(runs, context, written.turns, have_changed)
                        ),
                        is_added=lambda table: table not in listed,
                    )
                # the sensor measures from here how long nothing streams between two runs
                if summary.ended == "deadline" or (summary.ended == "yielded" and goal is None):
                    left = {LEFT_AT_TAG: f"{time():.3f}", MADE_WAY_TAG: written.turns.wanted_elsewhere()}
                    tag_run(context.instance, context.run.run_id, {tag: value for tag, value in left.items() if value})
                _log_summary(context, summary, goal)
                yield from reporter.results(capture.structures(), _to_report(reporter, summary) if goal else ())
                mirrors.finish()
            tag_run(context.instance, context.run.run_id, {COMMITTED_TAG: str(summary.windows)})
            state = capture.state()
        # tables that failed only in this run are not in the record; their check has to say it nevertheless
        states = dict(state.tables)
        for trouble in summary.troubled:
            if trouble.table not in states:
                context.log.error(f"{trouble.table} is not captured: {trouble.reason}")
                continue
            states[trouble.table] = replace(states[trouble.table], status=trouble.status, reason=trouble.reason)
        between = {} if gap_s is None else {"seconds_between_runs": round(gap_s, 1)}
        yield from system.results(reporter.windows, page.facts() | between, all_selected=goal is not None)
        yield from continuity.results(replace(state, tables=states))

    return changes


@contextmanager
def _noting_progress(context: dg.AssetExecutionContext, reporter: Reporter) -> Iterator[None]:
    """Tag the run if it fails after it has committed windows."""
    try:
        yield
    except Exception:
        if reporter.windows:
            tag_run(context.instance, context.run.run_id, {PROGRESS_TAG: str(reporter.windows)})
        raise


def _has_goal(catalog: CaptureCatalog, context: dg.AssetExecutionContext, config: StreamConfig) -> bool:
    """Whether the run ends when it has what was committed at its begin: not the sensor's, and none that has a time limit for streaming."""
    return context.job_name != catalog.names.follow and not config.limits


def _after_a_turn(should_end: Callable[[], bool]) -> Callable[[], bool]:
    """A predicate that is false before one turn: in that tables are added of which nothing is captured yet; and runs of two code
    locations that make way for each other read something in each."""
    has_turned = False

    def ends() -> bool:
        nonlocal has_turned
        before, has_turned = has_turned, True
        return before and should_end()

    return ends


def _log_summary(context: dg.AssetExecutionContext, summary: StreamSummary, goal: UntilNow | None) -> None:
    """Log how a stream has ended, and what it could not read."""
    has_reached = goal is not None and summary.ended == "yielded"
    context.log.info(f"{count_of(summary.windows, 'window')}; ended: {'goal' if has_reached else summary.ended}")
    for database, reason in summary.left_out.items():
        context.log.error(f"{database} is left out: {reason}")
    for trouble in summary.unread:
        context.log.warning(f"The requested snapshot of {trouble.table} failed: {trouble.reason}")
    for lack in goal.missing(summary.waiting) if goal else ():
        context.log.warning(f"Not all that was committed when the run began is in the lake: {lack}")


def _to_report(reporter: Reporter, summary: StreamSummary) -> list[TableId]:
    """Selected tables of which all changes were read, though there may have been none."""
    troubled = {trouble.table for trouble in summary.troubled}
    return [table for table in reporter.chosen() if table not in troubled and table.database not in summary.left_out]


def _should_leave(
    runs: CaptureRuns, context: dg.AssetExecutionContext, turns: Turns, have_changed: Callable[[], bool]
) -> Callable[[], bool]:
    """A predicate: whether another run of this capture waits for this one, for the pool or for its turn, or should follow it."""
    queued = somebody_waits(runs, context.instance, context.run.run_id)
    turn_check = Seldom(_CHECK_EVERY_S)
    return lambda: queued() or (turn_check.due() and turns.is_wanted()) or have_changed()


def _settings_have_changed(context: dg.AssetExecutionContext, resource: CaptureResource) -> Callable[[], bool]:
    """A predicate: whether the settings, but for the login, are others than now."""
    before, check = _without_login(resource.config()), Seldom(_SETTINGS_EVERY_S)

    def have_changed() -> bool:
        if not check.due():
            return False
        with suppress(ConfigurationError):
            if _without_login(resource.config()) != before:
                context.log.info("The settings have changed; the next run goes on with them.")
                return True
        return False

    return have_changed


def _without_login(config: CaptureConfig) -> CaptureConfig:
    return replace(config, connection=replace(config.connection, user="", password=""))
