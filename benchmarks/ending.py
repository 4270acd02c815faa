"""However a benchmark ends, also by SIGTERM and SIGHUP, nothing that it started goes on: servers, brokers, contenders.

A signal becomes `SystemExit` in the main thread, so that each context ends what it began. What is left then, such as the Java machine of
a session, is killed here.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import psutil

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ends_with_us() -> Iterator[None]:
    """A block behind which none of the processes that it started is left."""
    started: list[psutil.Process] = []

    def leave(number: int, _: object) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # the first one is on its way
        started.extend(psutil.Process().children(recursive=True))
        raise SystemExit(128 + number)

    before = {each: signal.signal(each, leave) for each in _SIGNALS}
    try:
        yield
    finally:
        _end({*started, *psutil.Process().children(recursive=True)})
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def served(pipe: Connection, process: BaseProcess) -> Iterator[None]:
    """Start a process that reads `requests` from the other end of a pipe; it ends behind the block."""
    process.start()
    try:
        yield
    finally:
        with suppress(OSError):  # it has ended
            pipe.send(None)
        process.join(60)


def requests(pipe: Connection) -> Iterator[Any]:
    """In that process: what the parent asks for, until it says None or is gone; signals to all are for the parent to heed."""
    for each in (*_SIGNALS, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    with suppress(EOFError):
        while (request := pipe.recv()) is not None:
            yield request


def _end(processes: set[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes)
