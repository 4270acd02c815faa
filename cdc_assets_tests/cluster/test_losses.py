"""Workers and drivers that are lost while a capture follows the log: nothing is lost with them, and nothing doubled."""

import signal
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from cdc_assets_tests.cluster.site import SLOW, Site
from cdc_assets_tests.patience import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture(params=["standalone", "connect"])
def any_site(site: Site, request: pytest.FixtureRequest) -> Iterator[Site]:
    """The site, and the site by way of a Connect server."""
    if request.param == "standalone":
        yield site
        return
    address = site.cluster.add_connect_server(site.network.head, site.properties["spark.pyspark.python"])
    yield replace(site, remote=address)
    site.cluster.kill("connect")


def executors(site: Site) -> list[psutil.Process]:
    """Processes of executors and of their Python workers."""
    names = ("CoarseGrainedExecutorBackend", "cdc_assets.adapters.spark.daemon")
    found = [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"]]
    mine = [process for process in found if any(name in " ".join(process.info["cmdline"]) for name in names)]
    return [process for process in mine if str(site.folder) in " ".join(process.info["cmdline"])]


@pytest.mark.parametrize("loss", ["killed", "cut off"])
def test_worker_that_is_lost_in_a_stream_costs_nothing(any_site: Site, loss: str) -> None:
    site = any_site
    try:
        with site.following():
            site.shop.add_customers(10)
            with site.read_by(1, 2):
                site.wait_for_customers()
            for number in range(40):
                site.shop.add_customers(2)
                if number == 5 and loss == "killed":
                    site.cluster.kill("worker2")
                elif number == 5:
                    site.network.connect(2, False)
            site.wait_for_customers()
    finally:
        site.network.connect(2, True)
        if loss == "killed":
            site.add_worker(2)
    site.exact()


def test_stream_without_any_worker_says_so_and_goes_on_when_they_are_back(any_site: Site) -> None:
    site = any_site
    with site.following(**{"spark.cdc.executor.timeout": f"{round(15 * SLOW)}s"}):
        site.shop.add_customers(10)
        site.wait_for_customers()
        try:
            for number in (1, 2):
                site.cluster.kill(f"worker{number}")
            site.shop.add_customers(2)
            site.wait_until_told("ran no task" if site.remote else "has lost its executors")
        finally:
            for number in (1, 2):
                site.add_worker(number)
        site.wait_for_customers()
    site.exact()


def test_driver_that_is_killed_leaves_no_executor_behind(site: Site) -> None:
    with site.following(-signal.SIGKILL) as following:
        site.shop.add_customers(10)
        with site.read_by(1, 2):
            site.wait_for_customers()
        assert executors(site)
        site.shop.add_customers(5)
        following.kill()
    wait_until(lambda: not executors(site), 30 * SLOW, lambda: executors(site))
    assert site.capture().returncode == 0
    site.exact()
