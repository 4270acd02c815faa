"""Lakes that many tests begin with, before any of them has patched anything."""

import pytest

from cdc_assets_tests.unit.streaming.tables import SNAPSHOTTED, STARTED


@pytest.fixture(scope="session", autouse=True)
def prepared(states: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two tables that were read, and the same that streamed."""
    SNAPSHOTTED.prepare(tmp_path_factory.mktemp("snapshotted"))
    STARTED.prepare(tmp_path_factory.mktemp("started"))
