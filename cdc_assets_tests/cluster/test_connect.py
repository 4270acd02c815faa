"""A Spark Connect server whose executors are on other hosts: exact, or a clear error."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets_tests.cluster.site import CAPTURE, Site, bare_python

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def capture(site: Site, remote: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A capture by way of the server."""
    environment = os.environ | site.shop.environment | {"CDC_SPARK_REMOTE": remote}
    return subprocess.run([*CAPTURE, *arguments], env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture
def server(site: Site) -> Iterator[str]:
    """Its address."""
    yield site.cluster.add_connect_server(site.network.head, site.properties["spark.pyspark.python"])
    site.cluster.kill("connect")


def test_snapshot_stream_and_incremental_snapshot_are_exact(site: Site, server: str) -> None:
    site.shop.add_customers(3)
    first = capture(site, server, "--table", "dbo.orders")
    assert first.returncode == 0, first.stderr
    assert "2 tasks at once" in first.stderr
    assert "code shipped by this process" in first.stderr
    site.exact()
    reads = site.order_reads()
    site.ask_for_orders()
    again = capture(site, server)
    assert again.returncode == 0, again.stderr
    assert site.order_reads() > reads
    site.exact()


def test_executors_without_libraries_are_told(site: Site, tmp_path: Path) -> None:
    site.shop.add_customers(1)
    server = site.cluster.add_connect_server(site.network.head, bare_python(tmp_path / "bare"))
    try:
        done = capture(site, server)
    finally:
        site.cluster.kill("connect")
    assert (done.returncode, "cannot import numpy" in done.stderr) == (1, True), done.stderr
    assert site.capture().returncode == 0
    site.exact()
