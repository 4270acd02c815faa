"""`cdc-assets reset`: makes the next run start again, for some tables, a whole capture, or a lake that is gone.

Without `--yes` it only shows what would happen. Positions of tables are removed from the ledger; the tables of a whole capture move to a
folder of their own; where a lake is gone, a new manifest begins.
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from cdc_assets.assembly.engine import new_engine_lake
from cdc_assets.assembly.mirrors import open_reset
from cdc_assets.capture.new_lake import NewLake
from cdc_assets.capture.reset import Reset
from cdc_assets.cli.console import DEFAULT_CONFIG, ConfigOption, configuration_file, out, read_lake_config
from cdc_assets.config.engine import is_engine_file, load_engine_lake_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.config.snapshot_modes import rule_of
from cdc_assets.errors import ConfigurationError

_NOT_DONE = "Nothing was changed. Next: repeat the command with --yes."


def reset(
    tables: Annotated[
        list[str] | None, typer.Argument(help="Tables whose position is forgotten, as `schema.table`.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    whole: Annotated[
        bool, typer.Option("--capture", help="Move the whole capture's tables away and start again.")
    ] = False,
    new_lake: Annotated[
        bool, typer.Option("--new-lake", help="Begin a new lake where one was that is gone for good.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it; without this the plan is only shown.")] = False,
    fence: Annotated[
        bool, typer.Option("--fence", help="Do it even if a run may be active; it ends at its next commit.")
    ] = False,
) -> None:
    """Forget the positions of tables, or a whole capture, so that the next run takes a new snapshot; or begin a new lake.

    Shows what would be done; `--yes` does it. Refused while a run is active.
    """
    if [bool(tables), whole, new_lake].count(True) != 1:
        raise ConfigurationError(
            "arguments",
            " ".join(tables or []) or "none",
            "tables, --capture or --new-lake",
            "name tables, or give one of these options",
        )
    if new_lake:
        _new_lake(config, yes=yes)
        return
    settings, _ = read_lake_config(config)
    found = open_reset(settings)
    if whole:
        _whole(found, yes, fence)
    else:
        _tables(found, settings, tables or [], yes, fence)
    if not yes:
        out.print(_NOT_DONE)


def _new_lake(config: Path, *, yes: bool) -> None:
    """Of a capture by any connector."""
    place = configuration_file(config)
    if is_engine_file(place):
        lake = new_engine_lake(load_engine_lake_config(place)[0])
    else:
        lake = NewLake.of(read_lake_config(config)[0])
    lake.check()
    out.print(
        f"A new lake begins with {lake.address}; the next run reads all tables as a first one does.", soft_wrap=True
    )
    if yes:
        lake.begin()
    out.print("Done." if yes else _NOT_DONE)


def _tables(found: Reset, settings: CaptureConfig, names: list[str], yes: bool, fence: bool) -> None:
    states = found.named(names)
    chosen = [state.table for state in states]
    found.check(chosen, fence=fence)
    reads = rule_of(settings.snapshot).data != "never"
    for state in states:
        position = state.position or "no position"
        if reads:
            text = (
                "its events stay in the topic, and the next run reads all its rows again as READ events after them, "
                "unless the table is gone"
            )
        else:
            text = (
                f"snapshot.mode={settings.snapshot.mode} reads no rows: changes between that and the next run are lost"
            )
        out.print(Text(f"{state.table} ({state.status}) forgets {position}; {text}."), soft_wrap=True)
    if yes:
        found.forget(chosen, fence=fence)
        out.print("Done.")


def _whole(found: Reset, yes: bool, fence: bool) -> None:
    found.check(fence=fence)
    removal = found.removal()
    if not (removal.directories or found.has_moved()):
        raise ConfigurationError("--capture", "no table", "a capture with tables in the lake", "check lake.path")
    for name in removal.directories:
        more = ", though it cannot be read" if name in removal.unread else ""
        out.print(Text(f"{name} moves to {removal.target}{more}"), soft_wrap=True)
    if not removal.directories:
        out.print("All tables have moved already. A new lake begins.")
    if yes:
        found.move_away(removal, fence=fence)
        out.print("Done. The next run begins as the first one did.")
