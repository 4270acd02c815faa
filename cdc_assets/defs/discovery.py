"""Finds the tables that a code location shows, even while the server is away.

Asset keys must be known when the code location loads, and only the server
knows the captured tables. So each load queries it, with short timeouts, and caches
the answer in a file. If the server cannot be reached, the cached answer is used and the
problem is shown. A table that appears later is captured by the running loop
and is listed after the next reload of the code location.

*The daemon* with a workspace of modules makes another code server every minute. One of these takes an answer that was given not longer than
`_RECENT_S` ago, to whomever; so the server is not asked for all structures each minute, and what a reload in the pages has found counts at once.

*Runs.* Each run builds the code location again, in its own process. It must have the assets that were selected in the
run, and need not wait for the server: the load puts its answer, compressed, and the digest of it into Dagster's reconstruction
metadata, which Dagster passes to each run of that code location. A run that finds the file with that digest uses it; a run on
another machine, in a container without that folder, or after another load has written another answer, uses what was passed.
"""

import base64
import hashlib
import json
import logging
import os
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc_assets.core.schema import TableSchema
from cdc_assets.defs.dagster_internals import leave_for_runs, left_by_load
from cdc_assets.defs.service import is_of_daemon
from cdc_assets.defs.translator import word
from cdc_assets.errors import CdcError, describe_error

_log = logging.getLogger(__name__)
_RECENT_S = 600.0


@dataclass(frozen=True, slots=True)
class Discovery:
    """The captured tables, and why the server could not be queried, if so.

    Args:
        tables: their structures, sorted by name.
        problem: what went wrong; empty if the server answered.
    """

    tables: tuple[TableSchema, ...]
    problem: str = ""


def discover(ask: Callable[[], Sequence[TableSchema]], remembered: Path) -> Discovery:
    """The captured tables: from the code location's load if this is a run, or from the server, or from the cached answer.

    Args:
        ask: queries the server; raises `CdcError` if that fails.
        remembered: path of the JSON file with the cached answer.
    """
    digest, _, passed = _left_by_load(remembered).partition(" ")
    if digest and digest == _digest_of_file(remembered):
        return Discovery(recall(remembered))
    if passed:
        return Discovery(_tables_in(zlib.decompress(base64.b64decode(passed)).decode()))
    if is_of_daemon() and _is_recent(remembered) and (known := recall(remembered)):
        _leave(remembered, known)
        return Discovery(known)
    try:
        tables = tuple(sorted(ask(), key=lambda schema: schema.table))
    except CdcError as error:
        _log.warning("The captured tables could not be read from the server: %s", error)
        found = Discovery(recall(remembered), describe_error(error))
    else:
        remember(remembered, tables)
        found = Discovery(tables)
    _leave(remembered, found.tables)
    return found


def _is_recent(path: Path) -> bool:
    """Whether the server gave this answer not long ago; one from the future is of a clock that was set back."""
    try:
        return 0 <= time.time() - path.stat().st_mtime < _RECENT_S
    except OSError:
        return False


def _left_by_load(remembered: Path) -> str:
    """What the load of the code location left for its runs: a digest, and the tables; empty if this is no run, or nothing was left."""
    return str((left_by_load() or {}).get(_label(remembered), ""))


def _leave(remembered: Path, tables: Sequence[TableSchema]) -> None:
    def packed() -> str:
        text = _text_of(tables).encode()
        return f"{hashlib.sha256(text).hexdigest()} {base64.b64encode(zlib.compress(text)).decode()}"

    if tables:
        leave_for_runs(_label(remembered), packed)


def _label(remembered: Path) -> str:
    return f"cdc_assets/discovery/{remembered.stem}"


def _digest_of_file(path: Path) -> str:
    """SHA-256 of a file; empty if there is no such file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def remembered(folder: Path, capture: str) -> Path:
    """The file in which the answer for a capture is cached.

    Args:
        folder: that of cached data.
    """
    return folder / "discovery" / f"{word(capture)}.json"


def remember(path: Path, tables: Sequence[TableSchema]) -> None:
    """Write the tables to a file atomically; a failure is only logged."""
    text = _text_of(tables)
    try:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            path.touch()  # it was given again
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        _log.warning("The captured tables could not be cached in %s: %s", path, error)


def recall(path: Path) -> tuple[TableSchema, ...]:
    """The tables in a file; empty if it is missing or invalid."""
    try:
        return _tables_in(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _text_of(tables: Sequence[TableSchema]) -> str:
    return json.dumps([schema.to_data() for schema in tables])  # with an indent it takes ten times as long


def _tables_in(text: str) -> tuple[TableSchema, ...]:
    return tuple(TableSchema.from_data(entry) for entry in json.loads(text))
