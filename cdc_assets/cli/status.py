"""`cdc-assets status` and `summary`: where a capture is, and what it has written."""

from collections.abc import Sequence

from rich.table import Column, Table
from rich.text import Text

from cdc_assets.adapters.sqlserver.source import quick_source
from cdc_assets.cli.console import DEFAULT_CONFIG, ConfigOption, out, read_lake_config
from cdc_assets.cli.topic_events import OPERATIONS, rows_by_operation
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import CdcError
from cdc_assets.history.drift import Drift
from cdc_assets.run.overview import CaptureOverview, DatabaseOverview

STYLES = {"healthy": "green", "excluded": "dim", "waiting": "yellow"}


def status(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Show the position and health of every table, and how it differs from the structure of its events.

    A table is healthy if neither the manifest nor the lake nor the server says otherwise. Without the server its part
    is missing, and the page says so.
    """
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
        reached = str(topic.position) if topic.position else "not streamed"
        table.add_row(topic.name, Text(topic.status, STYLES.get(topic.status, "bold red")), reached, instance or "–")
    out.print(table)
    _reasons(overview)
    _databases(overview.databases)
    _structures(drifts)
    if problem is not None:
        text = f"The server cannot be asked for what it still keeps and for the tables' structures: {problem}"
        out.print(Text(text, style="yellow"), soft_wrap=True)


def summary(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Show topics, events by operation, positions and where the tables lie."""
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
    out.print(f"tables lie in {overview.lake.location.root}", soft_wrap=True)


def _with_server(
    settings: CaptureConfig, lake: CaptureOverview, unresolved: CdcError | None
) -> tuple[CaptureOverview, Sequence[Drift], CdcError | None]:
    """The overview with what the server says, asked briefly; that of the lake alone if it is away, or nothing leads to it."""
    try:
        if unresolved is not None:
            raise unresolved
        with quick_source(settings) as source:
            overview = CaptureOverview(settings, source)
            overview.databases  # noqa: B018 - asks now, while there is a connection
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
        out.print(Text(told_of(database)), soft_wrap=True)


def told_of(database: DatabaseOverview) -> str:
    """Up to where a database is complete, in a sentence."""
    text = f"{database.database} is complete to {database.complete_to or 'no position: nothing streams'}"
    text += f", {database.lag_s:,.0f} s behind the server's clock" if database.lag_s is not None else ""
    tables = "1 table that is" if database.troubled == 1 else f"{database.troubled} tables that are"
    return f"{text}, but for {tables} not" if database.troubled and database.complete_to else text


def _structures(drifts: Sequence[Drift]) -> None:
    for drift in drifts:
        if drift.differences:
            out.print(Text(f"{drift.table} differs from its events: {'; '.join(map(str, drift.differences))}"))
            out.print(Text(f"    {drift.remedy}", style="cyan"), soft_wrap=True)
        if drift.removable:
            out.print(Text(f"{drift.table}: instance {drift.removable} is read to its end"), soft_wrap=True)
            out.print(Text(f"    {drift.removal}", style="cyan"), soft_wrap=True)
