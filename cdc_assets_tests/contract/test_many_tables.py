"""More tables in one window, and more tasks at once, than any pool of connections would hold."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.capture.capture import Capture
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets_tests.jobs import JOB
from cdc_assets_tests.unit.streaming.child import config_of
from cdc_assets_tests.unit.streaming.lake_reader import events_of, rows_of_topic
from mssql_standin.control import StandIn

TABLES = [TableId("Wide", "dbo", f"t{number:02}") for number in range(40)]
ROWS = 3


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=("Wide",)) as started:
        for table in TABLES:
            started.execute(f"CREATE TABLE dbo.{table.table} (id int NOT NULL PRIMARY KEY)", database="Wide")
            started.execute(
                "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @role_name = NULL, "
                f"@source_name = N'{table.table}'",
                database="Wide",
            )
        yield started


def settings(server: StandIn, path: Path) -> CaptureConfig:
    config = config_of(server.port, server.password, str(path))
    return replace(
        config,
        connection=replace(config.connection, databases=("Wide",)),
        events=replace(config.events, transaction_metadata=True),
        streaming=replace(config.streaming, fetch_size=1, max_retries=0),  # every result is longer than a batch
    )


@pytest.mark.long
def test_forty_tables_in_one_transaction_and_in_many_tasks(server: StandIn, tmp_path: Path) -> None:
    config = settings(server, tmp_path)
    for go in ("snapshot", "stream"):
        with SqlServerSource(config.connection) as source:
            capture = Capture(config, source, MssqlBulkSource.of(config), LocalRunner(24), SystemClock())
            if go == "snapshot":
                assert not capture.snapshot().failed
                inserts = "; ".join(
                    f"INSERT INTO dbo.{table.table} VALUES ({number})" for table in TABLES for number in range(ROWS)
                )
                server.execute(f"BEGIN TRANSACTION; {inserts}; COMMIT", database="Wide")
                server.agent.drain()
            else:
                assert not capture.stream().troubled
    for table in TABLES:
        assert [event.key for event in events_of(config, table)] == list(range(ROWS))
    end = rows_of_topic(config, "shop.transaction")[-1]["value"]
    assert (end["status"], end["event_count"]) == ("END", ROWS * len(TABLES))


@pytest.mark.long
def test_more_tasks_at_once_than_tables(server: StandIn) -> None:
    server.execute("INSERT INTO dbo.t00 SELECT value FROM GENERATE_SERIES(0, 99)", database="Wide")
    bulk = MssqlBulkSource(replace(config_of(server.port, server.password, ".").connection, databases=("Wide",)), 10)
    found = LocalRunner(24).run(
        lambda _: sum(len(batch) for batch in bulk.read("SELECT id FROM dbo.t00")), range(48), JOB
    )
    assert found == [100] * 48
