"""The hosts that tests of clusters share."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest

from cdc_assets_tests.cluster.hosts import Forwarder, Network, why_not
from cdc_assets_tests.cluster.site import SLOW, Site, bare_python
from cdc_assets_tests.cluster.standalone import StandaloneCluster
from cdc_assets_tests.shop import open_shop


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A master on the head, and two workers with a core each."""
    if reason := why_not():
        pytest.fail(reason)
    folder = tmp_path_factory.mktemp("site")
    with Network(2) as network, network.entered(), open_shop(folder) as shop:
        forwarder = Forwarder(network.head, shop.server.port)
        cluster = StandaloneCluster(folder / "cluster", network.head)
        try:
            python = bare_python(folder / "python", Path(pyarrow.__file__).parents[1])
            conf = {
                "spark.pyspark.python": python,
                "spark.cdc.executor.timeout": f"{round(60 * SLOW)}s",
            }
            site = Site(network, cluster, shop, forwarder, folder, conf)
            site.write({})
            for number in (1, 2):
                site.add_worker(number)
            yield site
        finally:
            cluster.stop()
            forwarder.close()
