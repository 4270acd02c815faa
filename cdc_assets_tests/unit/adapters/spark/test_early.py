"""Every job over rows runs on Spark; a small one in this process until the session is there."""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark import SparkContext

from cdc_assets.adapters.spark import early
from cdc_assets.adapters.spark.early import EARLY_ROWS, EarlyRunner
from cdc_assets.adapters.spark.session import LazySession
from cdc_assets.adapters.spark.settings import SparkSettings, spark_settings
from cdc_assets.core.interruption import Interrupted
from cdc_assets.core.jobs import Job
from cdc_assets.core.ports import TaskRunner
from cdc_assets.errors import ConfigurationError, ConnectionLostError
from cdc_assets_tests.jobs import JOB
from cdc_assets_tests.patience import wait_until

LOCAL, CLUSTER, CONNECT = (
    SparkSettings("local[2]"),
    SparkSettings("spark://head:7077"),
    SparkSettings(remote="sc://head"),
)
SMALL, LARGE = Job("window", rows=EARLY_ROWS), Job("window", rows=EARLY_ROWS + 1)


class FakeSpark:
    """A Spark that notes the jobs that it is given, and whose session is there when it is let."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.may_start_twice, self.parallelism = False, 2
        self.jobs, self.threads = list[tuple[str, list[Any]]](), set[str]()
        self.session = threading.Event()
        self._error = error

    def get_ready(self) -> None:
        pass

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any], job: Job) -> list[Any]:
        self.threads.add(threading.current_thread().name)
        assert self.session.wait(20)
        if self._error:
            raise self._error
        self.jobs.append((job.kind, list(tasks)))
        return [function(task) for task in tasks]

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.jobs]


def started(settings: SparkSettings = LOCAL) -> tuple[EarlyRunner, FakeSpark]:
    """A runner and its Spark, whose session is there."""
    spark = FakeSpark()
    spark.session.set()
    return EarlyRunner(settings, lambda: spark), spark


def join_start() -> None:
    for thread in threading.enumerate():
        if thread.name == "spark-start":
            thread.join(20)


def no_spark() -> TaskRunner:
    raise AssertionError("Spark was asked for")


def square(task: int) -> int:
    return task * task


def test_small_job_does_not_wait_for_the_session_and_later_ones_run_on_it() -> None:
    spark = FakeSpark()
    runner = EarlyRunner(LOCAL, lambda: spark)
    assert runner.run(square, [3], SMALL) == [9]
    assert spark.jobs == []
    spark.session.set()
    assert runner.run(square, [1, 2], JOB) == [1, 4]
    assert runner.run(square, [3], SMALL) == [9]
    assert spark.jobs == [("start", [0, 1]), (JOB.kind, [1, 2]), ("window", [3])]


@pytest.mark.parametrize(
    ("settings", "tasks", "job"),
    [
        (LOCAL, [1, 2], SMALL),
        (LOCAL, [1], LARGE),
        (LOCAL, [1], Job("snapshot")),
        (CLUSTER, [1], SMALL),
        (CONNECT, [1], SMALL),
    ],
)
def test_whatever_else_comes_first_waits_for_the_session(settings: SparkSettings, tasks: list[int], job: Job) -> None:
    runner, spark = started(settings)
    runner.run(square, tasks, job)
    assert spark.jobs == [("start", [0, 1]), (job.kind, tasks)]


def test_session_that_somebody_else_has_started_takes_small_jobs_too() -> None:
    spark = FakeSpark()
    spark.session.set()
    runner = EarlyRunner(LOCAL, lambda: spark, lambda: True)
    runner.run(square, [1], SMALL)
    assert spark.kinds == ["start", "window"]


def test_session_is_started_by_the_next_job_of_a_process_that_had_no_thread_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    runner, spark = started()
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            runner.get_ready()
    done = threading.Thread(target=runner.run, args=(square, [1, 2], JOB), daemon=True)
    done.start()
    done.join(20)
    assert spark.kinds == ["start", JOB.kind]


def test_session_starts_once_beside_other_work() -> None:
    spark = FakeSpark()
    runner = EarlyRunner(CLUSTER, lambda: spark)
    runner.get_ready()
    runner.get_ready()
    spark.session.set()
    runner.run(square, [1], JOB)
    runner.get_ready()
    assert spark.kinds == ["start", JOB.kind]
    assert spark.threads == {"spark-start", threading.current_thread().name}


def test_runner_is_not_kept_because_it_has_begun_a_start() -> None:
    """A process that makes one for each of its runs would hold all of them, with what they hold."""
    runner, _ = started()
    runner.get_ready()
    join_start()
    known = weakref.ref(runner)
    del runner
    gc.collect()
    assert known() is None


_ENDS_AT_ONCE = """
import sys
from pathlib import Path
from cdc_assets.adapters.spark.session import LazySession
from cdc_assets.adapters.spark.settings import SparkSettings
from cdc_assets_tests.patience import wait_until

session = LazySession(SparkSettings("local[1]"))
session.early_runner().get_ready()
wait_until(Path(sys.argv[1]).exists, 60, lambda: "Java is called", every=0.01)
"""


def is_there(number: int) -> bool:
    found = (one.info["status"] for one in psutil.process_iter(["status"]) if one.pid == number)
    return next(found, psutil.STATUS_ZOMBIE) != psutil.STATUS_ZOMBIE


def test_start_that_is_under_way_ends_with_the_process(tmp_path: Path) -> None:
    called, java = tmp_path / "called", tmp_path / "bin/java"
    java.parent.mkdir()
    ends_unheard = "while echo; do sleep 0.1; done"  # as the one does that finds the options of the JVM
    java.write_text(f"#!/bin/sh\necho $$ > {called}.new; mv {called}.new {called}\n{ends_unheard}\n")
    java.chmod(0o755)
    environment = os.environ | {"JAVA_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", _ENDS_AT_ONCE, called], env=environment, timeout=120, check=True)
    number = int(called.read_text())
    try:
        wait_until(lambda: not is_there(number), 20, lambda: "it has ended", every=0.05)
    finally:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def test_nothing_to_do_starts_no_session() -> None:
    assert EarlyRunner(LOCAL, no_spark).run(square, [], JOB) == []
    assert EarlyRunner(LOCAL, no_spark).parallelism == 2
    assert not EarlyRunner(LOCAL, no_spark).may_start_twice
    assert not EarlyRunner(LOCAL, no_spark).end_start()


def test_what_a_cluster_offers_is_known_by_its_session() -> None:
    for settings in (CLUSTER, CONNECT):
        runner, spark = started(settings)
        assert runner.parallelism == 2
        assert not runner.may_start_twice
        assert spark.kinds == ["start"]


@pytest.mark.parametrize("master", ["local[2]", "spark://head:7077"])
def test_settings_may_leave_spark_out(master: str) -> None:
    settings = spark_settings(master, config={"spark.cdc.threads": "true"}, environment={})
    assert settings.config == {}
    runner = EarlyRunner(settings, no_spark)
    runner.get_ready()
    assert runner.run(square, range(4), JOB) == [0, 1, 4, 9]
    assert runner.parallelism >= 1
    assert not runner.may_start_twice


def test_spark_is_the_default() -> None:
    assert not spark_settings(environment={}).threads
    with pytest.raises(ConfigurationError, match="true or false"):
        spark_settings(config={"spark.cdc.threads": "some"}, environment={})


def test_start_that_fails_is_the_error_of_the_next_job_however_small_and_is_then_repeated() -> None:
    spark = FakeSpark(ConfigurationError("Spark session", "local[2]", "a reachable Spark", "check Java"))
    runner = EarlyRunner(LOCAL, lambda: spark)
    assert runner.run(square, [1], SMALL) == [1]
    spark.session.set()
    for job in (JOB, SMALL, SMALL):
        with pytest.raises(ConfigurationError, match="check Java"):
            runner.run(square, [1], job)
    spark._error = None
    assert runner.run(square, [2], SMALL) == [4]
    assert spark.kinds == ["window"]


def test_start_that_fails_is_told_if_no_job_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    spark = FakeSpark(ConfigurationError("Spark session", "local[2]", "a reachable Spark", "check Java"))
    runner = EarlyRunner(LOCAL, lambda: spark)
    runner.get_ready()
    spark.session.set()
    join_start()
    assert "Spark has not started, and the next job fails too" in caplog.text


def test_start_that_a_run_which_was_asked_to_end_interrupts_is_begun_anew_by_the_next_run() -> None:
    spark = FakeSpark(Interrupted())
    spark.session.set()
    runner = EarlyRunner(CLUSTER, lambda: spark)
    with pytest.raises(Interrupted):
        runner.run(square, [1], JOB)
    spark._error = None
    assert runner.run(square, [2], JOB) == [4]
    assert spark.kinds == ["start", JOB.kind]


def test_start_that_is_interrupted_while_nobody_waits_is_no_request_to_end_a_later_run() -> None:
    spark = FakeSpark(Interrupted())
    runner = EarlyRunner(LOCAL, lambda: spark)
    runner.get_ready()
    spark.session.set()
    join_start()
    spark._error = None
    assert runner.run(square, [2], LARGE) == [4]


@pytest.mark.parametrize(
    ("settings", "cause"),
    [(CLUSTER, "it has a place for an application"), (LOCAL, "this machine is busy")],
)
def test_job_that_waits_long_for_the_session_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, settings: SparkSettings, cause: str
) -> None:
    monkeypatch.setattr(early, "_WARN_AFTER_S", 0.01)
    spark = FakeSpark()
    runner = EarlyRunner(settings, lambda: spark)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(runner.run, square, [2], JOB)
        said = f"Spark at {settings.address} has not started"
        wait_until(lambda: said in caplog.text, 20, lambda: caplog.text, 0.01)
        assert cause in caplog.text
        spark.session.set()
        assert waiting.result(20) == [4]


def test_session_that_dies_is_an_error_and_nothing_goes_on_here() -> None:
    runner, spark = started()
    runner.run(square, [1, 2], JOB)
    spark._error = ConnectionLostError("gone")
    with pytest.raises(ConnectionLostError, match="gone"):
        runner.run(square, [1], SMALL)


def test_nobody_waits_for_the_lock_that_pyspark_holds_while_a_session_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, arrived = threading.Event(), threading.Event()

    def made(session: LazySession, *java: str) -> None:
        with SparkContext._lock:
            begun.set()
            arrived.wait(20)

    monkeypatch.setattr(LazySession, "session", made)
    runner = LazySession(LOCAL).early_runner()
    runner.get_ready()
    assert begun.wait(20)
    assert runner.run(square, [3], SMALL) == [9]
    assert runner.end_start()
    arrived.set()


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("cdc_assets.cli.main", {"pyarrow", "deltalake", "pyodbc"}),
        ("cdc_assets.cli.capture", {"pyspark", "py4j", "dagster", "mssql_standin", "pandas"}),
        ("cdc_assets.defs.build", {"cdc_assets.cli", "mssql_standin", "pyarrow.dataset", "pandas"}),
    ],
)
def test_process_imports_what_it_needs_alone(module: str, unwanted: set[str]) -> None:
    code = f"import sys, {module}; print(*({unwanted!r} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
