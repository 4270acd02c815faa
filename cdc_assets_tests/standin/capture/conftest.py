"""A harness server and session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets_tests.standin.capture.harness import Server, Session


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server whose Agent stops at the end."""
    made = Server(tmp_path)
    yield made
    made.agent.stop()


@pytest.fixture
def session(server: Server) -> Session:
    """A session in `shop`."""
    return server.session()
