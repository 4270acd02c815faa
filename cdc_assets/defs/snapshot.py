"""The `snapshot` assets of a capture: one multi-asset over key-range partitions."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.kafka import KafkaFollower
from cdc_assets.defs.mirrors import MirrorFollower
from cdc_assets.defs.notices import Notices
from cdc_assets.defs.partitions import range_numbers
from cdc_assets.defs.reporter import Reporter
from cdc_assets.defs.runs import COMMITTED_TAG, PROGRESS_TAG, is_asked_for
from cdc_assets.defs.server_view import server_view
from cdc_assets.defs.system import SystemReport
from cdc_assets.defs.tags import tag_run
from cdc_assets.defs.writing import reported_in_any_case, writing, writing_assets
from cdc_assets.ledger.state import CaptureState
from cdc_assets.metrics.exports import exported_metrics
from cdc_assets.shared.progress import Progress, SnapshotSummary, is_temporary


class SnapshotConfig(dg.Config):
    """Which tables are read."""

    due_only: bool = Field(
        default=False, description="Only tables that need a snapshot according to `snapshot.mode`; used by the sensor."
    )


def snapshot_assets(catalog: CaptureCatalog) -> dg.AssetsDefinition:
    """The multi-asset; a run covers the selected tables and key ranges, a backfill is a single run."""
    names = catalog.names

    @writing_assets(
        catalog,
        names.snapshot_op,
        catalog.specs("snapshot", deps="source"),
        partitions_def=catalog.partitions,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def snapshot(context: dg.AssetExecutionContext, config: SnapshotConfig) -> Iterator[Any]:
        resource: CaptureResource = getattr(context.resources, names.resource)
        # where there is work for certain, Spark is started beside what comes first
        if is_asked_for(context.run, names.sensor) or not config.due_only:
            resource.get_ready()
        with writing(catalog, context, server_view(catalog, resource)) as written:
            system, page = SystemReport(catalog, written), written.page
            reporter = Reporter(catalog, "snapshot", context, written, every_s=float("inf"))

            def on_progress(progress: Progress) -> None:
                reporter.on_progress(progress)
                count(progress)

            notices = Notices(catalog, context)
            opened = resource.open(
                context.run.run_id, on_progress, notices.send, written.writers.topics, on_read=reporter.on_read
            )
            kafka = KafkaFollower(catalog, context, resource)
            exported = exported_metrics(catalog.config.metrics, catalog.prefix, page.report)
            with exported as count, kafka, opened as capture, page.fresh():
                with reported_in_any_case(reporter.report_all):
                    # the sensor's run reads what is due by then; any other one what was selected
                    if config.due_only:
                        summary = capture.snapshot()
                    else:
                        summary = capture.snapshot(reporter.chosen(), _ranges(catalog, context))
                # at once: a run that fails in what follows has read them, and a start does not want them read again
                if summary.tables:
                    tag_run(context.instance, context.run.run_id, {PROGRESS_TAG: str(len(summary.tables))})
                if config.due_only:
                    _warn_of_missing_tables(catalog, context, capture.state(), summary)
                yield from reporter.results(capture.structures())
                MirrorFollower(catalog, context, resource).finish()
        yield from system.results(reporter.windows, page.facts())
        tag_run(context.instance, context.run.run_id, {COMMITTED_TAG: str(len(summary.tables))})
        # after all reports, so that tables that were read show it
        if summary.failed:
            raise dg.Failure(
                description="\n".join(f"{trouble.table}: {trouble.reason}" for trouble in summary.failed),
                metadata={"read": len(summary.tables), "failed": len(summary.failed)},
                # a retry would read again what was read
                allow_retries=is_temporary(summary.failed) and not summary.tables,
            )

    return snapshot


def _warn_of_missing_tables(
    catalog: CaptureCatalog, context: dg.AssetExecutionContext, state: CaptureState, summary: SnapshotSummary
) -> None:
    """Warn about what the sensor waits for and that is not read: databases that cannot be captured now, and tables that the server
    does not have."""
    for database, reason in summary.left_out.items():
        context.log.error(f"{database} is left out: {reason}")
    known = {*state.tables, *(trouble.table for trouble in summary.failed)}
    listed = [table for table in catalog.keys("snapshot").values() if table.database not in summary.left_out]
    missing = [str(table) for table in listed if table not in known]
    if missing:
        context.log.warning(
            f"{', '.join(missing)}: not among the captured tables of the server. "
            "Next: reload the code location, if they are gone permanently."
        )


def _ranges(catalog: CaptureCatalog, context: dg.AssetExecutionContext) -> tuple[int, ...] | None:
    """Numbers of the chosen key ranges; None if all are chosen, which is a snapshot of the whole table."""
    chosen = range_numbers(catalog.partitions, context.partition_keys)
    return None if len(chosen) == len(catalog.partitions.get_partition_keys()) else chosen
