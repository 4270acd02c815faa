"""Snapshots that signals asked for, while what runs them is not there: the next run carries them out."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.jobs import Job
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import TableSchema
from cdc_assets.errors import CdcError, EngineError, LoginError
from cdc_assets_tests.unit.incremental.stories import ask, orders, scans
from cdc_assets_tests.unit.signals.world import World
from cdc_assets_tests.unit.streaming.child import DATABASE
from cdc_assets_tests.unit.streaming.lake_reader import rows_of_topic
from mssql_standin.control import StandIn

FULL = EngineError("No executor of yarn registered within 120 s")
REFUSED = LoginError("The login is not able to access the database")


def fail_once(
    monkeypatch: pytest.MonkeyPatch, error: CdcError, kind: str, about: str, times: int = 1
) -> list[CdcError]:
    """Let the first job of a kind fail, or more of them; returns the errors that are left."""
    run, errors = LocalRunner.run, [error] * times

    def failing(self: LocalRunner, function: Callable[[Any], Any], tasks: Sequence[Any], job: Job) -> Any:
        if errors and job.kind == kind and job.about.startswith(about):
            raise errors.pop()
        return run(self, function, tasks, job)

    monkeypatch.setattr(LocalRunner, "run", failing)
    return errors


@pytest.mark.parametrize("job", ["read", "written"])
def test_an_incremental_one(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str) -> None:
    world = World(server, str(tmp_path), chunk_rows=100)
    table = orders(world)
    ask(world, table)
    fail_once(monkeypatch, FULL, "incremental", job)
    with pytest.raises(EngineError):
        world.run()
    assert [entry.table for entry in world.state().signals[DATABASE].queue] == [table]
    world.run()
    assert (scans(world), len(world.reads(table))) == (["SUCCEEDED"], 100)


def test_a_blocking_one(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(server, str(tmp_path), chunk_rows=100)
    table = orders(world)
    ask(world, table, type="blocking")
    fail_once(monkeypatch, FULL, "snapshot", "")
    with pytest.raises(EngineError):
        world.run()
    assert world.state().signals[DATABASE].blocking or world.state().snapshots
    world.run()
    told = [row["value"] for row in rows_of_topic(world.config, "notes")]
    ends = [value["type"] for value in told if value["id"] == "s1" and value["type"] in ("ABORTED", "COMPLETED")]
    assert ends == ["COMPLETED"]
    assert len(world.events(table)) == 200


@pytest.mark.parametrize("for_long", [False, True])
@pytest.mark.parametrize("job", ["read", "written"])
def test_a_database_that_refuses_the_login_while_a_round_is_in_flight(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, for_long: bool
) -> None:
    """Another one continues; in the same run it is back, and the round is read again."""
    monkeypatch.setattr("cdc_assets.capture.loop.IDLE_CHECK", timedelta(0))
    world = World(server, str(tmp_path), chunk_rows=100)
    world.config = replace(world.config, connection=replace(world.config.connection, databases=(DATABASE, "Other")))
    server.execute("CREATE DATABASE Other")
    world.sql("EXEC sys.sp_cdc_enable_db", "Other")
    world.make("others", "id int PRIMARY KEY", "Other")
    table = orders(world)
    ask(world, table)
    errors = fail_once(monkeypatch, REFUSED, "incremental", job)
    refusals, schema = [REFUSED] * for_long, SqlServerSource.table_schema

    def refused(source: SqlServerSource, asked: TableId, known: Lsn) -> TableSchema | None:
        if not errors and refusals:
            raise refusals.pop()
        return schema(source, asked, known)

    monkeypatch.setattr(SqlServerSource, "table_schema", refused)
    world.run()
    assert (errors, refusals) == ([], [])
    assert (scans(world), len(world.reads(table))) == (["SUCCEEDED"], 100)


def test_a_statement_that_is_refused_another_database_ends_only_its_own_snapshot(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its condition names that database: error 916, as if this one refused the login."""
    world = World(server, str(tmp_path), chunk_rows=100)
    table = orders(world)
    ask(world, table, additional_conditions=[{"data-collection": str(table), "filter": "id > 1"}])
    fail_once(monkeypatch, REFUSED, "incremental", "read", times=100)
    world.sql("INSERT INTO dbo.orders VALUES (101, 1)")
    server.agent.drain()
    world.run()
    assert scans(world) == ["SKIPPED"]
    assert len(world.events(table)) == 101
    assert f"Each of 11 reads failed: {REFUSED}" in caplog.text
