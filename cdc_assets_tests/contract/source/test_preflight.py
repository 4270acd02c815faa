"""Every missing prerequisite is found and its remedy works."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc_assets.adapters.sqlserver.preflight import ensure, inspect
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.cli.main import app
from cdc_assets.config.build import build_config
from cdc_assets.core.check_result import CheckResult
from cdc_assets.errors import PreflightError
from cdc_assets_tests.contract.source.conftest import DATABASE, PLAIN, Server, connection, drain, remake
from mssql_standin.control import StandIn

pytestmark = pytest.mark.contract


def texts(server: Server, database: str, **changes: str) -> dict[str, str]:
    return {
        "topic.prefix": "shop",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.names": database,
        "driver.encrypt": connection(server).encrypt,
        "driver.trustServerCertificate": "true",
    } | {name.replace("__", "."): text for name, text in changes.items()}


def look(server: Server, database: str, **changes: str) -> dict[str, CheckResult]:
    config = build_config(texts(server, database, **changes))
    with SqlServerSource(config.connection, require_cdc=False) as source:
        found = inspect(source, config)
    return {f"{result.check} {result.subject.removeprefix(database)}".strip(): result for result in found}


def run_remedy(server: Server, result: CheckResult) -> None:
    """What a DBA would do: run the text as it is."""
    database, _, statement = result.remedy.partition("; ")
    server.execute(statement.rstrip(";"), database=database.removeprefix("USE [").rstrip("]"))


def test_a_ready_database(server: Server) -> None:
    server.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", database=DATABASE)
    server.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL",
        database=DATABASE,
    )
    server.execute("INSERT INTO dbo.t VALUES (1)", database=DATABASE)
    drain(server)
    found = look(server, DATABASE)
    assert [result for result in found.values() if not result.ok] == []
    ensure(found.values())


def test_remedies_make_a_database_ready(server: Server) -> None:
    remake(server, PLAIN, cdc=False)
    server.execute("CREATE TABLE dbo.[it's] (id int NOT NULL PRIMARY KEY)", database=PLAIN)
    found = look(server, PLAIN)
    off = found["change data capture"]
    assert (off.ok, off.actual, off.blocking) == (False, "off", True)
    with pytest.raises(PreflightError, match="sp_cdc_enable_db"):
        ensure(found.values())
    run_remedy(server, off)
    missing = look(server, PLAIN)["capture instance .dbo.it's"]
    assert missing.ok is False
    run_remedy(server, missing)
    assert look(server, PLAIN)["capture instance .dbo.it's"].ok


def test_stopped_agent(standin: StandIn) -> None:
    standin.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", database=DATABASE)
    standin.agent.stop()
    result = look(standin, DATABASE)["SQL Server Agent"]
    standin.agent.start()
    assert (result.ok, result.actual, result.blocking) == (False, "stopped", False)


def test_filters_that_match_nothing(server: Server) -> None:
    server.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", database=DATABASE)
    early = look(server, DATABASE, table__include__list="dbo.x")["table filters"]
    assert (early.ok, early.blocking) == (False, False)
    assert "sp_cdc_enable_table @source_schema = N'dbo'" in early.remedy
    enable = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL"
    server.execute(enable, database=DATABASE)
    result = look(server, DATABASE, table__include__list="dbo.x")["table filters"]
    assert (result.ok, result.blocking) == (False, True)


def test_snapshot_isolation(server: Server) -> None:
    server.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", database=DATABASE)
    result = look(server, DATABASE, snapshot__isolation__mode="snapshot")["snapshot isolation"]
    assert result.ok is False
    server.execute(result.remedy)
    assert look(server, DATABASE, snapshot__isolation__mode="snapshot")["snapshot isolation"].ok


def test_texts_in_another_code_page_than_the_database(server: Server) -> None:
    other = "other varchar(9) COLLATE Polish_CI_AS, wide nvarchar(9) COLLATE Polish_CI_AS"
    server.execute(f"CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, own varchar(9), {other})", database=DATABASE)
    server.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL",
        database=DATABASE,
    )
    found = {name: result for name, result in look(server, DATABASE).items() if name.startswith("collation")}
    assert [*found] == ["collation .dbo.t.other"]
    assert (found["collation .dbo.t.other"].actual, found["collation .dbo.t.other"].blocking) == ("Polish_CI_AS", False)


def test_doctor(server: Server, tmp_path: Path) -> None:
    server.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", database=DATABASE)
    path = tmp_path / "shop.json"
    path.write_text(json.dumps(texts(server, DATABASE, lake__path=str(tmp_path / "lake"))))
    result = CliRunner().invoke(app, ["doctor", "-c", str(path)], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "@source_name = N't'" in result.output
    path.write_text(json.dumps(texts(server, DATABASE, lake__path="/proc/nowhere/lake")))
    result = CliRunner().invoke(app, ["doctor", "-c", str(path)], env={"COLUMNS": "200"})
    assert result.exit_code == 1
    assert "lake must be writable" in result.output
