"""A capture without Dagster: `cdc-assets capture --follow` under a supervisor, which starts it again wherever it ends."""

import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException

from prometheus_client.parser import text_string_to_metric_families

from cdc_assets_tests.beside import beside
from cdc_assets_tests.engines.servers import free_port
from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.shop import Shop

COMMAND = (sys.executable, "-m", "cdc_assets.cli.main", "capture", "--local", "--follow")
AGAIN_S = 1.0
"""Seconds until the supervisor starts it again."""
SCRAPE_S = 10.0
"""Prometheus's own limit for an answer."""
_NEWEST = 2000
"""Characters of output that are looked at: some seconds of a capture."""


@dataclass
class Command:
    """A capture that a supervisor keeps running.

    Args:
        shop: what it captures.
        port: of its metrics.
    """

    shop: Shop
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        """A supervisor keeps the environment in which it began."""
        self._environment = os.environ | self.shop.environment
        self._log = self.shop.folder / "capture.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._first: list[str] = []
        """Tables that the next process reads first."""

    @property
    def output(self) -> str:
        """The newest of what it has said."""
        return self._log.read_text()[-_NEWEST:] if self._log.exists() else ""

    @property
    def pids(self) -> list[int]:
        """Of what captures now."""
        return [self._process.pid] if self._process and self._process.poll() is None else []

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = 240) -> None:
        """Look every half second; fails with what the command has said."""
        wait_until(holds, seconds, lambda: f"not within {seconds} s: {what}; {self.output}")

    def reload(self) -> None:
        """Nothing: whoever looks at the command's metrics reads the file again."""

    def read_again(self, table: str) -> None:
        """A person ends it, and lets it read a table first."""
        self._log.write_text("")
        self._first = ["--table", f"dbo.{table}"]
        for pid in self.pids:
            os.kill(pid, signal.SIGTERM)
        self.wait_until(lambda: "Snapshot: 1 table." in self._log.read_text(), f"{table} is read again")
        self._first = []

    def scrape(self) -> tuple[bool, str]:
        """Whether the capture is healthy as its metrics say, and why not as its output says; no answer is an alert, too."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=SCRAPE_S) as answer:
                text = answer.read().decode()
        except (OSError, HTTPException) as error:
            return False, f"no metrics: {error}\n{self.output}"
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        told = [one.labels["health"] for one in samples if one.name == "cdc_assets_health" and one.value]
        return told == ["healthy"], f"health: {told}\n{self.output}"

    def keep(self, over: threading.Event) -> None:
        """Start it again wherever it ends, until the event is set."""
        while not over.is_set():
            command = [*COMMAND, "--metrics-port", str(self.port), *self._first]
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=subprocess.STDOUT)
            while self._process.poll() is None and not over.wait(0.2):
                pass
            if self._process.poll() is None:
                self._process.terminate()
                self._process.wait()
            over.wait(AGAIN_S)


@contextmanager
def kept_running(shop: Shop) -> Iterator[Command]:
    """It runs during the block."""
    command = Command(shop)
    with beside(command.keep):
        yield command
