"""The command line: `cdc-assets --help`."""

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress

import typer

from cdc_assets import __version__
from cdc_assets.cli import capture, demo, doctor, properties, signal, spark, status, tail
from cdc_assets.cli.console import clear_errors, needs_demo, out
from cdc_assets.standin import __main__ as standin

app = typer.Typer(
    name="cdc-assets",
    help="Captures changes of SQL Server tables into lake tables of Debezium events.",
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
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Captures changes of SQL Server tables into lake tables of Debezium events."""


COMMANDS: dict[str, Callable[..., None]] = {
    "doctor": doctor.doctor,
    "capture": capture.capture,
    "status": status.status,
    "summary": status.summary,
    "tail": tail.tail,
    "signal": signal.signal,
    "spark": spark.spark,
    "properties": properties.properties,
    "standin": needs_demo(standin.main),
}

for _name, _command in COMMANDS.items():
    app.command(_name)(clear_errors(_command))
app.add_typer(demo.app, name="demo")


def main() -> None:
    """Run a command and end the process with its exit code.

    The interpreter is not finalized: Arrow's threads that still close files of an object store would need it, and
    abort the process (exit code 134) once it is gone.
    """
    code: int | str | None = 0
    try:
        app()
    except SystemExit as end:
        code = end.code
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, BrokenPipeError):  # it is closed, or its reader has closed the pipe
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    main()
