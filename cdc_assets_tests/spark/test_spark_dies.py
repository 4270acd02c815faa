"""Spark's JVM is killed, or is stopped: the run tells it and goes on with another one, or ends; nothing is lost or doubled."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from cdc_assets.adapters.spark.early import EARLY_ROWS
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.assembly.capture import open_capture
from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.shop import Shop, open_shop

pytestmark = [pytest.mark.spark, pytest.mark.jvms, pytest.mark.timeout(600)]
SECONDS = 120
"""Of a loaded machine."""
MANY = "dbo.customers a CROSS JOIN dbo.customers b CROSS JOIN dbo.customers c"
"""Rows enough to take more than `EARLY_ROWS` from: fewer may be read in the run's own process."""
COMMAND = [sys.executable, "-m", "cdc_assets.cli.main"]

_MISUSED = """
import os, signal, sys, threading, time
import dagster_pyspark
from pyspark import SparkContext
import cdc_assets
from cdc_assets.adapters.spark.failures import SparkTaskError
from cdc_assets.adapters.spark.session import stop_spark
from cdc_assets.core.interruption import Interrupted, limited
from cdc_assets.defs.spark import spark_of
from cdc_assets_tests.jobs import JOB

def kill():
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)

kind = getattr(cdc_assets, sys.argv[1], None) or getattr(dagster_pyspark, sys.argv[1])
runner = spark_of(kind(spark_config={"spark.master": "local[1]", "spark.ui.enabled": "false"})).runner()
print(runner.run(abs, [-1], JOB))
jvm = SparkContext._gateway.proc
if kind is cdc_assets.SparkResource:
    kill()
    jvm.wait()
else:
    threading.Timer(1, jvm.send_signal, [signal.SIGSTOP]).start()
    threading.Timer(4, jvm.send_signal, [signal.SIGCONT]).start()
    try:
        with limited(2):
            runner.run(time.sleep, [60], JOB)
    except Interrupted:
        print("ended", jvm.poll())
print(runner.run(abs, [-2], JOB), SparkContext._gateway.proc is jvm)
threading.Timer(1, kill).start()
try:
    runner.run(time.sleep, [60], JOB)
except SparkTaskError as error:
    print(error.retryable, str(error).partition(":")[0])
print(runner.run(abs, [-3], JOB))
stop_spark()
print(SparkContext._gateway)
"""

_EARLY = """
import sys
import psutil
from pyspark import SparkContext
from cdc_assets import SparkResource
from cdc_assets.adapters.spark.session import stop_spark
from cdc_assets_tests.jobs import JOB
from cdc_assets_tests.patience import wait_until

def jvm():
    return next((child for child in psutil.Process().children() if "java" in child.name()), None)

seen = {"process": jvm, "context": lambda: SparkContext._active_spark_context}
runner = SparkResource(spark_config={"spark.master": "local[1]", "spark.cdc.threads": "false"}).early_runner()
runner.get_ready()
wait_until(seen[sys.argv[1]], 60, lambda: "no JVM", every=0.01)
jvm().kill()
print(runner.run(abs, [-1, -2], JOB))
stop_spark()
"""


def ran(script: str, *arguments: str) -> list[str]:
    """What a process prints."""
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}  # a user's session has its own
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout.splitlines()


LOST = "True Spark's JVM at local[1] does not answer any more"


def test_next_job_of_the_process_starts_another_jvm() -> None:
    assert ran(_MISUSED, "SparkResource") == ["[1]", "[2] False", LOST, "[3]", "None"]


def test_jvm_of_others_is_not_killed_when_a_run_ends_while_it_is_stopped_and_asked_for_anew_when_it_dies() -> None:
    assert ran(_MISUSED, "PySparkResource") == ["[1]", "ended None", "[2] True", LOST, "[3]", "None"]


@pytest.mark.parametrize("moment", ["process", "context"])
def test_start_is_begun_again_if_the_jvm_is_killed_meanwhile(moment: str) -> None:
    assert ran(_EARLY, moment) == ["[1, 2]"]


_JOB = """
import sys
import dagster as dg
from pyspark import SparkContext
from cdc_assets import SparkResource, build_definitions
from cdc_assets.adapters.spark.session import stop_spark
from cdc_assets.defs.partitions import all_ranges, range_partitions

file, job = sys.argv[1:]
definitions = build_definitions(file, spark=SparkResource(master="local[2]", spark_config={"spark.cdc.threads": "false"}))
given = {}
if job == "shop_snapshot":
    given = dict(tags=dict(all_ranges(range_partitions(8))), run_config={"ops": {"shop_read_tables": {"config": {"due_only": True}}}})
done = definitions.resolve_job_def(job).execute_in_process(
    instance=dg.DagsterInstance.ephemeral(), raise_on_error=False, **given)
print("success", done.success, SparkContext._active_spark_context.appName.replace(done.run_id[:8], "RUN"))
stop_spark()
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as found:
        (tmp_path / "spark.conf").write_text("spark.master local[2]\nspark.cdc.threads false\n")
        found.write(
            {"errors.max.retries": "-1", "retriable.restart.connector.wait.ms": "300", "mirror.enabled": "true"}
        )
        yield found


@contextmanager
def running(shop: Shop, *arguments: str, command: Sequence[str] = COMMAND) -> Iterator[subprocess.Popen[bytes]]:
    """A command at work on the shop; what it says is in the file `said`."""
    environment = os.environ | shop.environment | {"CDC_SPARK_CONF": str(shop.folder / "spark.conf")}
    with (shop.folder / "said").open("wb") as said:
        process = subprocess.Popen([*command, *arguments], env=environment, stderr=said, stdout=said)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def capture_here(shop: Shop) -> None:
    """Bring all that is new into the lake, without Spark."""
    with open_capture(shop.config(), LocalRunner(2), lambda _: None) as capture:
        capture.snapshot()
        capture.stream()


def said(shop: Shop) -> str:
    """By the command."""
    return (shop.folder / "said").read_text()


def jvm_of(process: "subprocess.Popen[bytes]") -> psutil.Process | None:
    """The JVM of a process, if it has one."""
    children = psutil.Process(process.pid).children()
    return next((child for child in children if child.is_running() and "java" in child.name()), None)


def workers_of(jvm: psutil.Process) -> list[psutil.Process]:
    """Its Python processes."""
    found = []
    for child in jvm.children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            found += [child] if "pyspark.worker" in child.cmdline() else []
    return found


def kill_jvm(shop: Shop, process: "subprocess.Popen[bytes]", number: int = signal.SIGKILL) -> None:
    """Kill it once it is there."""
    wait_until(lambda: jvm_of(process) is not None, SECONDS, lambda: f"a JVM is there: {said(shop)}", every=0.05)
    found = jvm_of(process)
    assert found is not None
    found.send_signal(number)


def test_stream_reads_the_window_again_with_another_jvm(shop: Shop) -> None:
    with running(shop, "capture", "--follow") as process:
        wait_until(lambda: len(shop.view().state.tables) == 4, SECONDS, lambda: said(shop))
        for _ in range(2):
            shop.server.faults.hang(matching="cdc-assets: changes")
            shop.add_customers(30)
            wait_until(lambda: shop.server.faults.struck, SECONDS, lambda: f"a window is being read: {said(shop)}")
            kill_jvm(shop, process)
            shop.server.faults.clear()
            shop.server.faults.struck.clear()
            wait_until(lambda: not shop.differences(), SECONDS, lambda: f"it is read again: {said(shop)}")
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 130 or process.returncode == 0, said(shop)
    assert shop.doubled() == []
    assert "This is a bug" not in said(shop)
    assert "py4j" not in said(shop)


def mirror_jobs(shop: Shop) -> list[str]:
    """What Spark says of its jobs for the mirror of the large table, in its event log, which it writes as each begins."""
    lines = [line for file in (shop.folder / "events").iterdir() for line in file.read_text().splitlines()]
    begun = [line for line in lines if line.startswith('{"Event":"SparkListenerJobStart"')]
    return [line for line in begun if "mirror" in line and "customers" in line]


def test_mirrors_are_made_though_the_jvm_is_killed(shop: Shop) -> None:
    """While it folds rows that the command would not fold in its own process."""
    shop.write({"retriable.restart.connector.wait.ms": "300"})
    shop.execute(f"INSERT INTO dbo.customers (name) SELECT TOP ({3 * EARLY_ROWS}) a.name FROM {MANY}")
    with running(shop, "capture", "--local") as process:  # a server and a client of many rows share no interpreter
        assert process.wait(SECONDS) == 0, said(shop)
    shop.write({"retriable.restart.connector.wait.ms": "300", "mirror.enabled": "true"})
    (shop.folder / "events").mkdir()
    with (shop.folder / "spark.conf").open("a") as conf:
        log = {
            "enabled": "true",
            "dir": f"file://{shop.folder}/events",
            "rolling.enabled": "false",
            "compress": "false",
        }
        conf.writelines(f"spark.eventLog.{name} {value}\n" for name, value in log.items())
    with running(shop, "mirror") as process:
        wait_until(lambda: mirror_jobs(shop), SECONDS, lambda: said(shop), every=0.01)
        kill_jvm(shop, process)
        assert process.wait(SECONDS) == 0, said(shop)
    assert "does not answer any more" in said(shop), "a job was broken"
    assert "4 mirrors." in said(shop)


@pytest.mark.parametrize("which", ["the JVM", "the JVM between jobs", "a worker"])
def test_what_stands_still_is_told_and_a_run_can_be_ended(shop: Shop, which: str) -> None:
    with running(shop, "capture", "--follow") as process:
        wait_until(lambda: len(shop.view().state.tables) == 4, SECONDS, lambda: said(shop))
        jvm = jvm_of(process)
        assert jvm is not None
        if which == "the JVM between jobs":
            jvm.suspend()
            shop.add_customers(3)
        else:
            shop.server.faults.hang(matching="cdc-assets: changes")
            shop.add_customers(3)
            wait_until(lambda: shop.server.faults.struck, SECONDS, lambda: f"a window is being read: {said(shop)}")
        workers = workers_of(jvm)
        still = workers if which == "a worker" else [jvm]
        for one in still:
            one.suspend()
        wait_until(lambda: f"Process {still[0].pid} of Spark is stopped" in said(shop), 60, lambda: said(shop))
        asked = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)
        assert time.monotonic() - asked < 20
        _, left = psutil.wait_procs([jvm, *workers], SECONDS)
        assert not left
    capture_here(shop)
    assert (shop.differences(), shop.doubled()) == ({}, [])


@pytest.mark.parametrize("job", ["shop_snapshot", "shop_changes"])
def test_run_of_dagster_goes_on_with_another_jvm(shop: Shop, job: str) -> None:
    if job == "shop_changes":
        capture_here(shop)
        shop.execute(f"INSERT INTO dbo.customers (name) SELECT TOP ({EARLY_ROWS + 1}) a.name FROM {MANY}")
    statement = "changes" if job == "shop_changes" else "rows"
    shop.server.faults.hang(matching=f"cdc-assets: {statement}")
    with running(shop, str(shop.file), job, command=[sys.executable, "-c", _JOB]) as process:
        wait_until(lambda: shop.server.faults.struck, SECONDS, lambda: f"rows are being read: {said(shop)}")
        kill_jvm(shop, process)
        shop.server.faults.clear()
        assert process.wait(SECONDS) == 0, said(shop)
    assert f"success True cdc-assets {job} RUN" in said(shop)
    assert "does not answer any more" in said(shop)
    assert (shop.differences(), shop.doubled()) == ({}, [])
