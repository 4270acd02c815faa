"""Threads first, Spark when there is work enough; the same results whoever runs what."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cdc_assets.adapters.spark.early import EarlyRunner
from cdc_assets.adapters.spark.settings import SparkSettings, spark_settings
from cdc_assets.core.jobs import Job
from cdc_assets.core.ports import TaskRunner
from cdc_assets.errors import ConfigurationError, ConnectionLostError
from cdc_assets_tests.jobs import JOB

LOCAL, CLUSTER = SparkSettings("local[2]"), SparkSettings("spark://head:7077")


class FakeSpark:
    """A Spark that counts what it is given; its first job takes as long as a session needs."""

    def __init__(self, start_s: float = 0.0, error: Exception | None = None) -> None:
        self.may_start_twice = False
        self.parallelism, self.jobs = 2, list[list[Any]]()
        self._start_s, self._error = start_s, error

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any], job: Job) -> list[Any]:
        if not self.jobs:
            time.sleep(self._start_s)
        self.jobs.append(list(tasks))
        if self._error:
            raise self._error
        with ThreadPoolExecutor(self.parallelism) as pool:
            return list(pool.map(function, tasks))


def no_spark() -> TaskRunner:
    raise AssertionError("Spark was asked for")


def slow(task: int) -> int:
    time.sleep(0.1)
    return task * task


def test_little_work_needs_no_spark(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for settings in (LOCAL, CLUSTER):
            assert EarlyRunner(settings, no_spark).run(slow, [3], JOB) == [9]
        assert EarlyRunner(LOCAL, no_spark).run(slow, range(5), JOB) == [0, 1, 4, 9, 16]
        assert EarlyRunner(LOCAL, no_spark).run(slow, [], JOB) == []
    assert "Tasks run in this process; Spark is started when they have worked for 2 s" in caplog.text
    assert "Spark is started when a job has several tasks" in caplog.text


def test_what_waits_goes_to_spark_when_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    spark, own = FakeSpark(start_s=0.3), set[str]()

    def task(number: int) -> int:
        own.add(threading.current_thread().name)
        return slow(number)

    runner = EarlyRunner(LOCAL, lambda: spark, start_after_s=0.25)
    with caplog.at_level(logging.INFO):
        assert runner.run(task, range(30), JOB) == [number * number for number in range(30)]
    begin, rest = spark.jobs
    assert begin == [0, 1]
    assert 4 < len(rest) < 26  # some were done before Spark was asked for and while it started
    assert rest == list(range(30))[-len(rest) :]
    assert "of work in threads: Spark is started beside them" in caplog.text
    assert f"Spark takes over: {len(rest)} tasks go to it" in caplog.text
    runner.run(task, range(4), JOB)
    assert spark.jobs[2:] == [[0, 1, 2, 3]]


def test_work_of_jobs_adds_up_unless_they_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = FakeSpark()
    runner = EarlyRunner(LOCAL, lambda: spark, start_after_s=0.5)
    for _ in range(8):
        runner.run(slow, [1, 2], JOB)
    assert spark.jobs
    rests = EarlyRunner(LOCAL, no_spark, start_after_s=0.5)
    monkeypatch.setattr("cdc_assets.adapters.spark.early._FORGET_S", 0.0)
    for _ in range(8):
        rests.run(slow, [1, 2], JOB)
        time.sleep(0.01)


def test_several_tasks_are_what_a_cluster_is_there_for() -> None:
    spark = FakeSpark()
    runner = EarlyRunner(CLUSTER, lambda: spark)
    runner.run(slow, [1, 2], JOB)
    runner.run(slow, [3], JOB)
    assert spark.jobs == [[1, 2], [3]]


def test_nothing_is_done_here_if_the_settings_say_so() -> None:
    spark = FakeSpark()
    settings = spark_settings("local[2]", config={"spark.cdc.threads": "false"}, environment={})
    assert settings.config == {}
    EarlyRunner(settings, lambda: spark).run(slow, [1], JOB)
    assert spark.jobs == [[1]]
    with pytest.raises(ConfigurationError, match="true or false"):
        spark_settings(config={"spark.cdc.threads": "some"}, environment={})


def test_tasks_that_wait_for_one_another_meet() -> None:
    barrier = threading.Barrier(2, timeout=20)
    assert EarlyRunner(LOCAL, FakeSpark, start_after_s=0.0).run(lambda _: barrier.wait() >= 0, [1, 2], JOB) == [
        True,
        True,
    ]


@pytest.mark.parametrize("start_after_s", [0.0, 60.0])
def test_first_error_is_raised_after_the_others_have_stopped(start_after_s: float) -> None:
    begun, ended = list[int](), list[int]()

    def task(number: int) -> None:
        begun.append(number)
        slow(number)
        ended.append(number)
        if number == 1:
            raise ConnectionLostError("gone")

    with pytest.raises(ConnectionLostError, match="gone"):
        EarlyRunner(LOCAL, lambda: FakeSpark(start_s=0.3), start_after_s).run(task, range(50), JOB)
    assert sorted(begun) == sorted(ended)
    assert len(begun) < 50


def test_spark_that_cannot_be_started_is_reported() -> None:
    spark = FakeSpark(error=ConfigurationError("Spark session", "local[2]", "a reachable Spark", "check Java"))
    with pytest.raises(ConfigurationError, match="check Java"):
        EarlyRunner(LOCAL, lambda: spark, start_after_s=0.1).run(slow, range(40), JOB)


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("cdc_assets.cli.main", {"pyarrow", "deltalake", "pyodbc"}),
        ("cdc_assets.cli.capture", {"pyspark", "py4j", "dagster", "cdc_assets.standin", "pandas"}),
        ("cdc_assets.defs.build", {"cdc_assets.cli", "cdc_assets.standin", "pyarrow.dataset", "pandas"}),
    ],
)
def test_process_imports_what_it_needs_alone(module: str, unwanted: set[str]) -> None:
    code = f"import sys, {module}; print(*({unwanted!r} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""
