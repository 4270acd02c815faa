"""`cdc-assets signal`: ask a running capture for something, through its signal table."""

import json
import uuid
from typing import Annotated, Any

import typer

from cdc_assets.cli.console import DEFAULT_CONFIG, ConfigOption, out, read_config
from cdc_assets.core.identifiers import TableId
from cdc_assets.errors import ConfigurationError
from cdc_assets.signals.model import Problem, Signal, parse
from cdc_assets.signals.table import signal_table
from resources.sqlserver_source import SqlServerSource


def signal(
    kind: Annotated[
        str,
        typer.Argument(metavar="TYPE", help="execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log."),
    ],
    tables: Annotated[
        list[str] | None, typer.Argument(help="Regular expressions of database.schema.table, letter case counting.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    condition: Annotated[
        str, typer.Option("--where", help="Read only rows for which this predicate holds; of one table expression.")
    ] = "",
    surrogate: Annotated[str, typer.Option("--surrogate-key", help="Column to walk along in place of the key.")] = "",
    message: Annotated[str, typer.Option("--message", help="What log writes; {} stands for the position.")] = "",
    database: Annotated[
        str | None, typer.Option("--database", help="Whose signal table; the first that has one if left out.")
    ] = None,
) -> None:
    """Ask a running capture to read tables again beside the stream, to wait, go on or stop, or to log a line.

    Inserts one row into the signal table. The capture sees it when its capture job has read it.
    """
    entry = Signal(str(uuid.uuid4()), kind, json.dumps(_data(tables or [], condition, surrogate, message)))
    wanted = parse(entry)
    if isinstance(wanted, Problem):
        raise ConfigurationError("signal", kind, wanted.reason, "see `cdc-assets signal --help`")
    settings = read_config(config)
    with SqlServerSource.of(settings) as source:
        table = _table(settings.signals.collections, [database] if database else source.databases())
        source.write_signal(table, (entry.id, entry.type, entry.data))
    out.print(f"Signal {entry.id} is in {table}.", soft_wrap=True)


def _data(tables: list[str], condition: str, surrogate: str, message: str) -> dict[str, Any]:
    data: dict[str, Any] = {"data-collections": tables} if tables else {}
    if condition:
        data["additional-conditions"] = [{"data-collection": table, "filter": condition} for table in tables]
    if surrogate:
        data["surrogate-key"] = surrogate
    if message:
        data["message"] = message
    return data


def _table(collections: tuple[str, ...], databases: Any) -> TableId:
    for database in databases:
        found = signal_table(collections, database)
        if found is not None:
            return found
    raise ConfigurationError(
        "signal.data.collection", ", ".join(collections), "a signal table of " + ", ".join(databases), "set it"
    )
