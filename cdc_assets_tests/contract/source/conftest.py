"""A fresh database with CDC for each test, and a source that looks at it.

On the server of CDC_TEST_SQLSERVER the database is dropped and made again, and a log scan is asked for; tests that steer
the server (faults, Agent, restarts) ask for `standin` and are skipped there.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyodbc
import pytest

from cdc_assets.adapters.sqlserver import retry as sqlserver_retry
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets_tests.contract.real import RealServer
from mssql_standin.control import StandIn

DATABASE, PLAIN = "CdcContractSource", "CdcContractPlain"
"""Dropped and made again, so on no server the name of anything else."""
Server = StandIn | RealServer


def connection(server: Server, *databases: str, **changes: Any) -> ConnectionSettings:
    """Settings that reach the server."""
    facts: dict[str, Any] = {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "databases": databases,
        "encrypt": server.encrypt if isinstance(server, RealServer) else "no",
        "trust_server_certificate": isinstance(server, RealServer),
        "login_timeout_s": 5,
    }
    return ConnectionSettings(**facts | changes)


def drain(server: Server) -> None:
    """Return when everything committed so far is captured."""
    if isinstance(server, StandIn):
        server.agent.drain()
        return
    with suppress(pyodbc.Error):  # it may not run; a scan by hand is refused while it does
        server.execute("EXEC sys.sp_cdc_stop_job @job_type = N'capture'", database=DATABASE)
    server.execute("EXEC sys.sp_cdc_scan", database=DATABASE)


def remake(server: Server, name: str, *, cdc: bool) -> None:
    """A new, empty database of that name."""
    if isinstance(server, RealServer) and server.execute("SELECT 1 FROM sys.databases WHERE name = ?", name):
        server.drop(name)
    server.execute(f"CREATE DATABASE [{name}]")
    if cdc:
        server.execute("EXEC sys.sp_cdc_enable_db", database=name)


def table(name: str, schema: str = "dbo") -> TableId:
    """A table of the first database."""
    return TableId(DATABASE, schema, name)


def enable(server: Server, name: str, instance: str | None = None) -> None:
    """Have a table captured."""
    server.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = ?, @role_name = NULL, "
        "@capture_instance = ?",
        name,
        instance or f"dbo_{name}",
        database=DATABASE,
    )


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries at once."""
    monkeypatch.setattr(sqlserver_retry, "FIRST_WAIT_S", 0.0)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with one database that has CDC on."""
    given = os.environ.get("CDC_TEST_SQLSERVER")
    if given:
        real = RealServer(given)
        remake(real, DATABASE, cdc=True)
        yield real
        for name in (DATABASE, PLAIN):
            if real.execute("SELECT 1 FROM sys.databases WHERE name = ?", name):
                real.drop(name)
        return
    with StandIn(databases=(DATABASE,)) as started:
        yield started


@pytest.fixture
def source(server: Server) -> Iterator[SqlServerSource]:
    """The adapter under test."""
    with SqlServerSource(connection(server, DATABASE)) as opened:
        yield opened
