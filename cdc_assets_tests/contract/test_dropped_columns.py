"""Values of a column that were logged before it was dropped are in the events, whatever has read the table meanwhile."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cdc_assets.adapters.clock import SystemClock
from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adapters.threads import LocalRunner
from cdc_assets.assembly.retention import make_retention
from cdc_assets.capture.capture import Capture, RunOptions
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets_tests.crashes import PowerCutError, cut_at
from cdc_assets_tests.unit.streaming.child import DATABASE, config_of, run
from cdc_assets_tests.unit.streaming.lake_reader import events_of
from cdc_assets_tests.unit.streaming.law import state_of
from mssql_standin.control import StandIn

TABLE = TableId(DATABASE, "dbo", "orders")
ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'orders', @role_name = NULL"
AFTER = {
    "dropped": "ALTER TABLE dbo.orders DROP COLUMN gone",
    "made again": "ALTER TABLE dbo.orders DROP COLUMN gone; ALTER TABLE dbo.orders ADD gone varchar(20) NULL",
    "another added": "ALTER TABLE dbo.orders DROP COLUMN gone; ALTER TABLE dbo.orders ADD more int NULL",
}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,)) as server:
        yield server


def snapshot_again(config: CaptureConfig) -> None:
    with SqlServerSource(config.connection) as source:
        bulk = MssqlBulkSource(config.connection)
        Capture(config, source, bulk, LocalRunner(2), SystemClock(), RunOptions(retention=make_retention)).snapshot(
            [TABLE]
        )


@pytest.mark.long
@pytest.mark.parametrize("altered", AFTER.values(), ids=AFTER.keys())
@pytest.mark.parametrize(
    ("second", "step"), [(False, ""), *((True, step) for step in ("", "history-recorded", "table-committed"))]
)
def test_a_snapshot_before_they_are_read_takes_none_of_them(
    server: StandIn, tmp_path: Path, altered: str, second: bool, step: str
) -> None:
    config = config_of(server.port, server.password, str(tmp_path))

    def play(*statements: str) -> None:
        for statement in statements:
            server.execute(statement, database=DATABASE)
        server.agent.drain()

    play("CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY, note int NULL, gone int NULL)")
    columns = ", @captured_column_list = N'id, note'" if second else ""
    play(ENABLE + columns, "INSERT INTO dbo.orders VALUES (1, 1, 1)")
    run(config, "snapshot")
    if second:
        play(ENABLE + ", @capture_instance = N'dbo_orders_v2'")
    play("INSERT INTO dbo.orders VALUES (2, 2, 2)", "DELETE FROM dbo.orders WHERE id = 1", *altered.split("; "))
    for _ in range(2):  # the second finds the structure that was recorded between the two
        snapshot_again(config)
        play("UPDATE dbo.orders SET note = note + 1")
        with cut_at(step), suppress(PowerCutError):
            run(config, "stream")
        run(config, "stream")
    play("UPDATE dbo.orders SET note = note + 1")
    run(config, "stream")
    assert state_of(config).tables[TABLE].status == "healthy"
    changes = [event for event in events_of(config, TABLE) if event.op not in ("r", None)]
    assert [(event.op, event.key) for event in changes] == [("c", 2), ("d", 1), ("u", 2), ("u", 2), ("u", 2)]
    assert [(event.before or event.after or {}).get("gone") for event in changes] == [2, 1, *([None] * 3)]
