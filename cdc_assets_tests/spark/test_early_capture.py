"""The start of a session hides behind work, and nobody waits for one that is not needed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from cdc_assets.adapters.spark.early import EarlyRunner
from cdc_assets.adapters.spark.settings import SparkSettings
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.assembly.capture import open_capture
from cdc_assets.core.jobs import Job
from cdc_assets.core.ports import TaskRunner
from cdc_assets.core.ran_on import RanOn
from cdc_assets.defs.spark import SparkResource
from cdc_assets_tests.shop import Shop, open_shop

pytestmark = pytest.mark.spark

ENDLESS = "while echo; do sleep 0.1; done"
"""A Java that is never there, and that ends when nobody reads what it says, as the one does that finds the options of a JVM."""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as found:
        found.add_customers(5)
        yield found


@dataclass(frozen=True)
class Command:
    """`cdc-assets capture` with default settings, on a machine whose Java is a script.

    Args:
        started: written by that script when it is called.
    """

    environment: dict[str, str]
    started: Path

    def begin(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "cdc_assets.cli.main", "capture", *arguments]
        return subprocess.Popen(
            command, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        with self.begin(*arguments) as process:
            said, _ = process.communicate(timeout=300)
            return process.returncode, said

    @property
    def left(self) -> list[psutil.Process]:
        """Processes of a start that are still there."""
        numbers = set(map(int, self.started.read_text().split()))
        found = psutil.process_iter(["status"])
        return [one for one in found if one.pid in numbers and one.info["status"] != psutil.STATUS_ZOMBIE]


@pytest.fixture
def with_java(shop: Shop, tmp_path: Path) -> Callable[[str], Command]:
    """Makes a command from what its Java does."""

    def make(script: str) -> Command:
        started, java = tmp_path / "started", tmp_path / "java/bin/java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho $$ >> {started}\n{script}\n")
        java.chmod(0o755)
        (tmp_path / "spark.conf").write_text("")
        own = {"JAVA_HOME": str(tmp_path / "java"), "CDC_SPARK_CONF": str(tmp_path / "spark.conf")}
        return Command(os.environ | shop.environment | own, started)

    return make


def exact(shop: Shop) -> bool:
    return shop.differences() == {} and shop.doubled() == []


@pytest.mark.long
def test_machine_without_java_says_so_and_names_what_needs_none(
    shop: Shop, with_java: Callable[[str], Command]
) -> None:
    capture = with_java("exit 1")
    code, said = capture.run()
    assert code == 2
    lines = [line for line in said.splitlines() if "check Java" in line]
    assert 1 <= len(lines) <= 2, said  # a start that fails before anybody waits for it is told, too
    assert all("--local" in line for line in lines)
    assert capture.run("--local")[0] == 0
    assert exact(shop)


@pytest.mark.long
def test_run_without_new_rows_starts_no_java(shop: Shop, with_java: Callable[[str], Command]) -> None:
    capture = with_java(ENDLESS)
    assert capture.run("--local")[0] == 0
    assert capture.run("--idle", "0.5")[0] == 0
    assert not capture.started.exists()
    assert exact(shop)


@pytest.mark.long
def test_run_whose_work_is_done_before_the_session_is_there_ends_without_it(
    shop: Shop, with_java: Callable[[str], Command]
) -> None:
    capture = with_java(ENDLESS)
    assert capture.run("--local")[0] == 0
    shop.add_customers(1)
    begun = time.monotonic()
    code, said = capture.run("--idle", "0.5")
    assert code == 0, said
    assert time.monotonic() - begun < 60
    assert len(capture.started.read_text().split()) == 1, "it is not begun again"
    assert capture.left == []
    assert exact(shop)


@pytest.mark.long
def test_run_that_is_asked_to_end_while_spark_starts_ends_soon(with_java: Callable[[str], Command]) -> None:
    capture = with_java(ENDLESS)
    with capture.begin() as process:  # a snapshot, which waits for Spark
        while not capture.started.exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        asked = time.monotonic()
        process.communicate(timeout=240)
    assert time.monotonic() - asked < 18
    assert capture.left == []


@pytest.mark.long
def test_small_windows_run_here_until_the_session_is_there(shop: Shop, spark_resource: SparkResource) -> None:
    let, found = threading.Event(), list[RanOn]()

    def late() -> TaskRunner:
        assert let.wait(60)
        return spark_resource.runner()

    runner = EarlyRunner(SparkSettings("local[2]"), late)

    def stream() -> RanOn:
        with open_capture(shop.config(), runner, lambda progress: found.append(progress.ran_on)) as capture:
            capture.stream()
        return found[-1]

    with open_capture(shop.config(), LocalRunner(), lambda _: None) as capture:
        capture.snapshot()
    shop.add_customers(1)
    early = stream()
    assert (early.tasks, early.here, early.why) == (0, 1, "a small job, before the session was there")
    let.set()
    runner.run(str, [1, 2], Job("snapshot"))  # waits for it
    shop.add_customers(1)
    later = stream()
    assert (later.tasks, later.here, later.spark) == (1, 0, "local[2]")
    assert exact(shop)
