"""Identifies an operating-system process, and finds out whether it still exists.

A process is identified by host, boot, process id, start time and the space in which its id is given out. So neither a reused
process id nor one of another container is mistaken for it.
"""

import os
import socket
from pathlib import Path

_PROC = Path("/proc")
_OF_MACHINE = "pid:[4026531836]"
"""The space of process ids of a machine itself; Linux gives those of containers other numbers."""


def own_process() -> str:
    """Identifier of this process, for `is_gone`."""
    return identified(os.getpid())


def identified(number: int) -> str:
    """Identifier of a process of this host and container, for `is_gone`."""
    return "/".join([socket.gethostname(), _boot(), str(number), start_of(number) or "", _space()])


def is_gone(process: str) -> bool:
    """Whether a process identified by `own_process` has ended; False where that is unknown: see `is_here`."""
    _, boot, number, start, _ = process.split("/")
    return is_here(process) and (boot != _boot() or start_of(int(number)) != start)


def _space() -> str:
    """The space in which the id of this process was given out; empty if the kernel does not provide it."""
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def _boot() -> str:
    """Identifier of the machine's boot; empty if the kernel does not provide it."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def start_of(number: int) -> str | None:
    """Start time of a process in the kernel's units; empty if the kernel does not provide it, None if there is no process."""
    if (_PROC / "self/stat").exists():
        try:
            fields = (_PROC / str(number) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        except OSError:
            return None
        state, *others = fields.split()
        return None if state in ("Z", "X") else others[18]
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return ""


def children_of(number: int) -> list[int]:
    """Processes that a process has started and that have not ended; none if the kernel does not say."""
    return _children().get(number, [])


def descendants_of(number: int) -> list[int]:
    """Processes that a process has started, and those that they have started, and so on."""
    children = _children()
    found, left = list[int](), [number]
    while left:
        own = children.get(left.pop(), [])
        found += own
        left += own
    return found


def _children() -> dict[int, list[int]]:
    """All processes that have not ended, by the one that has started them."""
    found: dict[int, list[int]] = {}
    for place in _PROC.glob("[0-9]*/stat"):
        try:
            state, parent, *_ = place.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if state not in ("Z", "X"):
            found.setdefault(int(parent), []).append(int(place.parent.name))
    return found


def is_stopped(number: int) -> bool:
    """Whether a process is stopped (SIGSTOP, a debugger) until it gets SIGCONT; False if the kernel does not say."""
    try:
        stat = (_PROC / str(number) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def number_of(process: str) -> str:
    """The process id of a process identified by `own_process`."""
    return process.split("/")[2]


def host_of(process: str) -> str:
    """The host of a process identified by `own_process`."""
    return process.split("/")[0]


def is_here(process: str) -> bool:
    """Whether a process identified by `own_process` runs, or has run, where this one does, so that `is_gone` can decide.

    Containers may have the name of their host, or one name on two: then the same id is another process, or another boot another
    machine.
    """
    host, boot, *_, space = process.split("/")
    if host != socket.gethostname() or (space and space != _space()):
        return False
    return boot == _boot() or space in ("", _OF_MACHINE)
