"""`cdc-assets capture --follow` as a process of its own: idle, its first change, a stream; part of `cold_start`."""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

from benchmarks.cold import Command
from benchmarks.latency import follow, seconds_of_rows
from benchmarks.measures import Measures
from benchmarks.passes import ROOT
from benchmarks.processes import Memory, processor_seconds
from benchmarks.witness import Kind
from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.shop import Shop

_DAY_S, _CHANGES = 86_400, 1_440
"""Of a day of one change a minute."""
_BEHIND_S = 10.0
"""Seconds behind a first change that are counted with it: a session may start beside it."""
_MAX_BEFORE = 60
"""Rows until tasks run where they will run from then on."""


def followed(shop: Shop, kinds: Sequence[Kind], passes: int, rows: int, idle_s: float) -> Iterator[str]:
    """Rows of a table: captures of each kind in turn.

    Args:
        rows: of a stream.
        idle_s: seconds in which nothing is to be done.
    """
    found = Measures(tuple(kind.name for kind in kinds))
    shop.write({"poll.interval.ms": "500"})
    for _ in range(passes):
        for kind in kinds:
            found.add(kind.name, _one(shop, kind, rows, idle_s))
    yield from found.lines()


def _one(shop: Shop, kind: Kind, rows: int, idle_s: float) -> dict[str, float]:
    command = Command.of(kind, shop.folder, shop.properties)
    with _following(command) as process:
        quiet, idle = _took(process, lambda: time.sleep(idle_s))
        first: list[float] = []

        def change() -> None:
            first.extend(seconds_of_rows(shop, 1, lambda: None))
            time.sleep(_BEHIND_S)

        _, start = _took(process, change)
        before = 0
        while not kind.holds(command.notes[before:]):
            if before > _MAX_BEFORE:
                kind.require(command.notes[before:])
            before = len(command.notes)
            list(follow(shop, 0))
        before, begun, stream = len(command.notes), time.perf_counter(), list[float]()
        working, busy = _took(process, lambda: stream.extend(follow(shop, rows)))
        seconds = time.perf_counter() - begun
        kind.require(command.notes[before:])
    each = (busy - idle / idle_s * seconds) / (rows + 1)
    return {
        "a capture that follows, idle: MB of Python": quiet.python,
        "MB of Java": quiet.jvm,
        "processor s in a minute": idle / idle_s * 60,
        "its first change, s": first[0],
        f"processor s, {_BEHIND_S:.0f} s behind it included": start,
        "its stream, median s of a row": median(stream),
        "processor s of a row": each,
        "then MB of Python": working.python,
        "then MB of Java": working.jvm,
        "a day of one change a minute, processor s": idle / idle_s * _DAY_S + each * _CHANGES,
    }


@contextmanager
def _following(command: Command) -> Iterator[int]:
    """A capture at work, with its process id."""
    said = command.folder / "said"
    with said.open("wb") as log:
        whole = [*command.line, "--follow"]
        process = subprocess.Popen(whole, env=command.environment, cwd=ROOT, stdout=log, stderr=log)
    try:
        wait_until(lambda: "Snapshot: " in said.read_text(), 120, said.read_text)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _took(process: int, work: Callable[[], object]) -> tuple[Memory, float]:
    """Memory and processor seconds of a process, and of what it started, during some work of this one."""
    used = processor_seconds(process)
    with Memory(process) as memory:
        work()
    return memory, processor_seconds(process) - used
