"""From configuration files to one `Definitions`."""

import os
from pathlib import Path
from typing import Any

import dagster as dg

from cdc_assets.defs.capture_job import capture_job_check
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog, Names
from cdc_assets.defs.changes import changes_assets
from cdc_assets.defs.checks import drift_check, headroom_check
from cdc_assets.defs.configuration import CaptureSource, source_fields
from cdc_assets.defs.discovery import discover
from cdc_assets.defs.envelope_io import EnvelopeIOManager
from cdc_assets.defs.schema_history_io import SchemaHistoryIOManager
from cdc_assets.defs.sensors import lsn_sensor
from cdc_assets.defs.signals import signal_job
from cdc_assets.defs.snapshot import snapshot_assets
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.sqlserver import SqlServerCdcResource
from cdc_assets.defs.translator import CdcTranslator, word
from cdc_assets.errors import ConfigurationError

STATE_VARIABLE = "CDC_STATE_DIR"
"""Folder for what is only remembered, such as the last discovered tables; `var` if unset."""


def build_definitions(
    *captures: CaptureSource,
    spark: SparkResource | None = None,
    translator: CdcTranslator | None = None,
    state_dir: str | Path | None = None,
) -> dg.Definitions:
    """Assets, jobs, checks, sensors, schedules and resources of captures, for a code location of your own.

    The result can be merged with other definitions (`dg.Definitions.merge`). All captures share one Spark session.

    Args:
        captures: for each, a configuration file, or connector properties by name; secrets among these as `${env:NAME}`.
        spark: runs their tasks; a local session if None.
        translator: how tables look in Dagster.
        state_dir: folder for what is only remembered, such as the last discovered tables; `CDC_STATE_DIR` if None, or
            else `var`.

    Raises:
        ConfigurationError: there is no capture, or something in a configuration is wrong.

    Example:
        >>> defs = build_definitions("erp.json")
        >>> defs = build_definitions({
        ...     "topic.prefix": "erp",
        ...     "database.hostname": "sql.example.org",
        ...     "database.user": "cdc_reader",
        ...     "database.password": "${env:ERP_PASSWORD}",
        ...     "database.names": "Erp",
        ...     "lake.path": "/data/lake",
        ... })
    """
    if not captures:
        raise ConfigurationError("captures", "none", "at least one", "name a configuration file, or give properties")
    runs = spark or SparkResource()
    look = translator or CdcTranslator()
    folder = Path(state_dir or os.environ.get(STATE_VARIABLE) or "var")
    common = dg.Definitions(resources={"spark": runs}, executor=dg.in_process_executor)
    return dg.Definitions.merge(common, *(_capture_definitions(capture, runs, look, folder) for capture in captures))


def _capture_definitions(
    capture: CaptureSource, spark: SparkResource, translator: CdcTranslator, state_dir: Path
) -> dg.Definitions:
    """Assets, jobs, checks, sensor and resources of one capture."""
    server = SqlServerCdcResource(**source_fields(capture))
    config = server.settings()
    remembered = state_dir / "discovery" / f"{word(config.name)}.json"
    discovery = discover(server.tables, remembered)
    catalog = CaptureCatalog(config, discovery.tables, translator, discovery.problem)
    names = catalog.names
    changes, snapshot = changes_assets(catalog), snapshot_assets(catalog) if discovery.tables else None
    looks = [headroom_check(catalog), capture_job_check(catalog), *([drift_check(catalog)] if discovery.tables else [])]
    own = dg.AssetSelection.assets(changes) - dg.AssetSelection.checks(*looks)
    jobs = [dg.define_asset_job(names.changes, own, description=_CHANGES_JOB)]
    if snapshot:
        jobs.append(dg.define_asset_job(names.snapshot, dg.AssetSelection.assets(snapshot), description=_SNAPSHOT_JOB))
    headroom_job = dg.define_asset_job(names.headroom, dg.AssetSelection.checks(*looks), description=_HEADROOM_JOB)
    headroom_schedule = dg.ScheduleDefinition(
        job=headroom_job,
        cron_schedule="*/30 * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Looks every half hour how far clean-up is from unread changes and tables are from their events.",
    )
    return dg.Definitions(
        assets=[*catalog.specs("source", deps=None), changes, *([snapshot] if snapshot else [])],
        asset_checks=looks,
        jobs=[*jobs, headroom_job, signal_job(catalog)],
        schedules=[headroom_schedule],
        sensors=[lsn_sensor(catalog, jobs)],
        resources=capture_resources(names, capture, spark),
    )


def capture_resources(names: Names, capture: CaptureSource, spark: SparkResource) -> dict[str, Any]:
    """The server, the capture on it, and the IO managers of its lake, by resource key."""
    fields = source_fields(capture)
    server = SqlServerCdcResource(**fields)
    return {
        names.server: server,
        names.resource: CaptureResource(server=server, spark=spark),
        names.envelope_io: EnvelopeIOManager(**fields, spark=spark),
        names.history_io: SchemaHistoryIOManager(**fields, spark=spark),
    }


_CHANGES_JOB = "Follow the log of all captured tables until nothing new comes."
_SNAPSHOT_JOB = "Read captured tables as a whole, or by key ranges."
_HEADROOM_JOB = (
    "Ask the server how far its clean-up is from unread changes, and tables from the structure of their events."
)
