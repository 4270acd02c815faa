"""Which operating-system process a run works in, and whether it is still there.

Dagster learns of a killed run from the code server that started it. If both end together, because `dagster dev` was
stopped or the machine was started anew, nobody tells, and the run counts as started for good: it would hold its
capture's pool. So a run notes its process in a tag, and the sensor asks this machine for it. A process is told by host,
boot, number and start, so that a number given out again is not taken for it.

A code server that is asked to end waits for its runs, so one that follows the log would outlive the `dagster dev` that a
person has ended, out of sight. There, and only there, a run looks whether it is still there, and ends after it. The
web server and the daemon as services end without their runs: the next ones find these at work.
"""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PROCESS_TAG: Final = ".dagster/cdc_process"
"""Pages do not show tags with this beginning."""
_PROC = Path("/proc")
_OF_DEV: Final = "DAGSTER_IS_DEV_CLI"
"""An environment variable that `dagster dev` sets for what it starts, and does not have itself."""
_LOOK_EVERY_S = 1.0


def own_process() -> str:
    """This process, as `is_gone` takes it."""
    return "/".join([socket.gethostname(), _boot(), str(os.getpid()), _start(os.getpid()) or ""])


def is_gone(process: str) -> bool:
    """Whether a process that `own_process` told has ended; of one on another host nobody can say, so it has not."""
    host, boot, number, start = process.rsplit("/", 3)
    if host != socket.gethostname():
        return False
    return boot != _boot() or _start(int(number)) != start


def _boot() -> str:
    """Which start of the machine this is; empty where the kernel does not tell."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _start(number: int) -> str | None:
    """When the process began, in the kernel's own count; empty where it does not tell, None if there is none."""
    if (_PROC / "self/stat").exists():
        try:
            fields = (_PROC / str(number) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        except OSError:
            return None
        state, *rest = fields.split()
        return None if state in ("Z", "X") else rest[18]
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""


@contextmanager
def ended_with_dev() -> Iterator[None]:
    """A block during which this process asks itself to end (SIGTERM) once the `dagster dev` that started it is gone."""
    dev, left = _dev(), threading.Event()
    if dev is None:
        yield
        return
    started = _start(dev)

    def watch() -> None:
        while not left.wait(_LOOK_EVERY_S):
            if _start(dev) != started:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    threading.Thread(target=watch, name="dagster-dev", daemon=True).start()
    try:
        yield
    finally:
        left.set()


def _dev() -> int | None:
    """The `dagster dev` that this process descends from; None where the kernel does not tell, or if there is none."""
    if _OF_DEV not in os.environ:
        return None
    number = os.getppid()
    try:
        while number > 1 and f"{_OF_DEV}=".encode() in (_PROC / str(number) / "environ").read_bytes():
            number = int((_PROC / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return None
    return number if number > 1 else None
