"""`cdc-assets status` and `summary`: where a capture is, and what it has written."""

from rich.table import Column, Table
from rich.text import Text

from cdc_assets.adapters.sqlserver.source import quick_source
from cdc_assets.cli.console import DEFAULT_CONFIG, ConfigOption, out, read_lake_config
from cdc_assets.cli.lake_view import OPERATIONS, LakeView, TopicView
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import CdcError
from cdc_assets.run.drift import drifts


def status(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Show the position and health of every table, and how it differs from the structure of its events.

    Positions come from the lake alone; without the server only the differences are missing.
    """
    settings, unresolved = read_lake_config(config)
    view = LakeView(settings)
    topics = view.topics()
    if not topics:
        _nothing(view)
        return
    table = Table(
        Column("topic", overflow="fold"),
        "state",
        "complete to",
        Column("instance", overflow="fold"),
        box=None,
        header_style="bold",
    )
    for topic in topics:
        state = topic.state
        style = {"healthy": "green", "excluded": "dim"}.get(state.status, "bold red")
        reached = str(state.position) if state.position else "not streamed"
        table.add_row(topic.topic, Text(state.status, style=style), reached, state.instance or "–")
    out.print(table)
    _reasons(topics)
    _losses(view)
    _watermarks(view)
    _structures(settings, unresolved)


def summary(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Show topics, events by operation, positions and where the tables lie."""
    view = LakeView(read_lake_config(config)[0])
    topics = view.topics()
    if not topics:
        _nothing(view)
        return
    table = Table(Column("topic", overflow="fold"), *OPERATIONS.values(), "events", box=None, header_style="bold")
    for topic in topics:
        counts = view.rows_by_operation(topic)
        numbers = [f"{counts.get(name, 0):,}" for name in OPERATIONS.values()]
        table.add_row(topic.topic, *numbers, f"{sum(counts.values()):,}")
    out.print(table)
    _watermarks(view)
    out.print(f"tables lie in {view.location.root}", soft_wrap=True)


def _nothing(view: LakeView) -> None:
    out.print(f"Nothing captured yet in {view.location.root}.", soft_wrap=True)


def _reasons(topics: list[TopicView]) -> None:
    for topic in topics:
        if topic.state.reason:
            out.print(Text(f"{topic.topic}: {topic.state.reason}"), soft_wrap=True)


def _losses(view: LakeView) -> None:
    """What is lost since the last run; a short look, `doctor` takes the long one."""
    for directory, what in view.losses(seconds=1.0).items():
        out.print(
            Text.assemble((f"{directory} {what}", "bold red"), "; the next run takes it out of the stream."),
            soft_wrap=True,
        )


def _structures(settings: CaptureConfig, unresolved: CdcError | None) -> None:
    """Drift, asked briefly; a server that is away, or to which nothing leads, is no error here."""
    try:
        if unresolved is not None:
            raise unresolved
        with quick_source(settings) as source:
            found = drifts(source, settings)
    except CdcError as error:
        out.print(
            Text(f"The server cannot be asked for the tables' structures: {error}", style="yellow"), soft_wrap=True
        )
        return
    for drift in found:
        if drift.differences:
            out.print(Text(f"{drift.table} differs from its events: {'; '.join(map(str, drift.differences))}"))
            out.print(Text(f"    {drift.remedy}", style="cyan"), soft_wrap=True)
        if drift.removable:
            out.print(Text(f"{drift.table}: instance {drift.removable} is read to its end"), soft_wrap=True)
            out.print(Text(f"    {drift.removal}", style="cyan"), soft_wrap=True)


def _watermarks(view: LakeView) -> None:
    for database, watermark in view.watermarks().items():
        out.print(f"{database} is complete to {watermark or 'no position: nothing streams'}")
