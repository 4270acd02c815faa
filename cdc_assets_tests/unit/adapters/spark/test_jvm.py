"""Whether this process has a session: while somebody else makes one, and while its JVM is stopped."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from cdc_assets.adapters.spark import jvm
from cdc_assets.core.processes import is_stopped
from cdc_assets_tests.patience import wait_until


def test_session_that_another_thread_is_making_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    begun, lets = threading.Event(), threading.Event()

    def make() -> None:
        """As `SparkContext.getOrCreate`: the context is known before it can be used."""
        with SparkContext._lock:
            context = SimpleNamespace()
            SparkContext._active_spark_context = context
            begun.set()
            assert lets.wait(20)
            context._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))

    with ThreadPoolExecutor(2) as threads:
        making = threads.submit(make)
        assert begun.wait(20)
        asked = threads.submit(jvm.has_context)
        with pytest.raises(TimeoutError):
            asked.result(0.1)
        lets.set()
        assert asked.result(20)
        making.result()


def test_jvm_that_is_stopped_is_not_asked_for_it_would_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> None:
        raise AssertionError("the JVM was asked")

    with subprocess.Popen(["sleep", "60"]) as process:
        process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        context = SimpleNamespace(_jsc=SimpleNamespace(sc=ask))
        wait_until(lambda: is_stopped(process.pid), 20, lambda: "it is stopped", every=0.01)
        assert not jvm.has_ended(context)
        context._jsc = None  # pyspark's own record, which needs no answer
        assert jvm.has_ended(context)
        process.kill()
        process.wait()
        context._jsc = SimpleNamespace(sc=ask)
        assert jvm.has_ended(context)


def test_what_is_said_while_the_jvm_does_not_stop_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    """Such as that the command gives up; and not what pyspark prints about a JVM that is gone."""
    begun, lets, ended = threading.Event(), threading.Event(), threading.Event()
    context = SimpleNamespace(_jsc="a JVM")

    def stop() -> None:
        begun.set()
        assert lets.wait(20)
        context._jsc = None
        assert ended.wait(20)
        sys.stderr.write("a trace\n")

    context.stop = stop

    def end() -> None:
        with jvm._stopping(context):
            ended.set()

    with ThreadPoolExecutor(1) as threads:
        ending = threads.submit(end)
        assert begun.wait(20)
        sys.stderr.write("it gives up\n")
        lets.set()
        ending.result(20)
    assert capsys.readouterr().err == "it gives up\n"
