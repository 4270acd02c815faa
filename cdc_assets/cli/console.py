"""Shared by all commands: output streams, choice of the configuration, error handling.

Exit codes: 0 done; 1 failed; 2 wrong command line or configuration; 3 not in time; 130 interrupted.
"""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from cdc_assets.capture.log_levels import enable_info_logs
from cdc_assets.config.engine import EngineConfig, is_engine_file, load_engine_lake_config
from cdc_assets.config.load import configuration_files, load_config, load_lake_config, read_properties
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.errors import CdcError, ConfigurationError, InvalidValueError, describe_error, lacking

FAILED, WRONG_USE, NOT_IN_TIME, INTERRUPTED = 1, 2, 3, 130
P = ParamSpec("P")
S = TypeVar("S", CaptureConfig, EngineConfig)
TRACEBACK_VARIABLE = "CDC_TRACEBACK"

_PIPE_WIDTH = 200
"""Width in columns if the output is not a terminal but a log, a file or `grep`: names must not be cut there."""
_LINES = 25
_COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class _Console(Console):
    """As wide as `COLUMNS` says or the terminal is: asked at each print, since both can change.

    Whoever names a table, or writes a row, does not get to command the terminal: control characters of what is printed, and
    those that turn the direction of text, are shown as `�`.
    """

    @property  # type: ignore[misc]  # nobody sets it
    def size(self) -> ConsoleDimensions:
        """Columns and lines."""
        return ConsoleDimensions(*get_terminal_size((_PIPE_WIDTH, _LINES)))

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """What is printed."""
        for part in super().render(renderable, options):
            yield part if part.control else part._replace(text=_COMMANDS.sub("�", part.text))


out = _Console(highlight=False)
err = _Console(highlight=False, stderr=True)

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        envvar="CDC_CONFIG",
        help="Configuration file, also the defs.yaml of a component, or a folder that holds one.",
        show_default=True,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document for scripts.")]
DEFAULT_CONFIG = Path("resources/captures")


def clear_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Wrap a command so that every error ends in one message and an exit code, never in a traceback."""

    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        with errors_shown():
            command(*args, **kwargs)

    return guarded


@contextmanager
def errors_shown() -> Iterator[None]:
    """End the command with one message and an exit code if the block raises.

    Raises:
        typer.Exit: it did.
    """
    try:
        yield
    except CdcError as error:
        fail(str(error), WRONG_USE if isinstance(error, InvalidValueError) else FAILED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader, such as `head`, has closed the pipe
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        text = describe_error(error).rstrip(": ")
        if more := lacking(error):
            kept = "Nothing is lost: what is committed stays, and the next run continues after it"
            fail(f"The process needs more than it may have: {text}. {kept}. Next: give it more {more}.", FAILED)
        hint = f"set {TRACEBACK_VARIABLE}=1 to see the traceback, and report it"
        fail(f"This is a bug in cdc-assets. {text}. Next: {hint}", FAILED)


def fail(message: str, code: int) -> NoReturn:
    """Print an error and end the command.

    Raises:
        typer.Exit: always.
    """
    err.print(Text.assemble(("error ", "bold red"), message), soft_wrap=True)
    raise typer.Exit(code) from None


def warn(message: str) -> None:
    """Print a warning."""
    err.print(Text.assemble(("warning ", "bold yellow"), message), soft_wrap=True)


class _Lines(logging.Handler):
    """Prints each log record on one line; the terminal wraps it, so that a log can be searched."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record; warnings in yellow, errors in red."""
        style = "bold red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else ""
        err.print(Text(self.format(record), style=style), soft_wrap=True)


def show_logs() -> None:
    """Print log messages on standard error: all warnings, and INFO messages about signals, notifications and the stream.

    The handler is the root logger's. Without one there, the first library that calls `logging.exception` would add another one, and each
    of our messages would be printed twice from then on.
    """
    root = logging.getLogger()
    if not any(isinstance(handler, _Lines) for handler in root.handlers):
        handler = _Lines()
        handler.addFilter(lambda record: not _is_of_py4j(record))
        root.addHandler(handler)
    enable_info_logs()


def _is_of_py4j(record: logging.LogRecord) -> bool:
    """Whether py4j logs it: traces of a JVM that is gone, which our own message says in one sentence. It logs some by the root logger."""
    return record.name.startswith("py4j") or (record.name == "root" and record.module == "java_gateway")


def read_config(path: Path) -> CaptureConfig:
    """The configuration at a path; warns about properties that have no effect.

    Raises:
        ConfigurationError: there is none, there are several, or it is invalid.
    """
    return with_warnings(load_config(_file_for_sql_server(path)))


def read_lake_config(path: Path, needed: str = "") -> tuple[CaptureConfig, ConfigurationError | None]:
    """Like `read_config`, for commands that only read the lake and need no credentials of the server.

    Args:
        path: of the file, or of its folder.
        needed: see `load_lake_config`.

    Returns:
        The settings, and the reason if the server cannot be reached with them.

    Raises:
        ConfigurationError: there is none, there are several, or a property that the lake needs is invalid.
    """
    config, unresolved = load_lake_config(_file_for_sql_server(path), needed=needed)
    return with_warnings(config), unresolved


def read_engine_config(place: Path) -> tuple[EngineConfig, ConfigurationError | None]:
    """The same for a file of another connector.

    Raises:
        ConfigurationError: it is invalid.
    """
    config, unresolved = load_engine_lake_config(place)
    return with_warnings(config), unresolved


def _file_for_sql_server(path: Path) -> Path:
    """The configuration file for a command that knows captures from SQL Server only.

    Raises:
        ConfigurationError: another connector makes the capture, so the file's properties mean something else.
    """
    file = configuration_file(path)
    if is_engine_file(file):
        raise ConfigurationError(
            "connector.class",
            read_properties(file)["connector.class"],
            "a capture from SQL Server, for this command",
            "use capture, status, summary, tail or doctor, or the capture's assets and jobs in Dagster",
        )
    return file


def configuration_file(path: Path) -> Path:
    """The only configuration file at a path."""
    files = configuration_files(path)
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ConfigurationError(
            "configuration", str(path), f"one of its files: {names}", "name the file with --config"
        )
    return files[0]


def with_warnings(config: S) -> S:
    """The configuration; warns about properties that have no effect."""
    for name, reason in config.ignored:
        warn(f"{name} has no effect: {reason}")
    return config
