"""The `changes` assets of a capture: one multi-asset, one loop."""

from collections.abc import Iterator
from dataclasses import replace
from time import time
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_assets.capture.progress import Progress
from cdc_assets.config.kinds import LONGEST_MS
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.continuity import ContinuityReport, continuity_spec
from cdc_assets.defs.failures import as_step
from cdc_assets.defs.io_managers import Writers
from cdc_assets.defs.kafka import KafkaFollower
from cdc_assets.defs.live import LivePage, subject_of
from cdc_assets.defs.mirrors import MirrorFollower
from cdc_assets.defs.notices import Notices
from cdc_assets.defs.queue import somebody_waits
from cdc_assets.defs.runs import COMMITTED_TAG, LEFT_AT_TAG, is_asked_for, repository_of
from cdc_assets.defs.session import Session
from cdc_assets.defs.system import SystemReport
from cdc_assets.run.log_levels import enable_info_logs


class StreamConfig(dg.Config):
    """How long a run streams; unset fields are taken from the capture's configuration."""

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


def changes_assets(catalog: CaptureCatalog) -> dg.AssetsDefinition:
    """The multi-asset. Even if only some assets are selected, all tables are streamed, since the log is read once for all."""
    names = catalog.names

    @dg.multi_asset(
        name=names.changes_op,
        specs=[*catalog.specs("changes", deps="source"), *catalog.system_specs()],
        check_specs=[continuity_spec(key) for key in catalog.keys("changes")],
        can_subset=True,
        pool=names.pool,
        required_resource_keys={names.resource, names.envelope_io, names.history_io},
    )
    def changes(context: dg.AssetExecutionContext, config: StreamConfig) -> Iterator[Any]:
        resource: CaptureResource = getattr(context.resources, names.resource)
        if is_asked_for(context.run):
            resource.get_ready()
        writers = Writers(names, context)
        system = SystemReport(catalog, context, writers)
        session = Session(catalog, "changes", context, writers, config.report_every_s)
        runs = catalog.runs().of(repository_of(context.run))
        page = LivePage(subject_of(catalog, resource), context, writers.topics)
        continuity = ContinuityReport(catalog, context, page.board)
        mirrors = MirrorFollower(catalog, context, resource)
        listed = {schema.table for schema in catalog.tables}
        enable_info_logs()

        def on_progress(progress: Progress) -> None:
            page.note(catalog.key(table, "changes") for table in progress.tables)
            session.on_progress(progress)
            system.note(progress)
            continuity.on_progress(progress, capture.state)
            mirrors.note_commit()
            count(progress)

        notices = Notices(catalog, context)
        opened = resource.open(
            context.run.run_id,
            on_progress,
            notices.send,
            writers.topics,
            idle_timeout_s=config.idle_timeout_s,
            max_duration_s=config.max_duration_s,
        )
        kafka = KafkaFollower(catalog, context, resource)
        with as_step(context), page.exported(catalog.config.metrics, catalog.prefix) as count, kafka, opened as capture:
            with page.fresh():
                if (gap_s := runs.gap_s(context.instance)) is not None:
                    context.log.info(f"Nothing was streamed for {gap_s:.1f} s since the run before.")
                with session.reporting_in_any_case():
                    summary = capture.stream(
                        should_yield=somebody_waits(runs, context.instance),
                        is_added=lambda table: table not in listed,
                    )
                if summary.ended in ("deadline", "yielded"):
                    context.instance.add_run_tags(context.run.run_id, {LEFT_AT_TAG: f"{time():.3f}"})
                context.log.info(f"{summary.windows} windows; ended: {summary.ended}")
                for database, reason in summary.left_out.items():
                    context.log.error(f"{database} is left out: {reason}")
                for trouble in summary.unread:
                    context.log.warning(f"The requested snapshot of {trouble.table} failed: {trouble.reason}")
                yield from session.results(capture.structures())
                mirrors.finish()
            context.instance.add_run_tags(context.run.run_id, {COMMITTED_TAG: str(summary.windows)})
            state = capture.state()
            states = dict(state.tables)
        for trouble in summary.troubled:
            if trouble.table not in states:
                context.log.error(f"{trouble.table} is not captured: {trouble.reason}")
                continue
            states[trouble.table] = replace(states[trouble.table], status=trouble.status, reason=trouble.reason)
        between = {} if gap_s is None else {"seconds_between_runs": round(gap_s, 1)}
        yield from system.results(session.windows, page.facts() | between)
        yield from continuity.results(replace(state, tables=states))

    return changes
