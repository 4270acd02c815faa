"""Builds one `Definitions` from configuration files."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from cdc_assets.core.collection import gc_freeze, gc_paused
from cdc_assets.core.state_folder import STATE_VARIABLE, choose_state_folder
from cdc_assets.defs.broken import broken_definitions, was_loaded
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.changes import changes_assets
from cdc_assets.defs.configuration import CaptureSource, is_of_connector, source_fields
from cdc_assets.defs.dagster_internals import left_by_load
from cdc_assets.defs.discovery import discover, remembered
from cdc_assets.defs.envelope_io import EnvelopeIOManager
from cdc_assets.defs.io_managers import IOManagers
from cdc_assets.defs.kafka import kafka_asset
from cdc_assets.defs.loaded import note_loaded
from cdc_assets.defs.mirrors import mirror_assets
from cdc_assets.defs.names import Names
from cdc_assets.defs.parts import CaptureDefinitions
from cdc_assets.defs.schema_history_io import SchemaHistoryIOManager
from cdc_assets.defs.sensors import lsn_sensor
from cdc_assets.defs.server_view import server_view
from cdc_assets.defs.signals import signal_job
from cdc_assets.defs.snapshot import snapshot_assets
from cdc_assets.defs.spark import AnySparkResource, SparkResource, spark_of
from cdc_assets.defs.sqlserver import SqlServerCdcResource
from cdc_assets.defs.translator import CdcTranslator
from cdc_assets.errors import ConfigurationError
from cdc_assets.overview.checks.sqlserver import CHECKS


def build_definitions(
    *captures: CaptureSource,
    spark: AnySparkResource | None = None,
    translator: CdcTranslator | None = None,
    state_dir: str | Path | None = None,
    envelope_io: Callable[..., EnvelopeIOManager] = EnvelopeIOManager,
    schema_history_io: Callable[..., SchemaHistoryIOManager] = SchemaHistoryIOManager,
) -> dg.Definitions:
    """Assets, jobs, checks, sensors, schedules and resources of captures, for your own code location.

    The result can be merged with other definitions (`dg.Definitions.merge`). All captures share one Spark session.

    Args:
        captures: a configuration file for each, or connector properties by name, with secrets written as `${env:NAME}`.
        spark: Spark session that runs their tasks: ours, or a `PySparkResource` or `LazyPySparkResource` of dagster-pyspark; a
            local one if None.
        translator: keys, groups and tags of the tables in Dagster.
        state_dir: folder for cached data, such as the last discovered tables; if None, the folder in `CDC_STATE_DIR`,
            or else `var`.
        envelope_io: IO manager of the topics: your own subclass, or a function with the same arguments, such as
            `functools.partial` of one with more fields. Each capture gets one.
        schema_history_io: IO manager of the schema history, likewise.

    Raises:
        ConfigurationError: there is no capture, or no configuration is valid and none ever was. If others are, or it was, an
            invalid one is a page in trouble (`broken`).

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
        >>> defs = build_definitions("erp.json", envelope_io=MyEnvelopeIOManager)
    """
    if not captures:
        raise ConfigurationError("captures", "none", "at least one", "name a configuration file, or give properties")
    folder = Path(state_dir or os.environ.get(STATE_VARIABLE) or "var")
    given = captures, spark, translator, folder, envelope_io, schema_history_io
    if (left := left_by_load()) is not None:
        return _of_run.get((*given, dict(left)))
    return _definitions(*given)


def _definitions(
    captures: Sequence[CaptureSource],
    spark: AnySparkResource | None,
    translator: CdcTranslator | None,
    folder: Path,
    envelope_io: Callable[..., EnvelopeIOManager],
    schema_history_io: Callable[..., SchemaHistoryIOManager],
) -> dg.Definitions:
    choose_state_folder(folder)
    io_managers = IOManagers(spark_of(spark or SparkResource()), envelope_io, schema_history_io)
    chosen = translator or CdcTranslator()
    made, broken = list[dg.Definitions](), list[tuple[CaptureSource, ConfigurationError]]()
    with gc_paused():
        for capture in captures:
            try:
                made.append(_capture_definitions(capture, io_managers, chosen, folder))
            except ConfigurationError as error:
                broken.append((capture, error))
    if broken and not made and not any(was_loaded(capture) for capture, _ in broken):
        raise broken[0][1]
    others = [capture for capture in captures if all(capture is not found for found, _ in broken)]
    return dg.Definitions.merge(*made, *(in_trouble(*entry, io_managers, chosen, folder, others) for entry in broken))


def in_trouble(
    capture: CaptureSource,
    error: ConfigurationError,
    io_managers: IOManagers,
    translator: CdcTranslator,
    folder: str | Path,
    others: Collection[CaptureSource] = (),
) -> dg.Definitions:
    """What is there in place of a capture that cannot be loaded.

    Args:
        error: the reason.
        folder: that of cached data.
        others: captures beside it that are there.
    """

    def resources(names: Names) -> dict[str, Any]:
        return capture_resources(names, capture, io_managers)

    return broken_definitions(capture, error, translator, Path(folder), resources, others)


@dataclass(slots=True)
class _OfRun:
    """The definitions that the process of a run has built: Dagster loads them a second time if the run selects assets.

    Args:
        asked: what they were built from: the arguments of `_definitions`, and what the load of the code location has left.
    """

    asked: tuple[Any, ...] = ()
    built: dg.Definitions | None = None

    def get(self, asked: tuple[Any, ...]) -> dg.Definitions:
        """The definitions of that load, built once."""
        if self.built is None or asked != self.asked:
            self.asked, self.built = asked, _definitions(*asked[:-1])
            gc_freeze()  # this process needs them to its end
        return self.built


_of_run = _OfRun()


def _capture_definitions(
    capture: CaptureSource, io_managers: IOManagers, translator: CdcTranslator, state_dir: Path
) -> dg.Definitions:
    """Assets, jobs, checks, sensor and resources of one capture."""
    if is_of_connector(capture):
        from cdc_assets.defs.engines.build import connector_definitions  # many imports that other captures do not need

        return connector_definitions(capture, io_managers, translator, state_dir)
    server = SqlServerCdcResource(**source_fields(capture))
    config = server.settings()
    discovery = discover(server.tables, remembered(state_dir, config.name))
    file = "" if isinstance(capture, Mapping) else str(capture)
    catalog = CaptureCatalog(config, discovery.tables, translator, discovery.problem, file)
    note_loaded(capture, catalog)
    names = catalog.names
    parts = CaptureDefinitions(catalog, CHECKS, partial(server_view, catalog))
    parts.add(changes_assets(catalog), names.changes, _CHANGES_JOB)
    parts.add_job(names.follow, dg.AssetSelection.assets(catalog.page_key).without_checks(), _FOLLOW_JOB)
    if discovery.tables:
        parts.add(snapshot_assets(catalog), names.snapshot, _SNAPSHOT_JOB)
    if catalog.keys("current"):
        from cdc_assets.defs.reconcile import matches_check  # likewise

        parts.add(mirror_assets(catalog), names.mirror, _MIRROR_JOB, with_checks=False)
        parts.add_checks(matches_check(catalog), names.reconcile, _RECONCILE_JOB)
    if catalog.has_kafka:
        parts.add(kafka_asset(catalog), names.publish, _PUBLISH_JOB)
    resources = capture_resources(names, capture, io_managers)
    return parts.definitions(lsn_sensor, signal_job(catalog), _HEADROOM_JOB, resources)


def capture_resources(names: Names, capture: CaptureSource, io_managers: IOManagers) -> dict[str, Any]:
    """The server, the capture, and the IO managers of its lake with their Spark session, by resource key."""
    fields = source_fields(capture)
    server = SqlServerCdcResource(**fields)
    return {
        names.server: server,
        names.resource: CaptureResource(server=server, spark=io_managers.spark),
    } | io_managers.of(names, fields)


_CHANGES_JOB = "Read the changes of all captured tables that are committed when the run begins."
_FOLLOW_JOB = "Streams for the sensor until nothing is new. It selects only the record of windows, so that it starts sooner and records less."
_MIRROR_JOB = "Update the tables of current rows and their history from the topics."
_RECONCILE_JOB = "Compare the tables of current rows with the server, while streaming continues."
_PUBLISH_JOB = "Publish to Kafka what is complete in the lake."
_SNAPSHOT_JOB = "Read captured tables completely, or by key ranges."
_HEADROOM_JOB = "Check how far the server's clean-up is from unread changes, and whether tables differ from the structure of their events."
