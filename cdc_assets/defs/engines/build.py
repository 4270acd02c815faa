"""Definitions of one capture by an embedded connector."""

from functools import partial
from pathlib import Path

import dagster as dg

from cdc_assets.defs.configuration import CaptureSource, source_fields
from cdc_assets.defs.discovery import remembered
from cdc_assets.defs.engines.assets import changes_assets, snapshot_assets
from cdc_assets.defs.engines.catalog import ConnectorCatalog
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.defs.engines.sensor import log_sensor
from cdc_assets.defs.engines.signals import signal_job
from cdc_assets.defs.engines.tables import find_tables
from cdc_assets.defs.engines.view import connector_view
from cdc_assets.defs.io_managers import IOManagers
from cdc_assets.defs.loaded import note_loaded
from cdc_assets.defs.parts import CaptureDefinitions
from cdc_assets.defs.translator import CdcTranslator
from cdc_assets.overview.checks.connector import CHECKS


def connector_definitions(
    capture: CaptureSource, io_managers: IOManagers, translator: CdcTranslator, state_dir: Path
) -> dg.Definitions:
    """Assets, jobs, checks, sensor and resources of one capture.

    Raises:
        ConfigurationError: its configuration is invalid.
    """
    fields = source_fields(capture)
    resource = ConnectorResource(**fields)
    config = resource.settings()
    tables, problem = find_tables(resource, remembered(state_dir, config.name))
    catalog = ConnectorCatalog(config, tables, translator, problem)
    note_loaded(capture, catalog)
    names = catalog.names
    parts = CaptureDefinitions(catalog, CHECKS, partial(connector_view, catalog))
    parts.add(changes_assets(catalog), names.changes, _CHANGES_JOB)
    if catalog.keys("snapshot"):
        parts.add(snapshot_assets(catalog), names.snapshot, _SNAPSHOT_JOB)
    resources = {names.resource: resource} | io_managers.of(names, fields)
    return parts.definitions(log_sensor, signal_job(catalog), _HEADROOM_JOB, resources)


_CHANGES_JOB = "Run the connector up to where the log ends when the run begins."
_SNAPSHOT_JOB = "Have the connector read tables again, and run it until that is done."
_HEADROOM_JOB = "Check whether the lake is complete, and whether the database keeps what was not read yet."
