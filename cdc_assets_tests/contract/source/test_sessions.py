"""A session of the control plane is refused, breaks, is repeated and ends in time."""

import pytest

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
