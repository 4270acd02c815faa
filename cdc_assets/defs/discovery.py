"""Which tables a code location shows, even while the server is away.

Asset keys must be known when the code location loads, and the server is the
only one who knows the captured tables. So each load asks it, briefly, and keeps
the answer in a file; if it cannot be asked, the last answer serves and the
problem is shown. A table that appears later is captured by the running loop all
the same and is listed after the next reload of the code location.
"""

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc_assets.core.schema import TableSchema
from cdc_assets.errors import CdcError, describe_error

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Discovery:
    """Captured tables, and why they could not be asked for, if so.

    Args:
        tables: their structure, sorted by name.
        problem: what went wrong; empty if the server answered.
    """

    tables: tuple[TableSchema, ...]
    problem: str = ""


def discover(ask: Callable[[], Sequence[TableSchema]], remembered: Path) -> Discovery:
    """Ask the server, or recall its last answer.

    Args:
        ask: the question; raises `CdcError` if there is no answer.
        remembered: JSON file with the last answer.
    """
    try:
        tables = tuple(sorted(ask(), key=lambda schema: schema.table))
    except CdcError as error:
        _log.warning("The captured tables could not be asked for: %s", error)
        return Discovery(recall(remembered), describe_error(error))
    remember(remembered, tables)
    return Discovery(tables)


def remember(path: Path, tables: Sequence[TableSchema]) -> None:
    """Write the tables to `path`, whole or not at all; a place that cannot be written is no reason to stop."""
    text = json.dumps([schema.to_data() for schema in tables], indent=1)
    try:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        _log.warning("The captured tables could not be remembered in %s: %s", path, error)


def recall(path: Path) -> tuple[TableSchema, ...]:
    """The tables in `path`; none if it is missing or not ours."""
    try:
        return tuple(TableSchema.from_data(entry) for entry in json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return ()
