"""`cdc-assets capture` as a process of its own, of each kind of runner, and what it took."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.passes import ROOT
from benchmarks.witness import Kind


@dataclass(frozen=True, slots=True)
class Command:
    """A capture's command of one kind, with its files in a folder of its own.

    Args:
        kind: how it runs tasks.
        folder: for its files.
    """

    kind: Kind
    folder: Path

    @classmethod
    def of(cls, kind: Kind, folder: Path, properties: Mapping[str, str]) -> "Command":
        """With the configuration written."""
        own = Path(tempfile.mkdtemp(dir=folder))
        (own / "bench.json").write_text(json.dumps(properties))
        (own / "spark.conf").write_text(kind.spark)
        return cls(kind, own)

    @property
    def line(self) -> list[str]:
        """The command line."""
        capture = ["capture", "--config", str(self.folder / "bench.json"), *self.kind.arguments]
        return [sys.executable, "-m", "benchmarks.command", str(self.folder / "notes"), *capture]

    @property
    def environment(self) -> dict[str, str]:
        """Of its process."""
        return os.environ | {"CDC_SPARK_CONF": str(self.folder / "spark.conf")}

    @property
    def notes(self) -> list[str]:
        """What its witness saw, a line for each job."""
        return (self.folder / "notes").read_text().splitlines()

    def run(self, *arguments: str) -> "Cold":
        """Run it to its end.

        Raises:
            RuntimeError: it failed, or tasks ran elsewhere than its kind says.
        """
        before, started = _children(), time.perf_counter()
        done = subprocess.run(
            [*self.line, *arguments], env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        seconds, processor = time.perf_counter() - started, _children() - before
        if done.returncode:
            raise RuntimeError(f"capture ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
        self.kind.require(self.notes)
        return Cold(seconds, processor, done.stdout)


@dataclass(frozen=True, slots=True)
class Cold:
    """What a process did.

    Args:
        seconds: from its launch to its end.
        processor: processor seconds of it and all that it started and that ended with it.
        said: on its standard output.
    """

    seconds: float
    processor: float
    said: str


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
