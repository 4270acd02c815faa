"""A whole server that was put back as it was, on its recovery fork: its newest LSN tells it."""

from pathlib import Path

import pytest

from cdc_assets.errors import DatabaseRestoredError
from cdc_assets.overview import CaptureOverview
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.law import state_of
from cdc_assets_tests.unit.streaming.simulation import DATABASE
from cdc_assets_tests.unit.streaming.tables import two_tables


@pytest.mark.parametrize("is_secondary", [False, True])
def test_only_a_primary_that_has_less_than_was_read_was_put_back(tmp_path: Path, is_secondary: bool) -> None:
    server, config, lines, _ = two_tables(tmp_path)
    before = server.commit((lines, "insert", 50, "a"))
    make_capture(server, config).stream()
    server.commit((lines, "insert", 51, "a"))
    make_capture(server, config).stream()
    server.captured, server.is_secondary = before, is_secondary
    found = CaptureOverview(config, server).problems()  # type: ignore[arg-type]
    if is_secondary:
        assert found == {}
        make_capture(server, config).stream()
        assert state_of(config).log(DATABASE).restored == ""
        return
    assert isinstance(found[DATABASE], DatabaseRestoredError)
    make_capture(server, config).stream()
    assert "on the same recovery fork" in state_of(config).log(DATABASE).restored
