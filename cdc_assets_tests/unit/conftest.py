"""A stand-in per test, and quick tables in rooms whose tests commit thousands of times."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from cdc_assets_tests.quick_tables import quick_tables
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.tables import SNAPSHOTTED, STARTED
from mssql_standin.control import StandIn

ROOMS = (
    "capture",
    "incremental",
    "mirror",
    "overview",
    "publish",
    "reconcile",
    "retention",
    "shared",
    "signals",
    "snapshot",
    "streaming",
)
"""Their tests ask what a commit means, and not whether delta-rs makes it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what plays on quick tables."""
    folders = tuple(f"{Path(__file__).parent / room}{os.sep}" for room in ROOMS)
    for item in items:
        if str(item.path).startswith(folders) and item.get_closest_marker("delta_rs") is None:
            item.add_marker("quick")


@pytest.fixture(autouse=True)
def quick_or_delta_rs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Delta-rs's own with `CDC_DELTA_RS`."""
    is_quick = request.node.get_closest_marker("quick") is not None and "CDC_DELTA_RS" not in os.environ
    with quick_tables() if is_quick else nullcontext():
        yield


@pytest.fixture
def server() -> Iterator[StandIn]:
    """With one database that captures at once."""
    with StandIn(databases=(DATABASE,)) as server:
        server.agent.start()
        yield server


@pytest.fixture(scope="session")
def prepared(states: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two tables that were read, and the same that streamed; rooms ask for them before a test patches anything."""
    SNAPSHOTTED.prepare(tmp_path_factory.mktemp("snapshotted"))
    STARTED.prepare(tmp_path_factory.mktemp("started"))
