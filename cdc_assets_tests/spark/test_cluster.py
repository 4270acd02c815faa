"""A capture on a cluster of two executors in processes of their own, by the command line and its configuration."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_assets_tests.shop import open_shop

pytestmark = pytest.mark.spark

CAPTURE = [sys.executable, "-m", "cdc_assets.cli.main", "capture"]
MASTER = {"CDC_SPARK_MASTER": "local-cluster[2,1,1024]"}


def test_capture_on_executors_of_their_own_is_exact(tmp_path: Path) -> None:
    with open_shop(tmp_path) as shop:
        shop.add_customers(3)
        environment = os.environ | shop.environment | MASTER
        done = subprocess.run(CAPTURE, env=environment, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr
        assert "code shipped by this process" in done.stderr
        assert shop.differences() == {}
        assert shop.doubled() == []
