"""What a stream that nobody ends says in the log: no table stops, and nothing is lost or waits, in silence."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.adapters.sqlserver import retry as sqlserver_retry
from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import ZERO_LSN, Lsn
from cdc_assets.errors import ConnectionLostError, ServerBusyError
from cdc_assets.streaming.job_watch import CHECK_EVERY
from cdc_assets_tests.unit.streaming.captures import make_capture, make_config
from cdc_assets_tests.unit.streaming.simulation import SimulatedServer
from cdc_assets_tests.unit.streaming.tables import two_tables


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    """What was said at this level or above."""
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


def lose_changes(server: SimulatedServer, table: TableId, other: TableId) -> None:
    """Clean-up removes a change before it is read."""
    server.commit((table, "insert", 50, "a"))
    server.commit((other, "insert", 50, "a"))
    server.clean_up(server.commit((table, "delete", 1, "")))


@pytest.mark.parametrize(
    ("policy", "said"), [("fail", "does not stream: Changes after"), ("ignore", "are lost; it continues")]
)
def test_changes_that_are_lost_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, policy: str, said: str
) -> None:
    server, config, other, orders = two_tables(tmp_path, gap_policy=policy)
    lose_changes(server, orders, other)
    make_capture(server, config).stream()
    assert [str(orders) in line for line in lines(caplog) if said in line and str(orders) in line] == [True]


def test_table_that_stopped_in_an_earlier_run_is_reported_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, config, other, orders = two_tables(tmp_path)
    lose_changes(server, orders, other)
    make_capture(server, config).stream()
    caplog.clear()
    make_capture(server, config).stream()
    assert [line for line in lines(caplog, logging.ERROR) if str(orders) in line]


def test_standstill_of_the_capture_job_is_reported_once_and_its_end_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    config = make_config(str(tmp_path))
    server, minutes = SimulatedServer(), [0, 20, 21, 22, 0]
    server.create("orders", rows=1)
    server.idle_tick()
    make_capture(server, config).snapshot()

    def ask(database: str) -> CaptureJob:
        return CaptureJob(database, None, 60 * (minutes.pop(0) if minutes else 0))

    object.__setattr__(server, "capture_job", ask)
    quiet = 10 * CHECK_EVERY.total_seconds()
    make_capture(server, replace(config, streaming=replace(config.streaming, idle_timeout_s=quiet))).stream()
    said = [line for line in lines(caplog, logging.INFO) if "capture job" in line]
    assert [("for more than 15 minutes" in line, "again" in line) for line in said] == [(True, False), (False, True)]


def test_repetition_of_a_statement_is_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlserver_retry, "FIRST_WAIT_S", 0.0)
    answers: list[Callable[[], int]] = [lambda: _busy(), lambda: 7]
    assert sqlserver_retry.repeated(lambda: answers.pop(0)()) == 7
    assert lines(caplog) == ["Chosen as the deadlock victim. Retrying (attempt 2 of 4)."]


def _busy() -> int:
    raise ServerBusyError("Chosen as the deadlock victim")


def test_server_that_is_away_is_told_when_it_begins_and_when_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server, config, *_ = two_tables(tmp_path)
    answers, ask = [True, *30 * [False]], server.max_transaction_lsn

    def away(database: str, after: Lsn | None, limit: int, known: Lsn = ZERO_LSN) -> Lsn | None:
        if not (answers.pop(0) if answers else True):
            raise ConnectionLostError("Cannot reach db:1433: refused. Next: check it")
        return ask(database, after, limit, known)

    object.__setattr__(server, "max_transaction_lsn", away)
    make_capture(server, config).stream()
    assert not answers, "it was asked thirty times in vain"
    said = [line for line in lines(caplog, logging.INFO) if "Cannot reach" in line or "works again" in line]
    assert ["works again" in line for line in said] == [False, True]
