"""A stand-in with one empty database; small rounds, so that few rows make several of them."""

from collections.abc import Iterator

import pytest

from cdc_assets.incremental import rounds as incremental_round
from cdc_assets_tests.unit.streaming.child import DATABASE
from mssql_standin.control import StandIn


@pytest.fixture(autouse=True)
def small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental_round, "MAX_CHUNKS", 64)


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server
