"""A capture on a cluster whose executor is a process of its own, by the command line and its configuration."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_assets_tests.cluster.standalone import StandaloneCluster
from cdc_assets_tests.shop import open_shop

pytestmark = [pytest.mark.spark, pytest.mark.jvms, pytest.mark.timeout(900)]

CAPTURE = [sys.executable, "-m", "cdc_assets.cli.main", "capture"]


def executors_of_tasks(log: Path) -> list[str]:
    """Who ran each task, by Spark's own record."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return [event["Task Info"]["Executor ID"] for event in events if event["Event"] == "SparkListenerTaskEnd"]


def test_capture_on_an_executor_of_its_own_is_exact(tmp_path: Path) -> None:
    cluster = StandaloneCluster(tmp_path / "cluster", "127.0.0.1")
    try:
        cluster.add_worker("worker", "127.0.0.1", cores=2)
        with open_shop(tmp_path) as shop:
            shop.add_customers(3)
            conf = tmp_path / "spark.conf"
            log = tmp_path / "log"
            log.mkdir()
            conf.write_text(
                f"spark.master {cluster.address}\nspark.cdc.executor.timeout 5m\n"
                f"spark.eventLog.enabled true\nspark.eventLog.dir {log.as_uri()}\n"
                "spark.eventLog.compress false\nspark.eventLog.rolling.enabled false\n"
            )
            environment = os.environ | shop.environment | {"CDC_SPARK_CONF": str(conf)}
            done = subprocess.run(CAPTURE, env=environment, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stderr
            assert "2 tasks at once" in done.stderr
            assert "code shipped by this process" in done.stderr
            assert shop.differences() == {}
            assert shop.doubled() == []
            executors = executors_of_tasks(*log.iterdir())
            assert "driver" not in executors
            assert len(executors) > 1 + 2 + 2, "more than were asked what they have"
    finally:
        cluster.stop()
