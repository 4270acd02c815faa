"""Transactions of which no table reads anything: positions move over them."""

from datetime import timedelta
from pathlib import Path

import pytest

from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets_tests.unit.streaming.captures import make_capture
from cdc_assets_tests.unit.streaming.law import events_of, state_of
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import started


def pass_by(server: SimulatedServer) -> None:
    """A transaction of a table that is not captured here."""
    server.captured = server.tick()
    server.transactions.append(server.captured)


@pytest.mark.parametrize("waiting", [0, 1, 40])
def test_run_ends_behind_all_of_them(tmp_path: Path, waiting: int) -> None:
    """Each plan goes over one of them, and a run waits for none longer than `streaming.idle.timeout`."""
    server, config, _lines, orders = started(tmp_path, max_iteration_transactions=1)
    make_capture(server, config).stream()
    for _ in range(waiting):
        pass_by(server)
    newest = server.commit((orders, "insert", 11, "b"))
    assert make_capture(server, config).stream().ended == "idle"
    assert state_of(config).tables[orders].position == newest
    assert [event.key for event in events_of(config, orders)] == [1, 2, 3, 10, 11]


@pytest.mark.parametrize("limits", [{"max_iteration_transactions": 10}, {"window_rows": 4}])
def test_they_are_passed_without_a_pause(tmp_path: Path, limits: dict[str, int]) -> None:
    """Though the windows before them were small, since their transactions were large."""
    server, config, _lines, orders = started(tmp_path, **limits)
    for number in range(20):
        server.commit(*((orders, "insert", 100 + 2 * number + place, "b") for place in range(2)))
    for _ in range(300):
        pass_by(server)
    server.commit((orders, "insert", 11, "b"))
    capture = make_capture(server, config)
    begun = server.now
    capture.stream()
    assert [event.key for event in events_of(config, orders)][-1] == 11
    pauses = 20 * config.streaming.poll_interval_s  # at most so many windows with few events
    assert server.now - begun < timedelta(seconds=config.streaming.idle_timeout_s + pauses)


def test_run_ends_beside_a_steady_trickle_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, config, _lines, _orders = started(tmp_path)
    ask = SimulatedServer.max_transaction_lsn

    def followed(
        source: SimulatedServer, database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN
    ) -> Lsn | None:
        found = ask(source, database, after, limit, known)
        pass_by(source)
        return found

    monkeypatch.setattr(SimulatedServer, "max_transaction_lsn", followed)
    capture, begun = make_capture(server, config), server.now
    assert capture.stream().ended == "idle"
    assert server.now - begun < timedelta(seconds=config.streaming.idle_timeout_s + 3)


def test_no_limit_grows_while_it_keeps_nothing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, config, _lines, orders = started(tmp_path, window_rows=4, max_iteration_transactions=0, idle_timeout_s=40.0)
    server.commit(*((orders, "insert", 100 + number, "b") for number in range(6)))
    ask, limits = SimulatedServer.max_transaction_lsn, list[int]()

    def noted(
        source: SimulatedServer, database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN
    ) -> Lsn | None:
        limits.append(limit)
        return ask(source, database, after, limit, known)

    monkeypatch.setattr(SimulatedServer, "max_transaction_lsn", noted)
    server.meanwhile = lambda _: pass_by(server)
    make_capture(server, config).stream()
    assert len(limits) > 70
    assert max(limits) < 10
