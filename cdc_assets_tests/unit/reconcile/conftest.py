"""A stand-in with one database."""

from collections.abc import Iterator

import pytest

from cdc_assets.standin.control import StandIn
from cdc_assets_tests.unit.streaming.child import DATABASE


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server
