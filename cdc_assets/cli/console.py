"""What every command shares: where text goes, which capture is meant, how errors end.

Exit codes: 0 done; 1 it failed; 2 the command or the configuration is wrong; 130 interrupted.
"""

import logging
import os
import sys
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec, TextIO

import typer
from rich.console import Console
from rich.text import Text

from cdc_assets.config.load import configuration_files, load_config, load_lake_config
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import CdcError, ConfigurationError, InvalidValueError
from cdc_assets.run.log_levels import enable_info_logs

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130
P = ParamSpec("P")
TRACEBACK_VARIABLE = "CDC_TRACEBACK"

_PIPE_WIDTH = 200
"""Columns where nobody looks at a terminal: a log, a file, `grep`. Names must not be cut there."""


def _console(stream: TextIO, **options: Any) -> Console:
    free = stream.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if free else _PIPE_WIDTH, **options)


out = _console(sys.stdout)
err = _console(sys.stderr, stderr=True)

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        envvar="CDC_CONFIG",
        help="Configuration file, or a folder that holds one.",
        show_default=True,
    ),
]
DEFAULT_CONFIG = Path("resources/captures")


def clear_errors(command: Callable[P, None]) -> Callable[P, None]:
    """The command, with every error ended in one message and an exit code, never in a traceback."""

    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except CdcError as error:
            fail(str(error), WRONG_USE if isinstance(error, InvalidValueError) else FAILED)
        except BrokenPipeError:
            sys.stderr.close()  # the reader, such as `head`, has seen enough
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            fail("interrupted", INTERRUPTED)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception as error:
            if os.environ.get(TRACEBACK_VARIABLE):
                raise
            text = f"{type(error).__name__}: {error}. Next: set {TRACEBACK_VARIABLE}=1 to see where, and report it"
            fail(f"This is a fault of cdc-assets. {text}", FAILED)

    return guarded


def needs_demo(command: Callable[P, None]) -> Callable[P, None]:
    """The command, with an end in one message where the extra `demo` is not installed."""

    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        if find_spec("sqlglot") is None:
            fail("The stand-in server is not installed. Next: pip install 'cdc-assets[demo]'", WRONG_USE)
        command(*args, **kwargs)

    return guarded


def fail(message: str, code: int) -> NoReturn:
    """Print an error and end.

    Raises:
        typer.Exit: always.
    """
    err.print(Text.assemble(("error ", "bold red"), message), soft_wrap=True)
    raise typer.Exit(code) from None


def warn(message: str) -> None:
    """Print a warning."""
    err.print(Text.assemble(("warning ", "bold yellow"), message), soft_wrap=True)


class _Lines(logging.Handler):
    """A record is a line, which the terminal wraps: a log that is searched must not be wrapped by us."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print it; warnings in yellow, errors in red."""
        style = "bold red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else ""
        err.print(Text(self.format(record), style=style), soft_wrap=True)


def show_logs() -> None:
    """Print warnings of all, and what signals, notifications and the stream say, on standard error."""
    for root in (logging.getLogger("cdc_assets"), logging.getLogger("resources")):
        if not any(isinstance(handler, _Lines) for handler in root.handlers):
            root.addHandler(_Lines())
    enable_info_logs()


def read_config(place: Path) -> CaptureConfig:
    """The one configuration meant; properties without effect are named in a warning.

    Raises:
        ConfigurationError: there is none, there are several, or it is wrong.
    """
    return _told(load_config(configuration_file(place)))


def read_lake_config(place: Path) -> tuple[CaptureConfig, ConfigurationError | None]:
    """As `read_config`, for commands that read the lake and need no secret of the server.

    Returns:
        The settings, and why they do not lead to the server, if they do not.

    Raises:
        ConfigurationError: there is none, there are several, or something is wrong that matters for the lake.
    """
    config, unresolved = load_lake_config(configuration_file(place))
    return _told(config), unresolved


def configuration_file(place: Path) -> Path:
    """The one configuration file meant."""
    files = configuration_files(place)
    if len(files) > 1:
        names = ", ".join(path.name for path in files)
        raise ConfigurationError(
            "configuration", str(place), f"one of its files: {names}", "name the file with --config"
        )
    return files[0]


def _told(config: CaptureConfig) -> CaptureConfig:
    for name, reason in config.ignored:
        warn(f"{name} has no effect: {reason}")
    return config
