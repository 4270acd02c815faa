"""`cdc-assets doctor`: checks whether everything is ready, and prints the SQL that corrects what is not."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from cdc_assets.adapters.sqlserver.grants import grants
from cdc_assets.adapters.sqlserver.preflight import inspect
from cdc_assets.adapters.sqlserver.rights import grant_on_server
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.assembly.publishing import ask_marker, inspect_publishing
from cdc_assets.cli.as_json import of_doctor, print_json
from cdc_assets.cli.console import (
    DEFAULT_CONFIG,
    FAILED,
    ConfigOption,
    JsonOption,
    configuration_file,
    out,
    read_config,
)
from cdc_assets.cli.engine_doctor import COMPLETE, engine_checks, lake_check
from cdc_assets.cli.instance import instance_checks
from cdc_assets.config.engine import is_engine_file
from cdc_assets.config.filters import TableFilter
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.check_result import CheckResult
from cdc_assets.core.refused_logins import offering_anyway
from cdc_assets.errors import LAKE_ERRORS, ConfigurationError
from cdc_assets.history.drift import Drift
from cdc_assets.mirror.key_checks import check_keys
from cdc_assets.overview import CaptureOverview
from cdc_assets.overview.tables import RECORD_IT
from cdc_assets.overview.troubles import derived_troubles
from cdc_assets.shared.instances import by_table, newest

PER_TABLE = {
    "capture instance": "table",
    "reading": "source or change table",
    "structure": "table",
    "topic": "topic",
    "Kafka topic": "topic",
}
"""Checks made for each of these objects: passed ones are counted, not listed."""


def doctor(
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    rights: Annotated[
        bool, typer.Option("--grants", help="Print T-SQL that makes a login with the least rights, and exit.")
    ] = False,
    login: Annotated[str, typer.Option("--login", help="Name of that login.")] = "cdc_reader",
) -> None:
    """Check the connection, the prerequisites on the server, the lake, and Kafka if topics are published; say how to correct what is wrong.

    Changes nothing. Ends with exit code 1 if a capture could not work.
    """
    if is_engine_file(place := configuration_file(config)):
        if rights:
            raise ConfigurationError("option", "--grants", "a capture of SQL Server", "leave it out")
        with offering_anyway():
            results = engine_checks(place)
    elif rights:
        _print_grants(read_config(config), login)
        return
    else:
        results = _server_checks(read_config(config))
    _end([*results, *instance_checks(place)], as_json)


def _server_checks(settings: CaptureConfig) -> list[CheckResult]:
    """What a capture of SQL Server needs: the server, the lake, what is in it, and Kafka if topics are published."""
    with offering_anyway(), _source(settings) as source:
        results = [*inspect(source, settings), lake_check(settings.lake)]
        ready = _is_ready(results)
        results += _topics(settings, source if ready else None)
        if _is_ready(results):
            results += [result for drift in CaptureOverview(settings, source).drifts() for result in _structure(drift)]
            results += _keys(source, settings)
        if ready:
            results += _lists(settings, source)
    return [*results, *inspect_publishing(settings)]


def _is_ready(results: Sequence[CheckResult]) -> bool:
    return all(result.ok or not result.blocking for result in results)


def _source(settings: CaptureConfig) -> SqlServerSource:
    agent = settings.streaming.agent_status_query
    return SqlServerSource(settings.connection, agent, require_cdc=False, events=settings.events)


def _print_grants(settings: CaptureConfig, login: str) -> None:
    with offering_anyway(), _source(settings) as source:
        for statement in list(grants(source, settings, login)):
            typer.echo(f"{statement};")


def _end(results: list[CheckResult], as_json: bool) -> None:
    """Show the results; end with exit code 1 if a capture could not work."""
    if as_json:
        print_json(of_doctor(results))
    else:
        _show(results)
    if not _is_ready(results):
        raise typer.Exit(FAILED)


def _topics(settings: CaptureConfig, source: SqlServerSource | None) -> Iterator[CheckResult]:
    """Tables that have stopped, and topics that have lost events; all topics are compared with the manifest.

    Args:
        source: the capture's server; None if it cannot report what it still has of each table.
    """
    try:
        overview = CaptureOverview(settings, source, audit_s=None)
        tables, losses = overview.tables, overview.losses_of_no_table
    except LAKE_ERRORS as error:
        yield CheckResult.failed("manifest", settings.events.topic_prefix, error, "readable")
        return
    if refused := overview.other_name:
        yield CheckResult(
            "topic name", str(refused.value), False, "not its name so far", refused.expected, refused.hint
        )
    for loss in losses:
        yield CheckResult("topic", loss.directory, False, loss.what, COMPLETE, RECORD_IT)
    yield from _foreign(overview)
    for table in tables:
        if table.status in ("gap", "failed"):
            yield CheckResult.failed("topic", table.name, table.reason, COMPLETE)
        elif table.is_whole:
            yield CheckResult("topic", table.topic, True, COMPLETE, COMPLETE)
    yield from _hindered(overview)
    yield from _derived(overview)
    if source is not None:
        yield from _forks(source, overview)


def _hindered(overview: CaptureOverview) -> Iterator[CheckResult]:
    """What the last run has met in its own questions, which those of this command need not meet."""
    for what, found in overview.hindrances.get("stream", {}).items():
        text = f"unable to continue since {found.since:%Y-%m-%d %H:%M:%S} UTC: {found.why}"
        advice = "start a run, which records whether that is over"
        yield CheckResult.failed("stream", what, text, "able to continue", advice, blocking=False)


def _derived(overview: CaptureOverview) -> Iterator[CheckResult]:
    """Mirrors and topics in Kafka that do not follow; that the broker is away, `inspect_publishing` tells."""
    for trouble in derived_troubles(overview, datetime.now(UTC), ask_marker(overview.config)):
        advice = "follow the reason; `cdc-assets mirror` shows it at once"
        yield CheckResult.failed("following", trouble.where, trouble.what, "up to its topic", advice, blocking=False)


def _foreign(overview: CaptureOverview) -> Iterator[CheckResult]:
    """What other programs have committed to topics and to the former rows of mirrors."""
    for commit in overview.doubled:
        fact, _, remedy = commit.trouble.partition(". Next: ")
        yield CheckResult("rewriting", commit.directory, False, fact, "each row once", remedy)
    for text in overview.foreign:
        hint = "see who else writes into this table"
        yield CheckResult("writers", text, False, text, "those of the capture", hint, blocking=False)


def _lists(settings: CaptureConfig, source: SqlServerSource) -> Iterator[CheckResult]:
    """Expressions and names that match nothing, in lists of the settings."""
    for found in CaptureOverview(settings, source).unmatched:
        expected = f"one that matches a {found.what}"
        yield CheckResult("expression", found.property_name, False, found.pattern, expected, found.remedy)


def _forks(source: SqlServerSource, overview: CaptureOverview) -> Iterator[CheckResult]:
    """Whether each database is still in the history that was read from it, and whether that can be checked."""
    expected = "the one that was read"
    for database in source.databases():
        facts = overview.facts(database)
        if facts.restored:
            yield CheckResult.failed("history", database, facts.restored, expected)
        elif facts.is_unknown:
            yield CheckResult("history", database, False, str(facts.problem), expected, "ask again", blocking=False)
        elif facts.fork is None:
            text = "its recovery fork is not visible to this login, so some restores would not be detected"
            grant = grant_on_server(source, "VIEW ANY DATABASE")
            yield CheckResult("history", database, False, text, "visible", grant, blocking=False)
        else:
            yield CheckResult("history", database, True, f"recovery fork {facts.fork.identity}", expected)


def _structure(drift: Drift) -> Iterator[CheckResult]:
    actual = "; ".join(map(str, drift.differences)) or "as recorded"
    agrees = not drift.differences
    expected = "as recorded, or brought into the events by a second capture instance"
    yield CheckResult("structure", str(drift.table), agrees, actual, expected, drift.remedy, blocking=False)
    if drift.removable:
        text = f"{drift.removable} is completely read here"
        expected = "dropped, unless another capture or a connector reads it still"
        yield CheckResult("old instance", str(drift.table), False, text, expected, drift.removal, blocking=False)


def _keys(source: SqlServerSource, settings: CaptureConfig) -> Iterator[CheckResult]:
    """Keys of captured tables that are not exact."""
    chosen = TableFilter(settings.filters)
    for database in source.databases():
        if source.trouble(database) is not None:
            continue
        instances = by_table(source.capture_instances(database), settings.streaming)
        for table, schema in source.table_schemas(chosen.select(sorted(instances))).items():
            if last := newest(instances[table]):
                yield from check_keys(schema, last.columns, settings)


def _show(results: list[CheckResult]) -> None:
    subject, fact = Column("object", overflow="fold"), Column("state", overflow="fold")
    table = Table("", "check", subject, fact, box=None, header_style="bold")
    for result in results:
        if not (result.ok and result.check in PER_TABLE):
            table.add_row(_mark(result), result.check, Text(result.subject), Text(result.actual))
    for check, what in PER_TABLE.items():
        if good := sum(result.ok for result in results if result.check == check):
            table.add_row(Text("ok", style="green"), check, f"{good} {what}{'' if good == 1 else 's'}", "as expected")
    out.print(table)
    wrong = [result for result in results if not result.ok]
    out.print("\n[bold green]Everything is ready." if not wrong else f"\n[bold]{len(wrong)} to check:")
    for result in wrong:
        kind = "must be" if result.blocking else "should be"
        out.print(Text(f"\n{result.subject}: {result.check} {kind} {result.expected}"), soft_wrap=True)
        out.print(Text(f"    {result.remedy}", style="cyan"), soft_wrap=True)


def _mark(result: CheckResult) -> Text:
    if result.ok:
        return Text("ok", style="green")
    return Text("no", style="bold red") if result.blocking else Text("!!", style="bold yellow")
