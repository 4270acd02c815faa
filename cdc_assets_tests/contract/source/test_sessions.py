"""A session of the control plane is refused, breaks, is repeated and ends in time."""

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from cdc_assets.adapters.sqlserver import patience, watchdog
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.errors import ConnectionLostError, LoginError, ServerBusyError
from cdc_assets_tests.contract.source.conftest import DATABASE, Server, connection
from mssql_standin.control import StandIn

pytestmark = pytest.mark.contract


def test_wrong_password(server: Server) -> None:
    settings = connection(server, DATABASE)
    wrong = ConnectionSettings(host=settings.host, port=settings.port, user=settings.user, password="wr0ng",
                               databases=settings.databases, encrypt=settings.encrypt)  # fmt: skip
    with SqlServerSource(wrong) as source, pytest.raises(LoginError) as error:
        source.databases()
    assert "wr0ng" not in str(error.value)


def test_a_broken_connection_heals(standin: StandIn, source: SqlServerSource) -> None:
    source.server_time()
    standin.drop_connections()
    assert source.server_time()


def test_a_server_that_restarts_heals(standin: StandIn, source: SqlServerSource) -> None:
    source.server_time()
    standin.restart()
    assert source.server_time()


@pytest.mark.parametrize("number", [1204, 1205, 40613])
def test_transient_errors_are_repeated(standin: StandIn, source: SqlServerSource, number: int) -> None:
    source.databases()
    standin.faults.error(number, matching="server_time", times=2)
    assert source.server_time()
    assert len(standin.faults.struck) == 2


def test_repetition_is_bounded(standin: StandIn, source: SqlServerSource) -> None:
    source.databases()
    standin.faults.error(1204, matching="server_time", times=100)
    with pytest.raises(ServerBusyError, match="is busy"):
        source.server_time()
    assert len(standin.faults.struck) == 4


def test_host_down_is_reported_at_once() -> None:
    settings = ConnectionSettings(
        host="127.0.0.1", port=1, user="u", password="p", databases=("x",), encrypt="no", login_timeout_s=1
    )
    with SqlServerSource(settings) as source, pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1"):
        source.databases()


def test_query_timeout(server: Server) -> None:
    settings = connection(server, DATABASE, query_timeout_s=1)
    with SqlServerSource(settings) as source:
        source.databases()
        with pytest.raises(ServerBusyError, match="too long"):
            source.session.rows("WAITFOR DELAY '00:00:30'")


def test_half_open_connection(standin: StandIn) -> None:
    """The server takes a statement and never answers: the time-out ends the wait, the next attempt is on a new line."""
    with SqlServerSource(connection(standin, DATABASE, query_timeout_s=1)) as source:
        source.databases()
        standin.faults.hang(matching="server_time")
        assert source.server_time()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions that ask little are given up after a second."""
    monkeypatch.setattr(patience, "MIN_S", 1.0)
    monkeypatch.setattr(watchdog, "GRACE_S", 0.3)


@pytest.mark.parametrize(
    ("matching", "ask"),
    [
        ("server_time", lambda source: source.server_time()),
        ("max_lsn", lambda source: source.max_captured_lsn(DATABASE) or True),
        ("lsn_time_mapping", lambda source: source.max_transaction_lsn(DATABASE, None, 0) or True),
        ("change_tables", lambda source: source.low_water_marks(DATABASE) or True),
        ("sys.databases", lambda source: source.trouble(DATABASE) is None),
    ],
)
def test_what_the_stream_asks_waits_for_no_statement_s_limit(
    standin: StandIn, soon: None, matching: str, ask: Callable[[SqlServerSource], object]
) -> None:
    with SqlServerSource(connection(standin, DATABASE)) as source:
        source.session.value("SELECT 1")
        standin.faults.hang(matching=matching)
        began = time.monotonic()
        assert ask(source)
        assert standin.faults.struck
        assert time.monotonic() - began < 10


def test_a_question_that_takes_long_gets_its_answer_and_the_next_one_at_once(standin: StandIn, soon: None) -> None:
    slow = "WAITFOR DELAY '00:00:02'; SELECT 5 AS five"
    with SqlServerSource(connection(standin, DATABASE)) as source, source.session.asking_little():
        assert source.session.value(slow) == 5
        connected = source.session._link
        assert source.session.value("SELECT 6 AS six") == 6
        assert source.session.value(slow) == 5
        assert source.session._link is connected


def test_a_slow_question_between_quick_ones_gets_its_answer(standin: StandIn, soon: None) -> None:
    """Each time longer is waited for it, and for it alone, however soon others are answered."""
    slow = "WAITFOR DELAY '00:00:03'; SELECT 5 AS five"
    with SqlServerSource(connection(standin, DATABASE), budget_s=0.5) as source, source.session.asking_little():
        waited = []
        for _ in range(4):
            assert source.session.value("SELECT 6 AS six") == 6
            began = time.monotonic()
            with suppress(ConnectionLostError):
                waited.append(source.session.value(slow))
            assert time.monotonic() - began < 12
        assert waited
        assert waited[-1] == 5


def test_how_long_a_server_hung_does_not_lengthen_what_follows(standin: StandIn, soon: None) -> None:
    with SqlServerSource(connection(standin, DATABASE, login_timeout_s=1)) as source:
        source.server_time()
        standin.faults.hang(times=1000)
        for _ in range(2):
            with pytest.raises(ConnectionLostError):
                source.server_time()
        standin.faults.clear()
        assert source.server_time()
        standin.faults.hang(matching="server_time")
        began = time.monotonic()
        assert source.server_time()
        assert time.monotonic() - began < 5
