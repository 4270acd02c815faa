"""Writes tags of a run, one writer on this machine after the other.

Dagster reads all tags of a run and writes them back with the new ones. Two steps of a run in processes of their own, or two threads of
one, which do so at the same moment would each write what the other has not: a turn that was taken would be gone (`turns`).

*The lock* is on a file of the state folder, and ends with the process that holds it. Where there is no such folder or it allows no
locks, if it is not free for seconds, and between machines, tags are written without one: the fence of the manifest keeps writers
apart then.
"""

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TextIO

import dagster as dg

from cdc_assets.core.state_folder import state_folder

_GRACE_S: Final = 10.0
_PAUSE_S: Final = 0.05


def tag_run(instance: dg.DagsterInstance, run_id: str, tags: Mapping[str, str]) -> None:
    """Add tags to a run, or replace them."""
    with _one_by_one(run_id):
        instance.add_run_tags(run_id, tags)


@contextmanager
def _one_by_one(run_id: str) -> Iterator[None]:
    """A block that only one process of this machine enters for this run; runs share a few files, so that none are left behind for each."""
    folder = state_folder() / "tags"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / f"{run_id[:1]}.lock").open("a")
    except OSError:
        yield
        return
    with file:
        _wait_for(file)
        yield


def _wait_for(file: TextIO) -> None:
    """Lock a file; not where its file system has no locks, nor if somebody holds it for long, as a stopped process does."""
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:
            return
        else:
            return
