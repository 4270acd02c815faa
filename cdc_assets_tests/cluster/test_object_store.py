"""A cluster whose lake lies in an object store, which all of its hosts reach."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets_tests.cluster.site import Site
from cdc_assets_tests.object_store import SECRET, lake_properties, open_store

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def stored(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The site with a capture of its own, into a store."""
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    with open_store(site.network.head) as store:
        yield site.with_lake(tmp_path, **lake_properties(store))


def test_snapshot_and_stream_through_the_loss_of_a_worker_are_exact(stored: Site) -> None:
    with stored.read_by(1, 2):
        first = stored.capture()
        assert first.returncode == 0, first.stderr
    stored.exact()
    try:
        with stored.following():
            stored.shop.add_customers(10)
            with stored.read_by(1, 2):
                stored.wait_for_customers()
            stored.cluster.kill("worker2")
            stored.shop.add_customers(10)
            stored.wait_for_customers()
    finally:
        stored.add_worker(2)
    assert SECRET not in first.stderr + stored.told()
    stored.exact()
