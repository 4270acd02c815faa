"""From configuration files to one `Definitions`."""

import os
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from cdc_assets.config.load import load_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.defs.capture_job import capture_job_check
from cdc_assets.defs.captures import CaptureResource, discovered_tables
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.changes import changes_assets
from cdc_assets.defs.checks import drift_check, headroom_check
from cdc_assets.defs.discovery import discover
from cdc_assets.defs.envelope_io import EnvelopeIOManager
from cdc_assets.defs.schema_history_io import SchemaHistoryIOManager
from cdc_assets.defs.sensors import lsn_sensor
from cdc_assets.defs.signals import signal_job
from cdc_assets.defs.snapshot import snapshot_assets
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.translator import CdcTranslator, word

STATE_VARIABLE = "CDC_STATE_DIR"
"""Folder for what is only remembered, such as the last discovered tables; `var` if unset."""


def build_definitions(files: Sequence[Path], spark: SparkResource, translator: CdcTranslator) -> dg.Definitions:
    """Definitions of all captures.

    Args:
        files: one configuration file per capture.
        spark: runs the tasks of all of them.
        translator: how tables look in Dagster.

    Raises:
        ConfigurationError: a file is wrong.
    """
    captures = [capture_definitions(load_config(file), file, spark, translator) for file in files]
    common = dg.Definitions(resources={"spark": spark}, executor=dg.in_process_executor)
    return dg.Definitions.merge(common, *captures)


def capture_definitions(
    config: CaptureConfig, file: Path, spark: SparkResource, translator: CdcTranslator
) -> dg.Definitions:
    """Assets, jobs, checks, sensor and resources of one capture."""
    remembered = Path(os.environ.get(STATE_VARIABLE) or "var") / "discovery" / f"{word(config.name)}.json"
    discovery = discover(lambda: discovered_tables(config), remembered)
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
        resources={
            names.resource: CaptureResource(config_file=str(file), spark=spark),
            names.envelope_io: EnvelopeIOManager(config_file=str(file), spark=spark),
            names.history_io: SchemaHistoryIOManager(config_file=str(file), spark=spark),
        },
    )


_CHANGES_JOB = "Follow the log of all captured tables until nothing new comes."
_SNAPSHOT_JOB = "Read captured tables as a whole, or by key ranges."
_HEADROOM_JOB = (
    "Ask the server how far its clean-up is from unread changes, and tables from the structure of their events."
)
