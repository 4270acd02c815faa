"""A shop and a Dagster instance of its own for each module."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from cdc_assets.defs import failures, watch
from cdc_assets_tests.shop import Shop, open_shop

HERE = Path(__file__).parent
NESTED_RESOURCES = "ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning"
"""Dagster 1.13 calls this method of its own whenever a resource holds another one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this folder runs Dagster in process."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.dagster)
            item.add_marker(pytest.mark.filterwarnings(NESTED_RESOURCES))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick waits for its look, however busy the machine is, so that it always tells what it has found."""
    monkeypatch.setattr(watch, "_GRACE_S", 60.0)


@pytest.fixture(autouse=True)
def soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that failed is repeated as often as always, and sooner."""
    monkeypatch.setattr(failures, "RETRY", dg.RetryPolicy(max_retries=failures.RETRY.max_retries, delay=0.1))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The shop, shared by a module."""
    with open_shop(tmp_path_factory.mktemp("shop")) as found:
        yield found


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    """Run storage in memory."""
    with dg.DagsterInstance.ephemeral() as found:
        yield found
