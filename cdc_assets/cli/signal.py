"""`cdc-assets signal`: ask a capture for something, at work or not."""

import uuid
from enum import StrEnum
from typing import Annotated

import typer

from cdc_assets.cli.console import DEFAULT_CONFIG, ConfigOption, out, read_lake_config
from cdc_assets.signals.requests import ask, compose
from cdc_assets.signals.tables import EXPECTED


class Kind(StrEnum):
    """How tables are read."""

    INCREMENTAL = "incremental"
    BLOCKING = "blocking"


def signal(
    kind: Annotated[
        str,
        typer.Argument(metavar="TYPE", help="execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log."),
    ],
    tables: Annotated[
        list[str] | None,
        typer.Argument(help="Regular expressions of database.schema.table, or of schema.table, letter case counting."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    snapshot: Annotated[
        Kind, typer.Option("--type", help="Beside the stream (needs the signal table), or with the stream waiting.")
    ] = Kind.INCREMENTAL,
    condition: Annotated[
        str,
        typer.Option(
            "--where", help="Read only rows for which this predicate holds; of --type blocking, a whole SELECT."
        ),
    ] = "",
    surrogate: Annotated[str, typer.Option("--surrogate-key", help="Column to walk along in place of the key.")] = "",
    message: Annotated[str, typer.Option("--message", help="What log writes; {} stands for the position.")] = "",
) -> None:
    """Ask a capture to read tables again, to wait, go on or stop with that, or to log a line.

    The request waits in the lake. The run that follows the log finds it within `signal.poll.interval.ms`; if none is
    at work, the next one does, which Dagster's sensor starts at its next tick.
    """
    names = tables or []
    conditions = dict.fromkeys(names, condition) if condition else {}
    composed = compose(
        str(uuid.uuid4()), kind, names, conditions, snapshot=snapshot.value, surrogate=surrogate, message=message
    )
    for pattern in ask(read_lake_config(config)[0], composed):
        out.print(f"No captured table matches {pattern!r}: expected {EXPECTED}.", soft_wrap=True, markup=False)
    out.print(f"Asked, as signal {composed.signal.id}. The run that follows the log carries it out.", soft_wrap=True)
