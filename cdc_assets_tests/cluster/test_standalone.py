"""A standalone cluster whose workers are on hosts of their own: exact, or a clear error within a minute."""

import re
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path

import pyspark
import pytest

from cdc_assets_tests.cluster.site import CAPTURE, SLOW, Site, bare_python

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_snapshot_stream_and_incremental_snapshot_are_exact(site: Site, tmp_path: Path) -> None:
    site = site.with_lake(tmp_path)
    with site.read_by(1, 2):
        first = site.capture()
        assert first.returncode == 0, first.stderr
    assert "2 tasks at once" in first.stderr
    assert "code shipped by this process" in first.stderr
    site.exact()
    reads = site.order_reads()
    site.ask_for_orders()
    site.shop.add_customers(4)
    with site.read_by(1, 2):
        again = site.capture()
        assert again.returncode == 0, again.stderr
    assert site.order_reads() == 2 * reads
    site.exact()


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"spark.pyspark.python": "{bare}"}, r"cannot import numpy .* cdc-assets\[tasks\]"),
        ({"spark.pyspark.python": "/no/such/python"}, "executors have no /no/such/python.*spark.pyspark.python"),
        ({"spark.driver.host": "127.0.0.1", "spark.cdc.executor.timeout": "40s"}, "No executor .* at 127.0.0.1:\\d+"),
        (
            {"spark.executor.extraJavaOptions": "-Xms2g", "spark.cdc.executor.timeout": "30s"},
            "executors end|No executor",
        ),
        ({"spark.executor.memory": "900g", "spark.cdc.executor.timeout": "20s"}, "no cores or memory free"),
    ],
    ids=["no-libraries", "no-python", "unreachable-driver", "executors-end", "full"],
)
def test_cluster_that_cannot_run_tasks_is_told_within_a_minute(
    site: Site, properties: dict[str, str], told: str, tmp_path: Path
) -> None:
    bare = bare_python(tmp_path / "bare")
    site.shop.add_customers(1)
    started = time.monotonic()
    done = site.capture(**{name: text.format(bare=bare) for name, text in properties.items()})
    assert done.returncode == 1
    assert re.search(told, done.stderr, re.DOTALL), done.stderr
    assert time.monotonic() - started < 60 * SLOW
    assert site.capture().returncode == 0
    site.exact()


def test_master_that_is_not_there_is_told_at_once(site: Site) -> None:
    site.shop.add_customers(1)
    environment = site.environment() | {"CDC_SPARK_MASTER": f"spark://{site.network.head}:1"}
    done = subprocess.run(CAPTURE, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "answers" in done.stderr) == (2, True), done.stderr


def test_lake_that_a_worker_does_not_share_is_told(site: Site) -> None:
    site.cluster.kill("worker2")
    site.add_worker(2, own_lake=True)
    try:
        site.shop.add_customers(40)
        done = site.capture()
        assert (done.returncode, "not shared between driver and executors" in done.stderr) == (1, True), done.stderr
    finally:
        site.cluster.kill("worker2")
        site.add_worker(2)
    assert site.capture().returncode == 0
    site.exact()


def test_cluster_of_processes_of_one_machine_is_exact(site: Site) -> None:
    site.shop.add_customers(3)
    work = Path(pyspark.__file__).parent / "work"  # Spark gives its workers no other place
    before = work.exists()
    try:
        environment = site.environment() | {"CDC_SPARK_MASTER": "local-cluster[2,1,1024]"}
        done = subprocess.run(CAPTURE, env=environment, capture_output=True, text=True, timeout=600)
    finally:
        if not before:
            shutil.rmtree(work, ignore_errors=True)
    assert (done.returncode, "2 tasks at once" in done.stderr) == (0, True), done.stderr
    site.exact()


@pytest.mark.parametrize("limit", [{"spark.dynamicAllocation.maxExecutors": "2"}, {}], ids=["limited", "unlimited"])
def test_executors_that_are_allocated_as_they_are_needed_do_the_work(site: Site, limit: dict[str, str]) -> None:
    site.shop.add_customers(10)
    dynamic = {"enabled": "true", "shuffleTracking.enabled": "true"}
    conf = {f"spark.dynamicAllocation.{name}": text for name, text in dynamic.items()}
    before = Counter(site.forwarder.sent)
    done = site.capture(**conf, **limit, **{"spark.executor.cores": "1"})
    assert (done.returncode, "2 tasks at once" in done.stderr) == (0, True), done.stderr
    read = site.forwarder.sent - before
    assert {site.network.address(1), site.network.address(2)} & read.keys(), "one alone, where the work is little"
    site.exact()
