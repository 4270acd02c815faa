"""What these tests read is there before a run begins, so that no run need wait long for more."""

import pytest

from cdc_assets.connectors.engine import run


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run looks for more ten times as often."""
    monkeypatch.setattr(run, "_POLL_S", run._POLL_S / 10)
