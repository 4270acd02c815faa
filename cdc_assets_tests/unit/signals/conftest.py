"""Small rounds, so that few rows make several of them."""

import pytest

from cdc_assets.incremental import rounds as incremental_round


@pytest.fixture(autouse=True)
def _small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incremental_round, "MOST_CHUNKS", 64)
