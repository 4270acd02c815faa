"""Lakes that many tests begin with."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def begun(prepared: None) -> None:
    """Made once."""
