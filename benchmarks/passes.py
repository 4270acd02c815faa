"""Contenders in processes of their own: each does the same work several times and says how long each pass took.

A contender's program gets a JSON file of arguments and prints one JSON line for each pass that is done. The *cold* time
is the parent's: from the launch of the process to the line of its first pass. *Warm* are the later passes, by the
process's own clock, with the processor seconds of it and its children.
"""

import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.processes import processor_seconds

ROOT = Path(__file__).parents[1]


@dataclass
class Times:
    """Seconds of a contender's passes.

    Args:
        cold: from the launch of a process to the end of its first pass.
        warm: of passes in a process that has done the same before.
        processor: processor seconds of the warm passes, the server's left out.
    """

    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def add(self, other: "Times") -> None:
        """Take another process's passes in."""
        self.cold += other.cold
        self.warm += other.warm
        self.processor += other.processor

    def add_warm(self, timed: tuple[float, float]) -> None:
        """One more warm pass: seconds and processor seconds."""
        self.warm.append(timed[0])
        self.processor.append(timed[1])


def timed(work: Callable[[], object], but: int | None = None) -> tuple[float, float]:
    """Seconds and processor seconds of some work in this process and its children, without one of them."""
    started, used = time.perf_counter(), processor_seconds(but=but)
    work()
    return time.perf_counter() - started, processor_seconds(but=but) - used


def claim_memory(size: int = 3_000_000_000) -> None:
    """Touch memory and give it back, so that a contender's pages are the machine's already.

    A virtual machine may hand free memory to its host. What is written next then waits for the host: here 2.7 s of a processor for
    900 MB of a file, and 0.2 s in memory that was in use just before. Within seconds it is the host's again.
    """
    with mmap.mmap(-1, size) as memory:
        memory[:: mmap.PAGESIZE] = bytes(len(range(0, size, mmap.PAGESIZE)))


def tell(work: Callable[[], object]) -> None:
    """One pass of a contender's process: do it and print its line."""
    print(json.dumps(timed(work)), flush=True)


def run_process(module: str, arguments: Mapping[str, object], folder: Path) -> Times:
    """Run a contender's program to its end.

    Args:
        module: of this package, run with the name of a file of arguments.
        arguments: what it needs to know.
        folder: for that file and its log.

    Raises:
        RuntimeError: it failed; what it said last is in the message.
    """
    work = Path(tempfile.mkdtemp(dir=folder))
    (work / "arguments.json").write_text(json.dumps(arguments))
    times = Times()
    with (work / "log").open("wb") as log:
        started = time.perf_counter()
        command = [sys.executable, "-m", f"benchmarks.{module}", str(work / "arguments.json")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)
        with process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    if not line.startswith("["):
                        continue
                    if times.cold:
                        times.add_warm(tuple(json.loads(line)))
                    else:
                        times.cold.append(time.perf_counter() - started)
            except BaseException:
                process.kill()  # leaving the block would wait for it
                raise
    if process.returncode or not times.cold:
        raise RuntimeError(f"{module} ended with {process.returncode}: {(work / 'log').read_text()[-2000:]}")
    return times


def arguments() -> dict[str, object]:
    """What the parent told this contender's process."""
    return dict(json.loads(Path(sys.argv[1]).read_text()))


def load_average() -> str:
    """Of the last minute, and on how many cores."""
    return f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def spread(seconds: list[float]) -> str:
    """Median, least and most."""
    return f"{median(seconds):.2f} ({min(seconds):.2f}–{max(seconds):.2f})" if seconds else ""
