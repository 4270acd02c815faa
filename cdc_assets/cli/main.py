"""The command line: `cdc-assets --help`."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from cdc_assets import __version__
from cdc_assets.cli.console import clear_errors, errors_shown, out
from cdc_assets.cli.ending import end_process
from cdc_assets.core.process_settings import set_up_process

COMMANDS = {
    "doctor": "cdc_assets.cli.doctor",
    "capture": "cdc_assets.cli.capture",
    "adopt": "cdc_assets.cli.adopt",
    "status": "cdc_assets.cli.status",
    "summary": "cdc_assets.cli.status",
    "mirror": "cdc_assets.cli.mirror",
    "reconcile": "cdc_assets.cli.reconcile",
    "publish": "cdc_assets.cli.publish",
    "tail": "cdc_assets.cli.tail",
    "signal": "cdc_assets.cli.signal",
    "reset": "cdc_assets.cli.reset",
    "spark": "cdc_assets.cli.spark",
    "properties": "cdc_assets.cli.properties",
}
"""Function of each command, and its module, imported when the command is used: none waits for what another needs."""


def function_of(name: str) -> Callable[..., None]:
    """What a command does."""
    function: Callable[..., None] = getattr(import_module(COMMANDS[name]), name)
    return function


class Commands(TyperGroup):
    """The commands, each imported by itself."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands.update((name, TyperCommand(name)) for name in COMMANDS)  # names to list

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """One command."""
        if cmd_name not in self.commands:
            return None
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        with errors_shown():  # little memory may not be enough for the imports
            function = function_of(cmd_name)
        alone.command(cmd_name)(clear_errors(function))
        command = typer.main.get_command(alone)
        assert isinstance(command, TyperCommand)  # noqa: S101 - of one function that is what it makes
        return command


app = typer.Typer(
    name="cdc-assets",
    cls=Commands,
    help="Captures changes of SQL Server tables into lake tables of Debezium events.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"cdc-assets {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Captures changes of SQL Server tables into lake tables of Debezium events."""


def main() -> None:
    """Run a command and end the process with its exit code (`cli.ending`)."""
    set_up_process()
    code: int | str | None = 0
    try:
        app()
    except SystemExit as end:
        code = end.code
    end_process(code)


if __name__ == "__main__":
    main()
