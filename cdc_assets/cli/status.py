"""`cdc-assets status` and `summary`: the state of a capture, and what it has written."""

from collections.abc import Sequence

from rich.table import Column, Table
from rich.text import Text

from cdc_assets.adapters.sqlserver.source import quick_source
from cdc_assets.cli.console import DEFAULT_CONFIG, ConfigOption, configuration_file, out, read_lake_config
from cdc_assets.cli.engine_status import engine_status, engine_summary
from cdc_assets.cli.topic_events import OPERATIONS, rows_by_operation
from cdc_assets.config.engine import is_engine_file
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import CdcError
from cdc_assets.history.drift import Drift
from cdc_assets.run.overview import CaptureOverview, DatabaseOverview

STYLES = {"healthy": "green", "excluded": "dim", "waiting": "yellow"}


def status(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Show position and health of every table, and differences between its structure and that of its events.

    A table is healthy if neither the manifest nor the lake nor the server reports a problem. If the server cannot be
    reached, the output says so and covers only the manifest and the lake.
    """
    if is_engine_file(place := configuration_file(config)):
        engine_status(place)
        return
    settings, unresolved = read_lake_config(config)
    lake = CaptureOverview(settings)
    if not lake.known:
        _nothing(lake)
        return
    overview, drifts, problem = _with_server(settings, lake, unresolved)
    table = Table(
        Column("topic", overflow="fold"),
        "state",
        "complete to",
        Column("instance", overflow="fold"),
        box=None,
        header_style="bold",
    )
    for topic in overview.tables:
        instance = topic.recorded.instance if topic.recorded else None
        position = str(topic.position) if topic.position else "not streamed"
        table.add_row(topic.name, Text(topic.status, STYLES.get(topic.status, "bold red")), position, instance or "–")
    out.print(table)
    _reasons(overview)
    _databases(overview.databases)
    _structures(drifts)
    if problem is not None:
        text = f"The server cannot be reached, so changes that it still keeps and table structures are not checked: {problem}"
        out.print(Text(text, style="yellow"), soft_wrap=True)


def summary(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Show topics, events by operation, positions and the location of the tables."""
    if is_engine_file(place := configuration_file(config)):
        engine_summary(place)
        return
    overview = CaptureOverview(read_lake_config(config)[0])
    if not overview.known:
        _nothing(overview)
        return
    table = Table(Column("topic", overflow="fold"), *OPERATIONS.values(), "events", box=None, header_style="bold")
    for topic in overview.tables:
        counts = rows_by_operation(overview.lake, topic.directories)
        numbers = [f"{counts.get(name, 0):,}" for name in OPERATIONS.values()]
        table.add_row(topic.topic, *numbers, f"{sum(counts.values()):,}")
    out.print(table)
    _databases(overview.databases)
    out.print(f"The tables are in {overview.lake.location.root}", soft_wrap=True)


def _with_server(
    settings: CaptureConfig, lake: CaptureOverview, unresolved: CdcError | None
) -> tuple[CaptureOverview, Sequence[Drift], CdcError | None]:
    """The overview including the server, with short timeouts; only of the lake if the server cannot be reached."""
    try:
        if unresolved is not None:
            raise unresolved
        with quick_source(settings) as source:
            overview = CaptureOverview(settings, source)
            overview.databases  # noqa: B018 - cached now, while there is a connection
            return overview, overview.drifts(), None
    except CdcError as error:
        return lake, (), error


def _nothing(overview: CaptureOverview) -> None:
    out.print(f"Nothing captured yet in {overview.lake.location.root}.", soft_wrap=True)


def _reasons(overview: CaptureOverview) -> None:
    for topic in overview.tables:
        if topic.reason:
            out.print(Text(f"{topic.name}: {topic.reason}"), soft_wrap=True)
    for loss in overview.losses_of_no_table:
        out.print(Text(f"{loss.directory} {loss.what}", style="bold red"), soft_wrap=True)


def _databases(databases: Sequence[DatabaseOverview]) -> None:
    for database in databases:
        out.print(Text(completeness_of(database)), soft_wrap=True)


def completeness_of(database: DatabaseOverview) -> str:
    """A sentence saying up to which LSN a database is complete."""
    text = f"{database.database} is complete to {database.complete_to or 'no position: nothing streams'}"
    text += f", {database.lag_s:,.0f} s behind the server's clock" if database.lag_s is not None else ""
    tables = "1 table, which is" if database.troubled == 1 else f"{database.troubled} tables, which are"
    return f"{text}, except {tables} not" if database.troubled and database.complete_to else text


def _structures(drifts: Sequence[Drift]) -> None:
    for drift in drifts:
        if drift.differences:
            out.print(Text(f"{drift.table} differs from its events: {'; '.join(map(str, drift.differences))}"))
            out.print(Text(f"    {drift.remedy}", style="cyan"), soft_wrap=True)
        if drift.removable:
            out.print(Text(f"{drift.table}: capture instance {drift.removable} is completely read"), soft_wrap=True)
            out.print(Text(f"    {drift.removal}", style="cyan"), soft_wrap=True)
