"""One Spark job per call, one task per item, errors with their class."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from cdc_assets.adapters.spark.failures import SparkTaskError
from cdc_assets.adapters.spark.runner import SparkTaskRunner
from cdc_assets.adapters.spark.session import LazySession
from cdc_assets.adapters.spark.settings import SparkSettings
from cdc_assets.core.capture_runner import CaptureRunner
from cdc_assets.core.interruption import Interrupted, limited, listening
from cdc_assets.core.jobs import Job
from cdc_assets.core.ran_on import RanOn
from cdc_assets.defs.spark import SparkResource
from cdc_assets.errors import ConfigurationError, ConnectionLostError
from cdc_assets_tests.jobs import JOB
from cdc_assets_tests.patience import wait_until

pytestmark = pytest.mark.spark


class UnpicklableError(Exception):
    """Holds something that no pickle takes."""

    def __init__(self) -> None:
        super().__init__("no way")
        self.lock = threading.Lock()


class Unreadable:
    """Is pickled and cannot be read again, like an error of a driver with arguments of its own."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("no number",)


class UnreadableError(Exception):
    """Holds such a thing."""

    def __init__(self) -> None:
        super().__init__("no way")
        self.cause = Unreadable()


class SlottedError(Exception):
    """Keeps a fact where the driver's new error cannot take it from."""

    __slots__ = ("place",)

    def __init__(self) -> None:
        super().__init__("no way")
        self.place = 1


def test_results_come_in_task_order(runner: SparkTaskRunner) -> None:
    assert runner.run(lambda task: task * task, range(7), JOB) == [0, 1, 4, 9, 16, 25, 36]


def test_small_job_runs_on_the_session_that_another_run_of_the_process_has_started(runner: SparkTaskRunner) -> None:
    runner.run(abs, [1], JOB)
    another = SparkResource(master="local[2]", spark_config={"spark.cdc.threads": "false"}).early_runner()
    assert another.run(lambda _: os.getpid(), [0], Job("window", rows=1)) != [os.getpid()]


class WithoutContext:
    """A session of Spark Connect, as far as a runner sees it."""

    def __init__(self, session: SparkSession) -> None:
        self.range, self.conf = session.range, session.conf
        self.addTag, self.removeTag = session.addTag, session.removeTag


def test_tasks_need_no_context(spark_resource: SparkResource) -> None:
    runner = SparkTaskRunner(lambda: cast(SparkSession, WithoutContext(spark_resource.spark_session)), lambda: 2)
    assert runner.run(lambda task: task * task, range(7), JOB) == [0, 1, 4, 9, 16, 25, 36]

    def fail(task: int) -> None:
        raise ConfigurationError("task", task, "another one", "change it")

    with pytest.raises(ConfigurationError, match="task 3 "):
        runner.run(fail, [3], JOB)


def test_a_session_of_somebody_else_may_speculate(spark_resource: SparkResource) -> None:
    ours = spark_resource.spark_session
    assert not SparkTaskRunner(lambda: ours, lambda: 2).may_start_twice

    class Connect:
        class conf:  # noqa: N801 - as Spark names it
            @staticmethod
            def get(name: str, default: str) -> str:
                return "true" if name == "spark.speculation" else default

    assert SparkTaskRunner(lambda: cast(SparkSession, Connect()), lambda: 2).may_start_twice


def test_no_tasks_start_no_session() -> None:
    def session() -> None:
        raise AssertionError("a session was asked for")

    assert SparkTaskRunner(session, lambda: 2).run(lambda task: task, [], JOB) == []


def test_tasks_run_in_parallel_in_worker_processes(runner: SparkTaskRunner) -> None:
    pids = runner.run(lambda _: os.getpid(), range(8), JOB)
    assert os.getpid() not in pids
    assert 1 <= len(set(pids)) <= 8


def test_each_task_says_where_it_ran(spark_resource: SparkResource) -> None:
    session, total = spark_resource.spark_session, RanOn()
    for shared in (
        spark_resource.runner(),
        SparkTaskRunner(lambda: cast(SparkSession, WithoutContext(session)), lambda: 2, address="sc://there"),
    ):
        runner = CaptureRunner(shared, "shop")
        runner.run(str, range(3), JOB)
        with pytest.raises(ConnectionLostError):
            runner.run(fail_always, range(2), JOB)
        ran = runner.account.of("window")
        assert (ran.jobs, ran.tasks, ran.here, ran.why) == (2, 5, 0, "")
        assert ran.application == session.sparkContext.applicationId
        total += ran
    assert total.spark == "sc://there"


def fail_always(_: int) -> None:
    raise ConnectionLostError("the server is gone")


def test_job_has_a_name_and_leaves_those_of_the_user_alone(spark_resource: SparkResource) -> None:
    context = spark_resource.spark_session.sparkContext
    runner = CaptureRunner(spark_resource.runner(), "bank")

    def users() -> list[str]:
        """A thread of the user's, which has a name of its own."""
        context.setJobGroup("mine", "my report")
        runner.run(str, [1, 2], Job("window", "7: dbo.orders"))
        return [context.getLocalProperty(f"spark.{name}") or "" for name in ("jobGroup.id", "job.description")]

    runner.run(str, [1], Job("mirror", "folded: bank.dbo.orders"))
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(users).result() == ["mine", "my report"]
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    named = {
        group: [store.job(number).description().get() for number in tracker.getJobIdsForGroup(group)]
        for group in ("bank window", "bank mirror", "mine")
    }
    assert named == {
        "bank window": ["bank: window 7: dbo.orders"],
        "bank mirror": ["bank: mirror folded: bank.dbo.orders"],
        "mine": [],
    }


def test_collector_of_a_worker_passes_over_what_tasks_import(runner: SparkTaskRunner) -> None:
    """Spark's daemon collects garbage after each task, which takes time for each object that is looked at."""
    runner.run(lambda _: None, range(8), JOB)
    runner.run(lambda _: len(import_module("dagster").__name__), range(8), JOB)
    looked_at = runner.run(lambda _: len(gc.get_objects()), range(8), JOB)
    assert max(looked_at) < 20_000, looked_at


def test_error_keeps_class_attributes_and_message(runner: SparkTaskRunner) -> None:
    def fail(task: int) -> None:
        if task == 1:
            raise ConfigurationError("colour", "blu", "red or blue", "correct it")

    with pytest.raises(ConfigurationError, match=r"colour 'blu' is not valid: expected red or blue") as caught:
        runner.run(fail, [0, 1, 2], JOB)
    assert caught.value.hint == "correct it"
    assert "in fail" in caught.value.__notes__[0]


def test_first_error_in_task_order_wins(runner: SparkTaskRunner) -> None:
    def fail(task: int) -> None:
        raise ConfigurationError("task", task, "another one", "change it")

    with pytest.raises(ConfigurationError, match="task 3 "):
        runner.run(fail, [3, 1, 2], JOB)


@pytest.mark.parametrize("kind", [UnpicklableError, UnreadableError, SlottedError])
def test_error_that_no_pickle_takes_or_gives_back_travels_as_text(
    runner: SparkTaskRunner, kind: type[UnpicklableError | UnreadableError | SlottedError]
) -> None:
    def fail(_: int) -> None:
        raise kind

    with pytest.raises(RuntimeError, match=f"{kind.__name__}: no way"):
        runner.run(fail, [0], JOB)


def test_retryable_error_is_raised_as_it_is_after_one_attempt(runner: SparkTaskRunner, tmp_path: Path) -> None:
    def fail(directory: str) -> None:
        (Path(directory) / str(time.monotonic_ns())).touch()
        raise ConnectionLostError("the server is gone")

    with pytest.raises(ConnectionLostError, match="the server is gone"):
        runner.run(fail, [str(tmp_path)], JOB)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_killed_worker_is_a_retryable_error_and_the_session_continues(runner: SparkTaskRunner) -> None:
    def die(_: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(SparkTaskError, match="Python worker exited unexpectedly") as caught:
        runner.run(die, [0], JOB)
    assert caught.value.retryable
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__, "no page of Java in a log that shows causes"
    assert runner.run(lambda task: task + 1, [1], JOB) == [2]


def test_jobs_of_a_run_that_is_asked_to_end_are_cancelled(runner: SparkTaskRunner, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def read_on(_: int) -> None:
        begun.touch()
        time.sleep(60)

    def end_once_it_reads() -> None:
        while not begun.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    started = time.monotonic()
    threading.Thread(target=end_once_it_reads).start()
    with pytest.raises(Interrupted), listening():
        runner.run(read_on, [0, 1], JOB)
    assert time.monotonic() - started < 30
    assert runner.run(lambda task: task + 1, [1], JOB) == [2]


def test_jobs_of_others_in_the_session_go_on(
    runner: SparkTaskRunner, spark_resource: SparkResource, tmp_path: Path
) -> None:
    begun, running, ended = (tmp_path / name for name in ("begun", "running", "ended"))
    outcome: list[int] = []

    def wait_for_the_end(number: int) -> int:
        begun.touch()
        while not ended.exists():
            time.sleep(0.05)
        return number

    def of_a_user() -> None:
        outcome.extend(spark_resource.spark_context.parallelize([7], 1).map(wait_for_the_end).collect())

    def read_on(_: int) -> None:
        running.touch()
        time.sleep(60)

    def end_once_it_runs() -> None:
        while not running.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threads = [threading.Thread(target=of_a_user), threading.Thread(target=end_once_it_runs)]
    threads[0].start()
    wait_until(begun.exists, 60, lambda: "the user's job runs", every=0.05)
    threads[1].start()
    with pytest.raises(Interrupted), listening():
        runner.run(read_on, [0, 1], JOB)
    with pytest.raises(Interrupted), limited(1):
        runner.run(lambda _: time.sleep(60), [0], JOB)
    assert not outcome
    ended.touch()
    for thread in threads:
        thread.join(30)
    assert outcome == [7]


def test_large_tasks_and_results_pass(runner: SparkTaskRunner) -> None:
    blob = bytes(3_000_000)
    assert [len(result) for result in runner.run(lambda task: task + b"!", [blob, blob], JOB)] == [3_000_001] * 2


@pytest.mark.parametrize(("master", "expected"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2)])
def test_parallelism_of_a_local_master_needs_no_session(master: str, expected: int) -> None:
    assert SparkResource(master=master).parallelism() == expected


def test_own_properties_win_and_connect_gets_only_session_properties() -> None:
    local = SparkResource(spark_config={"spark.sql.shuffle.partitions": 9}).properties()
    assert local["spark.sql.shuffle.partitions"] == "9"
    assert local["spark.sql.session.timeZone"] == "UTC"
    connect = SparkResource(remote="sc://somewhere:15002", spark_config={"spark.executor.memory": "2g"}).properties()
    assert connect
    assert all(name.startswith("spark.sql.") for name in connect)


@pytest.mark.long
def test_pages_are_served_by_clusters_and_by_a_local_spark_that_is_asked_to() -> None:
    name = "spark.ui.enabled"
    assert SparkResource(master="local[2]").properties()[name] == "false"
    assert SparkResource(master="local[2]", spark_config={name: "true"}).properties()[name] == "true"
    assert name not in SparkResource(master="spark://head:7077").properties()
    command = [sys.executable, "-c", "from resources.definitions import PAGES; print(PAGES)"]
    under_dev = {**os.environ, "DAGSTER_IS_DEV_CLI": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=under_dev)
    assert done.stdout.strip() == str({name: "true"})


@pytest.mark.parametrize(
    ("start", "options"),
    [
        (lambda: LazySession(SparkSettings("local[1]")).runner().run(str, [1], JOB), "-XX:TieredStopAtLevel=1"),
        (lambda: SparkResource(master="local[1]").runner().run(str, [1], JOB), "-XX:Tier4InvocationThreshold=50000"),
        (lambda: SparkResource(master="local[1]").spark_session, ""),
    ],
    ids=["of a command", "shared", "of a user"],
)
def test_only_a_session_that_nobody_else_gets_is_without_a_compiler(
    start: Callable[[], object], options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def made(session: LazySession, *java: str) -> None:
        asked.append(session.properties(*java)["spark.driver.extraJavaOptions"])
        raise InterruptedError

    monkeypatch.setattr(LazySession, "session", made)
    with pytest.raises(InterruptedError):
        start()
    found = [option for option in asked[0].split() if "Tiered" in option or "Tier4Invocation" in option]
    assert found == list(filter(None, [options]))


_BAD_WEATHER = """
import os, signal, time
before = dict(os.environ)
from urllib.request import urlopen
from pyspark import SparkContext
from pyspark.sql.functions import udf
from cdc_assets.adapters.spark.failures import SparkTaskError
from cdc_assets.adapters.spark.session import stop_spark
from cdc_assets.core.capture_runner import CaptureRunner
from cdc_assets.defs.spark import SparkResource
from cdc_assets_tests.jobs import JOB
from cdc_assets_tests.patience import wait_until

resource = SparkResource(master="local[2]", spark_config={"spark.ui.enabled": "true"})
runner = resource.runner()
try:
    runner.run(lambda _: os.kill(os.getpid(), signal.SIGKILL), [1], JOB)
except SparkTaskError as error:
    print(error)
job = CaptureRunner(runner, "shop")
print(job.run(abs, [-1], JOB), urlopen(job.account.of("window").pages, timeout=60).status)

wide = udf(lambda number: "x" * 10_000, "string", useArrow=False).asNondeterministic()
print(len(resource.spark_session.range(0, 20_000, 1, 2).select(wide("id")).take(1)))
time.sleep(1)

beans = SparkContext._jvm.java.lang.management.ManagementFactory
given = beans.getRuntimeMXBean().getInputArguments()
print("-XX:Tier4InvocationThreshold=50000" in given, SparkContext._jvm.System.getenv("SPARK_LOCAL_IP"))
SparkContext._active_spark_context._jsc.sc().stop()  # as when a cluster's master ends the application
print(runner.run(abs, [-2], JOB))
stop_spark()
of_pyspark = ("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")  # which it sets itself, and leaves
print({name: text for name, text in os.environ.items() if before.get(name) != text and name not in of_pyspark})
"""


@pytest.mark.jvms
def test_worker_or_session_that_ends_is_told_in_a_line_and_made_anew_and_the_environment_is_left() -> None:
    """With `spark.python.daemon.module` at Spark's own value the worker whose reader has enough tells of a `BrokenPipeError`."""
    environment = {name: os.environ[name] for name in os.environ if name not in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON")}
    command = [sys.executable, "-c", _BAD_WEATHER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment)
    assert done.returncode == 0, done.stderr[-5000:]
    told, *others = done.stdout.splitlines()
    assert told.startswith("A Spark job at local[2] broke: Python worker exited unexpectedly (crashed). Next: ")
    assert others == ["[1] 200", "1", "True 127.0.0.1", "[2]", "{}"]
    assert "BrokenPipeError" not in done.stderr
    assert not [line for line in done.stderr.splitlines() if "ERROR" in line or line.startswith("\tat ")], done.stderr
