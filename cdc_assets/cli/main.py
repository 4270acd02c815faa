"""The command line: `cdc-assets --help`."""

from collections.abc import Callable

import typer

from cdc_assets import __version__
from cdc_assets.cli import capture, demo, doctor, properties, signal, status, tail
from cdc_assets.cli.console import clear_errors, out
from cdc_assets.standin import __main__ as standin

app = typer.Typer(
    name="cdc-assets",
    help="SQL Server change data capture as lake tables of Debezium events.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(f"cdc-assets {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and end."
    ),
) -> None:
    """SQL Server change data capture as lake tables of Debezium events."""


COMMANDS: dict[str, Callable[..., None]] = {
    "doctor": doctor.doctor,
    "capture": capture.capture,
    "status": status.status,
    "summary": status.summary,
    "tail": tail.tail,
    "signal": signal.signal,
    "properties": properties.properties,
    "standin": standin.main,
}

for _name, _command in COMMANDS.items():
    app.command(_name)(clear_errors(_command))
app.add_typer(demo.app, name="demo")

if __name__ == "__main__":
    app()
