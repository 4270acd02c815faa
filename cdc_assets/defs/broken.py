"""A capture whose configuration is broken: a page in trouble, and a sensor that says what is wrong.

A wrong line in the file of one capture must not stop the others, nor the assets that somebody has built on it. So in its place a
code location has the asset of its page, and those of the tables that the last load has found, which nothing materializes. Its
resources fail when they are used, and the ticks of its sensor fail with the reason until the file is right. It is a capture again when the code
location is loaded again; nothing of the lake is touched.

A code location of nothing else fails to load, so that whoever begins is told at once; but not if the capture was loaded before:
without a sensor its page would go on saying what the last report found, that all is well. Which page that is was noted then (`loaded`), for
a file that cannot be read does not say it.
"""

import logging
import os
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import dagster as dg

from cdc_assets.config.formats import flat
from cdc_assets.config.load import overrides, read_properties
from cdc_assets.connectors.engine.topics import BATCHES
from cdc_assets.defs.checks.job import definitions_of
from cdc_assets.defs.configuration import CaptureSource, is_of_connector, source_fields
from cdc_assets.defs.discovery import recall, remembered
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.defs.keys import Role
from cdc_assets.defs.loaded import Loaded, loaded_before
from cdc_assets.defs.markdown import escaped
from cdc_assets.defs.names import Names
from cdc_assets.defs.sqlserver import SqlServerCdcResource
from cdc_assets.defs.translator import CdcTranslator, word
from cdc_assets.defs.view import CaptureView, Observation
from cdc_assets.defs.watch import IdlePage
from cdc_assets.errors import ConfigurationError
from cdc_assets.lake.system_topics import WINDOWS
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.checks.health import HEALTH
from cdc_assets.overview.report import Trouble

log = logging.getLogger(__name__)

_EVERY_S = 20
_RIGHT = (
    "The configuration is valid now, but the code location was loaded while it was not. Next: reload the code location"
)

Resources = Callable[[Names], dict[str, Any]]
"""Makes a capture's resources by key."""


def broken_definitions(
    capture: CaptureSource,
    error: ConfigurationError,
    translator: CdcTranslator,
    folder: Path,
    resources: Resources,
    others: Collection[CaptureSource] = (),
) -> dg.Definitions:
    """What a code location has in place of a capture.

    Args:
        error: why it cannot be loaded.
        translator: keys of the tables.
        folder: where the tables are that the last load has found.
        resources: called if the configuration holds no secret in plain text.
        others: captures beside it that are there.
    """
    known = _known(capture, others)
    name, prefix, names = known.name, known.prefix, Names(known.name)
    log.error("Capture %s cannot be loaded; everything else is. %s", name, error)
    key = dg.AssetKey([prefix, known.page])
    page = dg.AssetSpec(
        key,
        description=f"**The configuration is broken: {escaped(str(error))}**",
        group_name=f"{word(prefix)}_system",
        owners=["team:cdc"],
        tags={"cdc/capture": word(prefix)},
    )
    listed = recall(remembered(folder, name))
    tables = [dg.AssetSpec(translator.asset_key(prefix, it.table, role)) for it in listed for role in get_args(Role)]
    of_settings = _problem(capture) is not None

    def problem() -> ConfigurationError | None:
        return _problem(capture) if of_settings else error

    def observe() -> Observation:
        found = problem()
        trouble = Trouble("The configuration", str(found) if found else _RIGHT)
        return Observation(CaptureReport(name, datetime.now(UTC), troubles=(trouble,)))

    view = CaptureView(name, key, "", observe)
    sensor = _sensor(view, problem, names.log_sensor if known.page == BATCHES else names.sensor)
    return dg.Definitions(
        [page, *(spec.with_io_manager_key(names.envelope_io) for spec in tables)],
        asset_checks=definitions_of([HEALTH], view, names.headroom, "", lambda _: view),
        sensors=[sensor],
        resources=resources(names) if _is_shown(capture) else {},
    )


def was_loaded(capture: CaptureSource) -> bool:
    """Whether the capture was there when the code location was loaded before, so that it has a page."""
    return _known(capture) == loaded_before(capture)


def _sensor(view: CaptureView, problem: Callable[[], ConfigurationError | None], name: str) -> dg.SensorDefinition:
    page = IdlePage()

    @dg.sensor(
        name=name,
        minimum_interval_seconds=_EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="The capture's configuration is broken: the ticks say why.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        for event in page.events(context.instance, view):
            context.instance.report_runless_asset_event(event)
        if found := problem():
            raise found
        return dg.SkipReason(f"{_RIGHT}.")

    return sensor


def _problem(capture: CaptureSource) -> ConfigurationError | None:
    """What is wrong with the settings now; None if nothing is."""
    try:
        resource = ConnectorResource if is_of_connector(capture) else SqlServerCdcResource
        resource(**source_fields(capture)).settings()
    except ConfigurationError as error:
        return error
    return None


def _is_engine(capture: CaptureSource) -> bool:
    try:
        return is_of_connector(capture)
    except ConfigurationError:
        return False


def _is_shown(capture: CaptureSource) -> bool:
    """Whether Dagster may show the configuration of the resources."""
    try:
        source_fields(capture)
    except ConfigurationError:
        return False
    return True


def _known(capture: CaptureSource, others: Collection[CaptureSource] = ()) -> Loaded:
    """The capture as it was when it was loaded last, unless its file says now that it is another one, or another file has become that
    capture; else as far as that can be read, with the name of the file."""
    path = Path(capture) if isinstance(capture, str | Path) else None
    try:
        texts = flat(dict(capture)) if isinstance(capture, Mapping) else read_properties(Path(capture))
    except ConfigurationError:
        texts = {}
    given = texts | dict(overrides(os.environ))
    readable = {name: text.strip() for name, text in given.items() if text.strip() and "${" not in text}
    before = loaded_before(capture)
    there = [found for other in others if (found := loaded_before(other))]
    if before and any(before.name == one.name or before.prefix == one.prefix for one in there):
        before = None
    if before and readable.get("topic.prefix", before.prefix) == before.prefix:
        return before
    prefix = readable.get("topic.prefix") or (path.stem if path else "capture")
    return Loaded(readable.get("name") or prefix, prefix, BATCHES if _is_engine(capture) else WINDOWS)
