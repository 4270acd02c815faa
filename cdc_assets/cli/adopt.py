"""`cdc-assets adopt`: continue where another reader of the change tables stopped."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from cdc_assets.adoption.history import Columns, read_history
from cdc_assets.adoption.offsets import ConnectorOffset, read_offsets
from cdc_assets.adoption.plan import AdoptedTable, AdoptionPlan, CommitTimes
from cdc_assets.adoption.times import local_readings
from cdc_assets.assembly.adoption import open_adoption
from cdc_assets.cli.console import DEFAULT_CONFIG, ConfigOption, configuration_file, out, read_config, show_logs
from cdc_assets.config.engine import is_engine_file
from cdc_assets.config.load import given_properties
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import Source
from cdc_assets.errors import ConfigurationError

_OFFSETS, _HISTORY = "offset.storage.file.filename", "schema.history.internal.file.filename"
_HEX = "0x"


def adopt(
    config: ConfigOption = DEFAULT_CONFIG,
    offsets: Annotated[
        Path | None,
        typer.Option(
            "--offsets",
            help=f"Offsets of the stopped connector: its file ({_OFFSETS}, the default), what Kafka Connect's "
            "/connectors/<name>/offsets returns, or the offset topic's keys and values.",
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option("--history", help=f"Its schema history: a file ({_HISTORY}, the default) or the topic's values."),
    ] = None,
    from_lsn: Annotated[
        list[str] | None,
        typer.Option(
            "--from-lsn",
            help="Continue after this LSN, the last that was read; `database=LSN` if there are several databases.",
        ),
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option("--from-time", help="Continue after what was committed up to this time (ISO; the server's zone)."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Carry the plan out; without it, it is only shown.")] = False,
) -> None:
    """Take over from a Debezium connector, or from a reader of your own: begin with its next event, without a snapshot.

    Stop the other reader first. Shows where each table continues and what is missing; `--yes` records it, and the
    next `capture` continues from there.
    """
    show_logs()
    place = configuration_file(config)
    if is_engine_file(place):
        raise ConfigurationError(
            "configuration", str(place), "a capture of SQL Server", "a connector of another database keeps its offsets"
        )
    settings = read_config(config)
    with open_adoption(settings) as (adoption, times, source):
        known: Mapping[TableId, Columns] | None = None
        if from_lsn or from_time:
            found = _given(settings, from_lsn or [], from_time, times, source)
        else:
            properties = given_properties(place)
            found = read_offsets(
                _file(offsets, properties, _OFFSETS, "--offsets"), settings.events.topic_prefix, settings.name
            )
            if history or properties.get(_HISTORY):
                known = read_history(_file(history, properties, _HISTORY, "--history"), found)
        plan = adoption.plan(found, times, known)
        _show(plan)
        if yes and plan.states:
            adoption.record(plan)
    if not plan.states:
        raise ConfigurationError(
            "adoption", "no table", "a captured table that continues at the position", "see the reasons above"
        )
    out.print("Recorded. Next: cdc-assets capture" if yes else "Nothing was written. Next: the same with --yes")


def _file(given: Path | None, properties: Mapping[str, str], name: str, option: str) -> Path:
    """The file of an option, or of the connector's own property.

    Raises:
        ConfigurationError: there is neither.
    """
    if given is None and not properties.get(name):
        raise ConfigurationError(
            option, None, f"a file, or {name} in the configuration", "or give --from-lsn or --from-time"
        )
    return given or Path(properties[name])


def _given(
    settings: CaptureConfig, lsns: list[str], time: str | None, times: CommitTimes, source: Source
) -> dict[str, ConnectorOffset]:
    """Positions from `--from-lsn` or `--from-time`.

    Raises:
        ConfigurationError: one of them is wrong.
    """
    databases = list(source.databases())
    if lsns and time:
        raise ConfigurationError("--from-time", time, "nothing beside --from-lsn", "keep one of them")
    if time:
        return {database: ConnectorOffset(_lsn_at(database, time, times, source)) for database in databases}
    found: dict[str, ConnectorOffset] = {}
    for text in lsns:
        database, _, lsn = text.rpartition("=")
        if (database.lower() or databases[0].lower()) not in map(str.lower, databases) or (
            not database and databases[1:]
        ):
            raise ConfigurationError(
                "--from-lsn", text, "database=LSN with one of " + ", ".join(databases), "name the database"
            )
        found[database or databases[0]] = ConnectorOffset(_lsn(lsn))
    return found


def _lsn(text: str) -> Lsn:
    """An LSN as Debezium or as T-SQL prints it."""
    digits = text.strip().lower().removeprefix(_HEX)
    if ":" not in digits and len(digits) == 20:
        digits = f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"
    return Lsn.parse(digits)


def _lsn_at(database: str, text: str, times: CommitTimes, source: Source) -> Lsn:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            "--from-time", text, "a time such as 2026-01-31T12:00:00", "correct it; with a zone, or in the server's"
        ) from error
    readings = [time] if time.tzinfo is None else local_readings(time, source.server_time())
    found, *later = [times.lsn_of_time(database, reading) for reading in readings]
    if found is None:
        raise ConfigurationError(
            "--from-time", text, f"a time that {database} still knows (cdc.lsn_time_mapping)",
            "changes before it are cleaned up: take a later time, or a snapshot (`cdc-assets capture`)",
        )  # fmt: skip
    if any(lsn != found for lsn in later):
        shown = " or ".join(f"{reading:%Y-%m-%d %H:%M:%S}" for reading in readings)
        note = (
            f"At {text} the clock of {database}'s server showed {shown}: it may have been changed since then, and the times of "
            "commits do not tell. The earliest is taken, so changes of up to an hour may come twice. Next: give the server's own "
            "time, without a zone, if you know it."
        )
        out.print(Text(note, style="yellow"), soft_wrap=True)
    return found


def _show(plan: AdoptionPlan) -> None:
    for database, offset in plan.offsets.items():
        inside = f", inside it after {offset.change}, serial {offset.serial}" if offset.change else ""
        time = plan.times.get(database)
        at = f" ({time:%Y-%m-%d %H:%M:%S}, server time)" if time else " (the server no longer knows its time)"
        out.print(f"{database} continues after commit {offset.commit}{at}{inside}", soft_wrap=True)
    table = Table(Column("table", overflow="fold"), "what happens", "instance", box=None, header_style="bold")
    for entry in plan.tables:
        instance = entry.state.instance if entry.state and entry.state.instance else "–"
        table.add_row(str(entry.table), _what(entry), instance)
    out.print(table)
    for entry in plan.tables:
        if entry.note:
            out.print(Text(f"{entry.table}: {entry.note}"), soft_wrap=True)
    for note in plan.notes:
        out.print(Text(note, style="yellow"), soft_wrap=True)


def _what(entry: AdoptedTable) -> Text:
    if entry.state is None:
        return Text("new", "yellow")
    return Text("continues", "green") if entry.state.status == "healthy" else Text(entry.state.status, "bold red")
