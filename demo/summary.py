"""The end of `python -m demo run`: what was captured, and whether the lake matches the server."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from rich.console import Console
from rich.json import JSON
from rich.table import Table
from rich.text import Text

from cdc_assets.cli.console import out
from cdc_assets.cli.report import completeness_of
from cdc_assets.cli.tail import lines
from cdc_assets.cli.topic_events import OPERATIONS, newest, rows_by_operation
from cdc_assets.config.settings import CaptureConfig, TextSettings
from cdc_assets.core.identifiers import TableId, quote
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.delta import MirrorTables, current_directory
from cdc_assets.mirror.ledger import MirrorLedger
from cdc_assets.mirror.readers import MirrorReader
from cdc_assets.mirror.shape import LSN, OWN
from cdc_assets.overview import CaptureOverview, TableOverview
from cdc_assets.overview.formatting import describe_jobs

if TYPE_CHECKING:
    from mssql_standin.control import StandIn

Totals = dict[str, Counter[str]]
"""Events by topic and operation."""
_SAMPLES = 3
_MIN_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Comparison:
    """One topic after the run.

    Args:
        topic: the topic of a captured table.
        new: events of this run by operation.
        live: number of rows after applying all events in order.
        server: number of rows of the source table.
    """

    topic: TableOverview
    new: Counter[str]
    live: int
    server: int


def totals(config: CaptureConfig) -> Totals:
    """Number of events in the lake now."""
    overview = CaptureOverview(config)
    return {
        topic.topic: Counter(rows_by_operation(overview.lake, overview.directories(topic.topic)))
        for topic in overview.tables
    }


def compare(config: CaptureConfig, before: Totals, server: "StandIn") -> list[Comparison]:
    """Compare every topic of the lake with its table on the server."""
    overview = CaptureOverview(config)
    return [
        Comparison(
            topic,
            Counter(rows_by_operation(overview.lake, overview.directories(topic.topic)))
            - before.get(topic.topic, Counter()),
            live_rows(overview.lake, overview.directories(topic.topic)),
            _rows_on(server, topic),
        )
        for topic in overview.tables
    ]


def live_rows(lake: TopicTables, directories: Iterable[str]) -> int:
    """Number of rows after applying a topic's events in position order: the last event of a key decides."""
    tables = [
        handle.to_pyarrow_dataset().to_table(
            columns={"position": pc.field("position"), "key": pc.field("key"), "op": pc.field("value", "op")}
        )
        for directory in directories
        if (handle := lake.open(directory)) is not None
    ]
    last: dict[str, str] = {}
    for table in tables:
        events = table.filter(pc.is_valid(table["op"])).sort_by("position")
        keys = [json.dumps(key, default=str) for key in events["key"].to_pylist()]
        last |= dict(zip(keys, events["op"].to_pylist(), strict=True))
    return sum(op != "d" for op in last.values())


def _rows_on(server: "StandIn", topic: TableOverview) -> int:
    return int(server.execute(f"SELECT COUNT(*) FROM {topic.table.quoted}")[0][0])  # noqa: S608 - quoted by the one function


def print_summary(config: CaptureConfig, comparisons: list[Comparison], transactions: int, server: "StandIn") -> bool:
    """Print the comparison; returns whether the lake and its mirrors match the server for every table."""
    overview = CaptureOverview(config)
    out.print("\n[bold]Events of this run[/], by topic and operation")
    Console(width=max(out.width, _MIN_WIDTH)).print(_table(comparisons))
    for database in overview.databases:
        out.print(completeness_of(database.database, database.complete_to, database.lag_s, database.troubled))
    out.print(f"The workload committed {transactions:,} transactions.")
    for line in describe_jobs(overview.ran_on):
        out.print(line, soft_wrap=True, markup=False)
    out.print(f"The Delta tables, one per topic, are in {overview.lake.location.root}", soft_wrap=True)
    _print_samples(overview.lake, comparisons)
    mirrored = _print_current(config, server, comparisons)
    return mirrored and all(entry.live == entry.server for entry in comparisons)


def _table(comparisons: list[Comparison]) -> Table:
    """Numbers of each topic; the last two columns must be equal."""
    table = Table(box=None, header_style="bold", padding=(0, 1))
    table.add_column("topic", no_wrap=True)
    for name in (*OPERATIONS.values(), "rows", "server"):
        table.add_column(name, justify="right", no_wrap=True)
    for entry in comparisons:
        counts = [f"{entry.new[name]:,}" for name in OPERATIONS.values()]
        style = "green" if entry.live == entry.server else "bold red"
        ends = (Text(f"{number:,}", style) for number in (entry.live, entry.server))
        table.add_row(entry.topic.topic, *counts, *ends)
    return table


def _print_current(config: CaptureConfig, server: "StandIn", comparisons: list[Comparison]) -> bool:
    """Print the newest rows of one table's mirror; returns whether each mirror has the rows that the server has."""
    mirrors = MirrorTables.of(config)
    states, found, agrees = MirrorLedger(mirrors.tables, config.events.topic_prefix).read(), [], True
    for entry in comparisons:
        topic, table = entry.topic.topic, entry.topic.table
        if topic in states:
            rows = MirrorReader.of(mirrors, topic, states[topic]).current()
            columns = [name for name in rows.column_names if name not in OWN]
            agrees &= _values(rows.select(columns).to_pylist()) == _values(_rows_of(server, table, columns))
            found.append((topic, rows))
    if not found:
        return True
    topic, rows = max(found, key=lambda entry: str(pc.max(entry[1][LSN]).as_py() or ""))
    out.print(f"\n[bold]The table itself[/]: the newest rows of {current_directory(topic)}", soft_wrap=True)
    shown = Table(box=None, header_style="bold", padding=(0, 1))
    for name in rows.column_names:
        shown.add_column(name, no_wrap=True)
    for row in rows.sort_by([(LSN, "descending")]).slice(0, _SAMPLES).to_pylist():
        shown.add_row(*(Text(str(value)) for value in row.values()))
    Console(width=max(out.width, _MIN_WIDTH)).print(shown)
    verdict = "[green]equal[/] the server's" if agrees else "[bold red]differ[/] from the server's"
    out.print(f"The rows of {len(found)} mirrors {verdict}, value by value.")
    return agrees


def _rows_of(server: "StandIn", table: TableId, columns: list[str]) -> list[dict[str, object]]:
    names = ", ".join(map(quote, columns))
    found = server.execute(f"SELECT {names} FROM {table.quoted}")  # noqa: S608 - quoted by the one function
    return [dict(zip(columns, row, strict=True)) for row in found]


def _values(rows: list[dict[str, object]]) -> Counter[str]:
    """Rows as texts, each with the number of its copies."""
    return Counter(repr(sorted((name, _plain(value)) for name, value in row.items())) for row in rows)


def _plain(value: object) -> str:
    """A value as text; a moment with an offset as that of UTC, which a mirror has; times without zeros at the end."""
    text = str(value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value)
    return text.rstrip("0") if text.count(":") == 2 and "." in text else text


def _print_samples(lake: TopicTables, comparisons: list[Comparison]) -> None:
    """The newest event of the topics that changed most."""
    busy = sorted((entry for entry in comparisons if entry.new.total()), key=lambda entry: -entry.new.total())
    out.print(f"\n[bold]The newest event[/] of {min(len(busy), _SAMPLES)} topics (more: cdc-assets tail)")
    for entry in busy[:_SAMPLES]:
        for line in lines([newest(lake, lake.generations(entry.topic.topic)[-1], 1)], TextSettings()):
            out.print(Text(entry.topic.topic, "cyan"))
            out.print(JSON(line, indent=None, ensure_ascii=False), soft_wrap=True)
