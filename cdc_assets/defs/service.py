"""Identifies the start of Dagster that a code server belongs to, for what is done at each start.

A code server is not the service: `dagster-daemon run` with a workspace of modules makes another one every minute, and a reload in
the pages makes one too. The service is the outermost process of Dagster that the code server descends from: `dagster dev`, the
daemon, `dagster code-server start`, or the code server itself if something else keeps it. Other settings of what is read at a start
are another start as well: setting `snapshot.mode=always` and loading the code location again requests it.

*Where the kernel does not say* which processes there are, each code server counts as a start.
"""

import hashlib
import os
from pathlib import Path
from uuid import uuid4

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.processes import identified

_PROC = Path("/proc")
_LOAD = uuid4().hex
_DAEMON = frozenset({"dagster-daemon", "dagster._daemon"})
"""The command, and the module."""


def start_id(config: CaptureConfig) -> str:
    """Identifies this start of the service with these settings."""
    read = config.snapshot
    said = f"{_service()} {read.mode} {read.data} {read.schema}"
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def is_of_daemon() -> bool:
    """Whether the daemon has started this process, as it does every minute with a code server of its own."""
    try:
        return not _DAEMON.isdisjoint(_names(os.getppid()))
    except OSError:
        return False


def _service() -> str:
    """The outermost process of Dagster above this one, or this one."""
    try:
        number = os.getpid()
        while (parent := _parent(number)) > 1 and _is_of_dagster(parent):
            number = parent
        if parent == 1 and _is_of_dagster(parent):  # of a container
            number = parent
    except (OSError, ValueError, IndexError):
        return _LOAD
    return identified(number)


def _parent(number: int) -> int:
    stat = (_PROC / str(number) / "stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[1])


def _is_of_dagster(number: int) -> bool:
    """Whether a process is one of Dagster's commands: `dagster dev`, `python -m dagster api grpc`, `dg dev`."""
    return any(name == "dg" or name.startswith("dagster") for name in _names(number))


def _names(number: int) -> list[str]:
    """What a process may be called by: the names in the first words of its command line."""
    words = (_PROC / str(number) / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    return [Path(word).name for word in words[:3]]
