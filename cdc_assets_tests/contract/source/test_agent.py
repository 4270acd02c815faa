"""What is known of SQL Server's Agent and its capture job."""

import time
from contextlib import suppress
from itertools import count

import pytest

from cdc_assets.adapters.sqlserver import queries
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets_tests.contract.source.conftest import DATABASE, Server, connection, drain
from mssql_standin.control import StandIn
from mssql_standin.errors import SqlError

pytestmark = pytest.mark.contract


@pytest.fixture
def captured(server: Server) -> Server:
    """One captured table."""
    server.execute("CREATE TABLE dbo.a (id int NOT NULL PRIMARY KEY)", database=DATABASE)
    server.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'a', @role_name = NULL",
        database=DATABASE,
    )
    drain(server)
    return server


def test_agent(captured: Server, standin: StandIn, source: SqlServerSource) -> None:
    assert source.agent_running(DATABASE) is True
    standin.agent.stop()
    assert source.agent_running(DATABASE) is False
    standin.agent.start()


def test_capture_job(captured: Server, standin: StandIn, source: SqlServerSource) -> None:
    assert source.capture_job(DATABASE).trouble == ""
    standin.agent.stop()
    try:
        assert "Agent is stopped" in source.capture_job(DATABASE).trouble
    finally:
        standin.agent.start()


def test_capture_job_that_fails_tells_why(captured: Server, standin: StandIn, source: SqlServerSource) -> None:
    trouble, deadline = "", time.monotonic() + 60
    for number in count(900):
        standin.agent.fail_next(SqlError(22859, "Log Scan process failed in processing log records."))
        with suppress(SqlError):  # what failed shows itself to the next commit
            captured.execute("INSERT INTO dbo.a VALUES (?)", number, database=DATABASE)
        if (trouble := source.capture_job(DATABASE).trouble) or time.monotonic() > deadline:
            break
    assert "22859 Log Scan process failed" in trouble
    while source.capture_job(DATABASE).trouble and time.monotonic() < deadline:  # the next scan makes it good
        time.sleep(0.1)
    assert source.capture_job(DATABASE).trouble == ""


def test_scans_of_a_secondary_say_nothing(
    captured: Server, source: SqlServerSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may show those of a time when it was the primary."""
    assert source.empty_scans(DATABASE)
    monkeypatch.setattr(queries, "EMPTY_SCANS", queries.EMPTY_SCANS.replace("READ_WRITE", "READ_ONLY"))
    assert source.empty_scans(DATABASE) is None


def test_sessions_of_two_servers_are_never_the_same(
    captured: Server, source: SqlServerSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each counts its own from one; the primary of now may show some of a time when it was that before."""
    same, found = queries.EMPTY_SCANS.replace("session_id, empty", "7, empty"), []
    for name in ("N'A'", "N'B'"):
        monkeypatch.setattr(queries, "EMPTY_SCANS", same.replace("@@SERVERNAME", name))
        found.append(source.empty_scans(DATABASE))
    (session, _), (other, _) = [scans for scans in found if scans is not None]
    assert session != other


def test_agent_by_query_of_the_user(captured: Server) -> None:
    settings = connection(captured, DATABASE)
    with SqlServerSource(settings, "SELECT CASE WHEN DB_ID(N'#db') IS NULL THEN 0 ELSE 1 END") as source:
        assert source.agent_running(DATABASE) is True
    with SqlServerSource(settings, "SELECT nothing FROM nowhere") as source:
        assert source.agent_running(DATABASE) is None
