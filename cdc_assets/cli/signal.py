"""`cdc-assets signal`: sends a request to a capture, whether it is running or not."""

import uuid
from enum import StrEnum
from typing import Annotated

import typer

from cdc_assets.cli.as_json import print_json
from cdc_assets.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, out, read_lake_config
from cdc_assets.signals.requests import ask, compose
from cdc_assets.signals.tables import EXPECTED


class Kind(StrEnum):
    """How a snapshot reads its tables."""

    INCREMENTAL = "incremental"
    BLOCKING = "blocking"


def signal(
    kind: Annotated[
        str,
        typer.Argument(metavar="TYPE", help="execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log."),
    ],
    tables: Annotated[
        list[str] | None,
        typer.Argument(help="Regular expressions for database.schema.table or schema.table, case-sensitive."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    snapshot: Annotated[
        Kind,
        typer.Option(
            "--type",
            help="incremental: while streaming continues (needs the signal table); blocking: the stream pauses.",
        ),
    ] = Kind.INCREMENTAL,
    condition: Annotated[
        str,
        typer.Option(
            "--where", help="Read only rows that match this predicate; with --type blocking, a complete SELECT."
        ),
    ] = "",
    surrogate: Annotated[
        str, typer.Option("--surrogate-key", help="Column that orders the chunks, instead of the key.")
    ] = "",
    message: Annotated[
        str, typer.Option("--message", help="Text that `log` writes; {} is replaced by the position.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Ask a capture to snapshot tables again; to pause, resume or stop that; or to log a message.

    The request is stored in the lake. A running capture finds it within `signal.poll.interval.ms`. Otherwise the next
    run does, which Dagster's sensor starts at its next tick.
    """
    names = tables or []
    conditions = dict.fromkeys(names, condition) if condition else {}
    composed = compose(
        str(uuid.uuid4()), kind, names, conditions, snapshot=snapshot.value, surrogate=surrogate, message=message
    )
    unmatched = ask(read_lake_config(config)[0], composed)
    if as_json:
        print_json({"id": composed.signal.id, "type": composed.signal.type, "unmatched": list(unmatched)})
        return
    for pattern in unmatched:
        out.print(f"No captured table matches {pattern!r}: expected {EXPECTED}.", soft_wrap=True, markup=False)
    out.print(f"Sent as signal {composed.signal.id}. The streaming run carries it out.", soft_wrap=True)
