"""Transactions of which no table reads anything: positions move over them."""

from pathlib import Path

import pytest

from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.law import events_of, state_of
from cdc_assets_tests.unit.streaming.tables import started


@pytest.mark.parametrize("waiting", [0, 1, 40])
def test_run_ends_behind_all_of_them(tmp_path: Path, waiting: int) -> None:
    """Each plan goes over one of them, and a run waits for none longer than `streaming.idle.timeout`."""
    server, config, _lines, orders = started(tmp_path, max_iteration_transactions=1)
    make_capture(server, config).stream()
    for _ in range(waiting):
        server.captured = server.tick()
        server.transactions.append(server.captured)
    newest = server.commit((orders, "insert", 11, "b"))
    assert make_capture(server, config).stream().ended == "idle"
    assert state_of(config).tables[orders].position == newest
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 11]
