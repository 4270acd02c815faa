"""The operating-system process of a run: its tag, and its end with `dagster dev`.

Dagster learns of a killed run from the code server that started it. If both end together, because `dagster dev` was
stopped or the machine was restarted, nothing reports it, and the run counts as started for ever: it would hold its
capture's pool. So a run records its process in a tag, and the sensor checks whether it exists (`core.processes`).

*Whose process.* A re-execution gets the tags of its parent, so the tag names the run too, and one of another run counts for nothing.
It is the process that carries out the whole run. With Dagster's `multiprocess` executor that is the parent of a step's process; with
others, which start steps elsewhere, it is not known: such a run is left to Dagster.

A code server that is stopped waits for its runs, so a streaming run would silently outlive the `dagster dev` that
a user has ended. Only under `dagster dev`, a run checks whether that process still exists, and ends after it. The web
server and the daemon as services end without their runs: when they restart, these are still running.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, Final

import dagster as dg
from dagster import DagsterRun

from cdc_assets.core.processes import identified, own_process, start_of

PROCESS_TAG: Final = ".dagster/cdc_process"
"""Dagster's pages do not show tags with this prefix."""
_BY_CHOICE: Final = "multi_or_in_process_executor"
"""Dagster's default executor, which a run's configuration chooses from."""
_IN_PROCESS: Final = frozenset({"in_process", "execute_in_process_executor"})
_PROC = Path("/proc")
_OF_DEV: Final = "DAGSTER_IS_DEV_CLI"
"""An environment variable that `dagster dev` sets for its child processes, but not for itself."""
_CHECK_EVERY_S = 1.0


def process_tag(run_id: str, process: str) -> dict[str, str]:
    """The tag that says which process carries out a run; empty if that cannot be said."""
    return {PROCESS_TAG: f"{run_id} {process}"}


def process_of(run: DagsterRun) -> str | None:
    """The process that a run has recorded: empty if it could not say which; None if it has recorded nothing."""
    run_id, _, process = run.tags.get(PROCESS_TAG, "").partition(" ")
    return process if run_id == run.run_id else None


def process_of_run(context: dg.AssetExecutionContext) -> str:
    """The process that carries out the run of a step; empty if that is not known."""
    execution: Any = context.run.run_config.get("execution") or {}
    config = execution.get("config") or {}
    name = context.job_def.executor_def.name
    if name == _BY_CHOICE:
        name = "in_process" if "in_process" in config else "multiprocess"
    if name in _IN_PROCESS:
        return own_process()
    parent = parent_process()
    return identified(parent.pid) if name == "multiprocess" and parent is not None and parent.pid else ""


@contextmanager
def ended_with_dev() -> Iterator[None]:
    """A block during which this process sends itself SIGTERM once the `dagster dev` that started it is gone."""
    dev, left = _dev(), threading.Event()
    if dev is None:
        yield
        return
    started = start_of(dev)

    def watch() -> None:
        while not left.wait(_CHECK_EVERY_S):
            if start_of(dev) != started:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    threading.Thread(target=watch, name="dagster-dev", daemon=True).start()
    try:
        yield
    finally:
        left.set()


def _dev() -> int | None:
    """Process id of the `dagster dev` that this process descends from; None if unknown, or if there is none."""
    if _OF_DEV not in os.environ:
        return None
    number = os.getppid()
    try:
        while number > 1 and f"{_OF_DEV}=".encode() in (_PROC / str(number) / "environ").read_bytes():
            number = int((_PROC / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return None
    return number if number > 1 else None
