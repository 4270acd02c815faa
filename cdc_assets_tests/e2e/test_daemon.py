"""The sensor alone brings rows into the lake; a run that is killed at any step loses and doubles nothing."""

import time

import pyodbc
import pytest

from cdc_assets.lake.steps import STEPS
from cdc_assets.standin import sample
from cdc_assets_tests.e2e.conftest import Daemon

pytestmark = pytest.mark.timeout(600)

STREAM_STEPS = [
    "window-planned",
    "history-written",
    "files-written",
    "table-committed",
    "table-committed:3",
    "window-complete",
]
SNAPSHOT_STEPS = [
    "snapshot-planned",
    "round-planned",
    "round-written",
    "table-committed",
    "round-complete",
    "snapshot-complete",
]


def names(daemon: Daemon) -> set[str]:
    """Customers' names that came in as events."""
    rows = (event["value"] for event in daemon.shop.events("customers") if event["value"])
    return {row["after"]["name"] for row in rows if row["after"]}


def settled(daemon: Daemon) -> bool:
    """Whether the lake agrees with the server."""
    state = daemon.shop.view().state()
    return state.pending is None and not state.snapshots and daemon.shop.differences() == {}


def test_rows_inserted_through_a_driver_appear_by_the_sensor_alone(daemon: Daemon) -> None:
    with pyodbc.connect(daemon.shop.server.connection_string(sample.DATABASE), autocommit=True) as connection:
        connection.execute("INSERT INTO dbo.customers (name) VALUES (?)", "Through the driver")
    started = time.monotonic()
    daemon.wait_until(lambda: "Through the driver" in names(daemon), "the row is in the lake")
    assert daemon.failed_steps() == 0
    assert time.monotonic() - started < 90


@pytest.mark.crash
@pytest.mark.parametrize("step", STREAM_STEPS)
def test_run_killed_while_it_streams_loses_and_doubles_nothing(daemon: Daemon, step: str) -> None:
    assert step.partition(":")[0] in STEPS
    daemon.wait_until(lambda: settled(daemon) and idle(daemon), "the test before has settled")
    killed = daemon.killed_runs()
    daemon.fuse.write_text(step)
    with daemon.shop.server.connect(sample.DATABASE, autocommit=False) as connection:
        connection.execute("INSERT INTO dbo.customers (name) VALUES (?)", f"Killed at {step}")
        connection.execute("UPDATE dbo.products SET stock = stock + 1")
        connection.execute("UPDATE dbo.orders SET discount = COALESCE(discount, 0) + 1 WHERE id = 1001")
        connection.commit()
    daemon.wait_until(lambda: not daemon.fuse.exists(), f"a run reaches {step} and dies")
    daemon.wait_until(lambda: f"Killed at {step}" in names(daemon) and settled(daemon), "the next run finishes")
    assert daemon.killed_runs() == killed + 1
    assert daemon.shop.doubled() == []
    assert daemon.failed_steps() == 0


@pytest.mark.crash
@pytest.mark.parametrize("step", SNAPSHOT_STEPS)
def test_run_killed_while_it_reads_tables_leaves_each_row_once(daemon: Daemon, step: str) -> None:
    assert step in STEPS
    daemon.wait_until(lambda: settled(daemon) and idle(daemon), "the test before has settled")
    killed, table = daemon.killed_runs(), "late_" + step.replace("-", "_")
    daemon.fuse.write_text(step)
    daemon.shop.execute(f"CREATE TABLE dbo.{table} (id int NOT NULL PRIMARY KEY, name varchar(20) NULL)")
    daemon.shop.execute(f"INSERT INTO dbo.{table} (id, name) VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    daemon.shop.execute(f"EXEC sys.sp_cdc_enable_table N'dbo', N'{table}', @role_name = NULL")
    daemon.reload()
    daemon.wait_until(lambda: not daemon.fuse.exists(), f"a run reaches {step} and dies")
    daemon.wait_until(lambda: len(daemon.shop.events(table)) == 3 and settled(daemon), "the next run finishes")
    assert sorted(event["key"]["id"] for event in daemon.shop.events(table)) == [1, 2, 3]
    assert daemon.killed_runs() == killed + 1
    assert daemon.failed_steps() == 0


def idle(daemon: Daemon) -> bool:
    """Whether no run is at work."""
    return all(run.is_finished for run in daemon.instance.get_runs())
