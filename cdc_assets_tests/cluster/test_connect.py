"""A Spark Connect server whose executors are on other hosts: exact, or a clear error."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets_tests.cluster.site import Site, bare_python

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def remote(site: Site) -> Iterator[Site]:
    """The site by way of a server."""
    address = site.cluster.add_connect_server(site.network.head, site.properties["spark.pyspark.python"])
    yield replace(site, remote=address)
    site.cluster.kill("connect")


def test_snapshot_stream_and_incremental_snapshot_are_exact(remote: Site, tmp_path: Path) -> None:
    remote = remote.with_lake(tmp_path)
    with remote.read_by(1, 2):
        first = remote.capture()
        assert first.returncode == 0, first.stderr
    assert "2 tasks at once" in first.stderr
    assert "code shipped by this process" in first.stderr
    remote.exact()
    reads = remote.order_reads()
    remote.ask_for_orders()
    remote.shop.add_customers(4)
    with remote.read_by(1, 2):
        again = remote.capture()
        assert again.returncode == 0, again.stderr
    assert remote.order_reads() == 2 * reads
    remote.exact()


def test_executors_without_libraries_are_told(site: Site, tmp_path: Path) -> None:
    site.shop.add_customers(1)
    server = site.cluster.add_connect_server(site.network.head, bare_python(tmp_path / "bare"))
    try:
        done = replace(site, remote=server).capture()
    finally:
        site.cluster.kill("connect")
    assert (done.returncode, "cannot import numpy" in done.stderr) == (1, True), done.stderr
    assert site.capture().returncode == 0
    site.exact()


def test_server_that_goes_away_and_comes_back_costs_nothing(remote: Site) -> None:
    with remote.following():
        remote.shop.add_customers(2)
        remote.wait_for_customers()
        remote.cluster.kill("connect")
        remote.shop.add_customers(2)
        remote.wait_until_told("does not answer any more")
        python, port = remote.properties["spark.pyspark.python"], int(remote.remote.rpartition(":")[2])
        remote.cluster.add_connect_server(remote.network.head, python, port=port)
        remote.wait_until_read_by(1, 2)
    remote.exact()
