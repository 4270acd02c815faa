"""A start of Spark that nobody needs any more leaves no JVM, whenever it is ended."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import psutil
import pytest

from cdc_assets.adapters.spark.launch import Launch
from cdc_assets.core.interruption import Interrupted
from cdc_assets.core.processes import is_stopped
from cdc_assets_tests.patience import wait_until

JVM = [sys.executable, "-c", "import time; time.sleep(60)", "pyspark-shell"]
"""A process that tells what pyspark has each JVM run."""


class Start(threading.Thread):
    """What pyspark does: it starts a process, after a while, and waits until it answers."""

    def __init__(self, launch: Launch, late: float) -> None:
        super().__init__(daemon=True)
        self._launch, self._late = launch, late
        self.begun, self.code = threading.Event(), 0

    def run(self) -> None:
        with self._launch.starting():
            self.begun.set()
            time.sleep(self._late)
            self.code = subprocess.call(JVM)


def children_with_a_jvms_name() -> set[psutil.Process]:
    """Also those of sessions of other tests of this process."""
    found = set()
    for one in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            found |= {one} if JVM[-1] in one.cmdline() else set()
    return found


@pytest.mark.parametrize("late", [0.0, 0.5])
def test_jvm_that_appears_while_its_start_is_ended_is_ended_too(late: float) -> None:
    launch = Launch()
    start = Start(launch, late)
    start.start()
    assert start.begun.wait(20)
    launch.end()
    start.join(20)
    assert start.code < 0, "by a signal"


def test_jvm_that_is_stopped_is_ended_too() -> None:
    launch, others = Launch(), children_with_a_jvms_name()
    start = Start(launch, 0.0)
    start.start()
    wait_until(lambda: children_with_a_jvms_name() - others, 20, lambda: "it has started", every=0.01)
    (jvm,) = children_with_a_jvms_name() - others
    jvm.suspend()
    wait_until(lambda: is_stopped(jvm.pid), 20, lambda: "it is stopped", every=0.01)
    launch.end()
    start.join(20)
    assert start.code == -signal.SIGKILL


def test_no_start_begins_that_is_not_needed_and_a_later_need_counts() -> None:
    launch = Launch()
    launch.end()
    with pytest.raises(Interrupted), launch.starting():
        raise AssertionError
    launch.renew()
    with launch.starting():
        assert not launch.is_ended


def test_end_waits_for_nothing_where_nothing_starts() -> None:
    launch, begun = Launch(), time.monotonic()
    with launch.starting():
        pass
    launch.end()
    assert time.monotonic() - begun < 1


def test_processes_from_before_are_not_ended() -> None:
    with subprocess.Popen(JVM) as other:
        launch = Launch()
        with launch.starting():
            pass
        launch.end()
        assert other.poll() is None
        other.kill()
