"""The `changes` and `snapshot` assets of a capture by an embedded connector."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_assets.capture.log_levels import enable_info_logs
from cdc_assets.config.engine import READ_LIST
from cdc_assets.config.patterns import expression_for
from cdc_assets.connectors.engine.row_reads import left_out
from cdc_assets.connectors.engine.run import EngineSummary
from cdc_assets.connectors.engine.signal_targets import identifier
from cdc_assets.connectors.engine.signalled_run import require_incremental, with_file_channel
from cdc_assets.connectors.engine.source import LogPoint
from cdc_assets.core.signal import Signal
from cdc_assets.defs.changes import StreamConfig
from cdc_assets.defs.checks.board import CheckBoard
from cdc_assets.defs.checks.events import event_of, result_of, specs_of
from cdc_assets.defs.engines.catalog import ConnectorCatalog
from cdc_assets.defs.engines.report import BatchReport
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.defs.engines.view import connector_view
from cdc_assets.defs.runs import COMMITTED_TAG, is_asked_for
from cdc_assets.defs.signals import SnapshotType
from cdc_assets.defs.tags import tag_run
from cdc_assets.defs.writing import reported_in_any_case, writing, writing_assets
from cdc_assets.errors import CdcError, ConfigurationError, describe_error
from cdc_assets.lake.topics import TopicTables
from cdc_assets.metrics.exports import exported_metrics
from cdc_assets.overview.checks.check import Verdict
from cdc_assets.overview.checks.connector import CONNECTOR
from cdc_assets.signals.requests import compose

READ_TO = "cdc/read_to"
"""On a run that ended because nothing was new: where the log ended before it started, so all of that was read."""
_WITHOUT_ROWS = ("never", "no_data", "schema_only", "schema_only_recovery", "recovery")
"""Snapshot modes in which a connector's first run reads no rows."""
_ENDED = Verdict(passed=True, text="The connector ended by itself.")


class ReadConfig(dg.Config):
    """How a requested snapshot reads."""

    type: SnapshotType = Field(
        default=SnapshotType.blocking,
        description="`blocking`: streaming pauses while the tables are read. `incremental`: while streaming continues, in chunks; the "
        "connector needs a signal table for its markers (signal.data.collection).",
    )
    conditions: dict[str, str] = Field(
        default={},
        description="Rows to read, by an expression for the table's name: a predicate; for a blocking snapshot, a complete SELECT.",
    )


def changes_assets(catalog: ConnectorCatalog) -> dg.AssetsDefinition:
    """The multi-asset. Even if only some assets are selected, all tables are captured, since the connector reads one log."""
    names = catalog.names
    specs = [*catalog.specs("changes", deps="source"), *catalog.system_specs()]

    @writing_assets(catalog, names.changes_op, specs, check_specs=specs_of(CONNECTOR, catalog))
    def changes(context: dg.AssetExecutionContext, config: StreamConfig) -> Iterator[Any]:
        resource: ConnectorResource = getattr(context.resources, names.resource)
        is_sensors = is_asked_for(context.run, names.log_sensor)
        with _reading(catalog, context, resource, config.report_every_s) as (report, topics, end):
            goal = None if is_sensors or config.limits else end
            summary = resource.run(topics, report.add, limits=config.limits, goal=goal)
        _close(context, summary, end)
        yield from report.results(all_selected=not is_sensors)
        if _is_planned(context):
            yield result_of(CONNECTOR, _ENDED, catalog.page_key)

    return changes


def snapshot_assets(catalog: ConnectorCatalog) -> dg.AssetsDefinition:
    """The multi-asset; a run has the connector read the selected tables, and lasts until it has."""
    names = catalog.names

    @writing_assets(catalog, names.snapshot_op, catalog.specs("snapshot", deps="source"))
    def snapshot(context: dg.AssetExecutionContext, config: ReadConfig) -> Iterator[Any]:
        resource: ConnectorResource = getattr(context.resources, names.resource)
        with _reading(catalog, context, resource, float("inf")) as (report, topics, end):
            signal = _request(catalog, context, config, resource)
            what = f"signal {signal.id}: {signal.data}" if signal else "the connector's own first snapshot"
            context.log.info(f"Reading by {what}")
            summary = resource.run(topics, report.add, signal=signal)
        _close(context, summary, end)
        unread = [] if signal else _left_out(catalog, context, resource)
        yield from report.results(all_selected=True, unread=unread)

    return snapshot


@contextmanager
def _reading(
    catalog: ConnectorCatalog, context: dg.AssetExecutionContext, resource: ConnectorResource, every_s: float
) -> Iterator[tuple[BatchReport, TopicTables, LogPoint | None]]:
    """What runs of both have around the connector: they wait for their turn, report batches, and keep the page true.

    Returns:
        What reports batches, the tables to write to, and where the log ends before the run.
    """
    enable_info_logs()
    with writing(catalog, context, connector_view(catalog, resource)) as written:
        page = written.page
        exported = exported_metrics(catalog.config.metrics, catalog.prefix, page.report)
        with _observed(context, page.board, catalog.page_key), exported as count:
            report = BatchReport(catalog, context, written, every_s, count)
            with reported_in_any_case(report.report_all), page.fresh():
                yield report, written.writers.topics, _log_end(context, resource)


def _request(
    catalog: ConnectorCatalog, context: dg.AssetExecutionContext, config: ReadConfig, resource: ConnectorResource
) -> Signal | None:
    """A signal that has the connector read the selected tables; None for its first run, which reads all tables by itself.

    Raises:
        ConfigurationError: by its mode the first run reads none; or an incremental snapshot could not be completed.
    """
    settings = resource.settings()
    if not resource.overview().state.offsets:
        mode = settings.properties.get("snapshot.mode", "initial")
        if mode in _WITHOUT_ROWS:
            expected = "a mode that reads rows in the connector's first run"
            raise ConfigurationError("snapshot.mode", mode, expected, "materialize the changes first")
        return None
    if config.type is SnapshotType.incremental:
        require_incremental(with_file_channel(settings, Path()))
    chosen = [table for key, table in catalog.keys("snapshot").items() if key in context.selected_asset_keys]
    names = [expression_for(identifier(catalog.config, table)) for table in chosen]
    own_id = f"{context.run.run_id[:30]}-{context.retry_number}"
    return compose(own_id, "execute-snapshot", names, config.conditions, snapshot=config.type.value).signal


def _left_out(
    catalog: ConnectorCatalog, context: dg.AssetExecutionContext, resource: ConnectorResource
) -> Sequence[dg.AssetKey]:
    """Selected tables whose rows the connector's own snapshot does not read."""
    is_left_out = left_out(resource.settings(), READ_LIST)
    found = {key: table for key, table in catalog.keys("snapshot").items() if key in context.selected_asset_keys}
    unread = {key: table for key, table in found.items() if is_left_out(table)}
    if unread:
        names = ", ".join(map(str, unread.values()))
        context.log.warning(f"{READ_LIST} leaves out the rows of {names}. Next: materialize their snapshots again.")
    return list(unread)


def _log_end(context: dg.AssetExecutionContext, resource: ConnectorResource) -> LogPoint | None:
    """Where the log ends now; None, with a warning, if the database cannot be queried."""
    try:
        with resource.probe() as probe:
            return probe.log_end()
    except CdcError as error:
        context.log.warning(f"The log's end is not known: {error}")
        return None


def _close(context: dg.AssetExecutionContext, summary: EngineSummary, end: LogPoint | None) -> None:
    """Record what the sensor must know of a run that succeeded."""
    context.log.info(f"{summary.batches} batches; ended: {summary.ended}")
    for trouble in summary.unread:
        context.log.error(trouble)
    tags = {COMMITTED_TAG: str(summary.batches)}
    if end is not None and summary.ended == "idle":
        tags[READ_TO] = str(end)
    tag_run(context.instance, context.run.run_id, tags)


@contextmanager
def _observed(context: dg.AssetExecutionContext, board: CheckBoard, key: dg.AssetKey) -> Iterator[None]:
    """Report the check of the connector: if the block fails, or if it succeeds and that is news, and no step has planned it. An
    interruption says nothing of it."""
    try:
        yield
    except CdcError as error:
        failed = Verdict(passed=False, text=describe_error(error))
        board.show([event_of(CONNECTOR, failed, key)], {key})
        raise
    if not _is_planned(context):
        board.show([event_of(CONNECTOR, _ENDED, key)], ())


def _is_planned(context: dg.AssetExecutionContext) -> bool:
    return any(check.name == CONNECTOR.name for check in context.selected_asset_check_keys)
