"""What processes take: memory, and processor time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil


def family(of: int | None = None, but: int | None = None) -> Iterator[psutil.Process]:
    """A process, this one if None, and all that it started, without one of them."""
    parent = psutil.Process(of)
    yield from (process for process in [parent, *parent.children(recursive=True)] if process.pid != but)


def processor_seconds(of: int | None = None, but: int | None = None) -> float:
    """Of a process and its children, also of those that have ended; without one of them."""
    found = 0.0
    for process in family(of, but):
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found += used.user + used.system + used.children_user + used.children_system
    return found


class Processor:
    """Processor seconds of the processes that another one starts while a block runs.

    Args:
        of: the other one.
    """

    def __init__(self, of: int) -> None:
        self._root, self._stop = psutil.Process(of), threading.Event()
        self._known = {process.pid for process in self._root.children(recursive=True)}
        self._used: dict[int, float] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """The block."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    @property
    def seconds(self) -> float:
        """Of all of them together."""
        return sum(self._used.values())

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            for process in self._root.children(recursive=True):
                if process.pid not in self._known:
                    with suppress(psutil.Error):
                        times = process.cpu_times()
                        self._used[process.pid] = times.user + times.system


class Memory:
    """Greatest memory of Python's processes together, of the largest of them, and of the JVM while a block runs, in MB.

    Args:
        of: process that is watched with all that it starts; this one if None.
        but: one of them that is left out.
    """

    def __init__(self, of: int | None = None, but: int | None = None) -> None:
        self._of, self._but, self._stop = of, but, threading.Event()
        self.python = self.largest = self.jvm = 0.0

    def __enter__(self) -> "Memory":
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            python, jvm = [0.0], 0.0
            for process in family(self._of, self._but):
                try:
                    if process.name() == "java":
                        jvm += process.memory_info().rss / 1e6
                    else:
                        python.append(proportional(process) / 1e6)
                except psutil.Error:
                    continue
            self.python, self.largest = max(self.python, sum(python)), max(self.largest, *python)
            self.jvm = max(self.jvm, jvm)


def proportional(process: psutil.Process) -> int:
    """Bytes of a process, of which pages that it shares with others count in part; elsewhere than on Linux all of them."""
    found = process.memory_full_info()
    return int(getattr(found, "pss", found.rss))
