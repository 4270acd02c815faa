"""A capture that begins in threads and goes on in Spark is as exact as one that does all in either."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets.adapters.spark.early import EarlyRunner
from cdc_assets.adapters.spark.settings import SparkSettings
from cdc_assets.assembly.capture import open_capture
from cdc_assets.defs.spark import SparkResource
from cdc_assets.run.log_levels import enable_info_logs
from cdc_assets_tests.shop import Shop, open_shop

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as found:
        found.add_customers(5)
        yield found


def exact(shop: Shop) -> bool:
    return shop.differences() == {} and shop.doubled() == []


def test_little_work_starts_no_java(shop: Shop, tmp_path: Path) -> None:
    java = tmp_path / "none"
    environment = (
        os.environ | shop.environment | {"JAVA_HOME": str(java), "CDC_SPARK_CONF": str(tmp_path / "spark.conf")}
    )
    (tmp_path / "spark.conf").write_text("")
    command = [sys.executable, "-m", "cdc_assets.cli.main", "capture"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Tasks run in this process; Spark is started when they have worked for 2 s" in done.stderr
    assert exact(shop)
    (tmp_path / "spark.conf").write_text("spark.cdc.threads false\n")
    shop.add_customers(1)
    alone = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert (alone.returncode, "a reachable Spark" in alone.stderr) == (2, True), alone.stderr


def test_work_that_grows_moves_to_spark(
    shop: Shop, spark_resource: SparkResource, caplog: pytest.LogCaptureFixture
) -> None:
    shop.write({"slices.per.window": "3", "snapshot.partitions": "4"})
    runner = EarlyRunner(SparkSettings("local[1]"), spark_resource.runner, start_after_s=0.0)
    enable_info_logs()
    with caplog.at_level(logging.INFO), open_capture(shop.config(), runner, lambda _: None) as capture:
        capture.snapshot()
        shop.add_customers(30)
        capture.stream()
        assert exact(shop)
        shop.add_customers(30)
        capture.stream()
    assert "Spark is started beside them" in caplog.text
    assert exact(shop)
