"""The sensor alone brings rows into the lake; a run that is killed at any step loses and doubles nothing."""

import time

import pyodbc
import pytest

from cdc_assets_tests.e2e import chains
from cdc_assets_tests.e2e.conftest import UNWATCHED, Daemon
from cdc_assets_tests.e2e.killer import Killer
from cdc_assets_tests.shop import key
from mssql_standin import sample

pytestmark = pytest.mark.timeout(900)


def names(daemon: Daemon) -> set[str]:
    """Customers' names that came in as events."""
    rows = (event["value"] for event in daemon.shop.events("customers") if event["value"])
    return {row["after"]["name"] for row in rows if row["after"]}


def test_rows_inserted_through_a_driver_appear_by_the_sensor_alone(daemon: Daemon) -> None:
    with pyodbc.connect(daemon.shop.server.connection_string(sample.DATABASE), autocommit=True) as connection:
        connection.execute("INSERT INTO dbo.customers (name) VALUES (?)", "Through the driver")
    started = time.monotonic()
    daemon.wait_until(lambda: "Through the driver" in names(daemon), "the row is in the lake")
    assert daemon.failed_steps() == 0
    assert time.monotonic() - started < 90


@pytest.fixture
def killer(daemon: Daemon) -> Killer:
    """For one test."""
    return Killer.at_rest(daemon)


def write_rows(daemon: Daemon, name: str) -> None:
    """One transaction over three tables; it inserts a customer."""
    with daemon.shop.server.connect(sample.DATABASE, autocommit=False) as connection:
        connection.execute("INSERT INTO dbo.customers (name) VALUES (?)", name)
        connection.execute("UPDATE dbo.products SET stock = stock + 1")
        connection.execute("UPDATE dbo.orders SET discount = COALESCE(discount, 0) + 1 WHERE id = 1001")
        connection.commit()


@pytest.mark.crash
def test_runs_killed_at_every_step_of_a_window_lose_and_double_nothing(daemon: Daemon, killer: Killer) -> None:
    killer.light(chains.WINDOW[0])
    write_rows(daemon, "Killed at every step")
    killer.kill_at(chains.WINDOW)
    daemon.wait_until(lambda: "Killed at every step" in names(daemon), "the row is in the lake")
    killer.assert_whole()
    transactions = daemon.shop.transactions()
    assert len(transactions) == len(set(transactions))


@pytest.mark.crash
@pytest.mark.parametrize("step", chains.SINGLE)
def test_run_killed_once_loses_and_doubles_nothing(daemon: Daemon, killer: Killer, step: str) -> None:
    killer.light(step)
    write_rows(daemon, f"Killed at {step}")
    if step in chains.CHECKPOINT:  # folded every hundred rows; each transaction is a window here, of two rows
        daemon.shop.add_customers(50)
    killer.kill_at([step])
    daemon.wait_until(lambda: f"Killed at {step}" in names(daemon), "the next run finishes")
    killer.assert_whole()


@pytest.mark.crash
def test_run_killed_when_it_only_moved_positions_continues(daemon: Daemon, killer: Killer) -> None:
    killer.light(*chains.IDLE)
    daemon.shop.execute(f"INSERT INTO dbo.{UNWATCHED} (id) SELECT COALESCE(MAX(id), 0) + 1 FROM dbo.{UNWATCHED}")
    killer.kill_at(chains.IDLE)
    daemon.shop.execute("INSERT INTO dbo.customers (name) VALUES (?)", "Behind an idle stretch")
    daemon.wait_until(lambda: "Behind an idle stretch" in names(daemon), "the next run reads on")
    killer.assert_whole()


@pytest.mark.crash
def test_runs_killed_at_every_step_of_a_snapshot_leave_each_row_once(daemon: Daemon, killer: Killer) -> None:
    killer.light(chains.SNAPSHOT[0])
    daemon.shop.execute("CREATE TABLE dbo.late (id int NOT NULL PRIMARY KEY, name varchar(20) NULL)")
    daemon.shop.execute("INSERT INTO dbo.late (id, name) VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    daemon.shop.execute("EXEC sys.sp_cdc_enable_table N'dbo', N'late', @role_name = NULL")
    daemon.reload()
    killer.kill_at(chains.SNAPSHOT)
    daemon.wait_until(lambda: len(daemon.shop.events("late")) == 3, "the next run finishes")
    killer.assert_whole()
    assert sorted(event["key"]["id"] for event in daemon.shop.events("late")) == [1, 2, 3]


@pytest.mark.crash
def test_runs_killed_at_every_step_of_an_incremental_snapshot_read_each_row_once(
    daemon: Daemon, killer: Killer
) -> None:
    killer.light(chains.INCREMENTAL[0])
    daemon.shop.execute(
        f"INSERT INTO dbo.{sample.SIGNAL_TABLE} (id, type, data) VALUES ('again', 'execute-snapshot', "
        '\'{"data-collections": ["SalesDb.dbo.orders"]}\')'
    )
    killer.kill_at(chains.INCREMENTAL)
    keys = [(row[0],) for row in daemon.shop.execute("SELECT id FROM dbo.orders ORDER BY id")]
    daemon.wait_until(lambda: len(incremental(daemon, "orders")) >= len(keys), "the table is read again")
    killer.assert_whole()
    assert sorted(incremental(daemon, "orders")) == keys


def incremental(daemon: Daemon, table: str) -> list[tuple[object, ...]]:
    """Keys of the READ events of incremental snapshots."""
    events = (event for event in daemon.shop.events(table) if event["value"])
    return [tuple(event["key"].values()) for event in events if event["value"]["source"]["snapshot"] == "incremental"]


@pytest.mark.crash
def test_table_with_a_gap_stops_alone_and_its_snapshot_mends_it(daemon: Daemon, killer: Killer) -> None:
    killer.light(*chains.GAP)
    for _ in range(2):
        daemon.shop.execute("UPDATE dbo.products SET stock = stock + 1")
    daemon.shop.execute(
        "DECLARE @mark binary(10) = sys.fn_cdc_get_max_lsn(); "
        "EXEC sys.sp_cdc_cleanup_change_table N'dbo_products', @mark, 5000"
    )
    daemon.shop.execute("INSERT INTO dbo.customers (name) VALUES (?)", "Beside a gap")
    killer.kill_at(chains.GAP)
    daemon.wait_until(lambda: "Beside a gap" in names(daemon), "the other tables go on")
    killer.assert_whole(failures=1)
    assert statuses(daemon) == {"products": "gap"}

    daemon.shop.execute("INSERT INTO dbo.customers (name) VALUES (?)", "After a gap")
    daemon.wait_until(lambda: "After a gap" in names(daemon), "and so do later runs, without a pause or a failure")
    killer.assert_whole(failures=1)

    daemon.backfill([key("products", "snapshot")], daemon.ranges)
    daemon.wait_until(lambda: not statuses(daemon), "the snapshot mends the table")
    daemon.shop.execute("UPDATE dbo.products SET stock = stock + 1 WHERE sku = 'SKU-0001'")
    daemon.wait_until(lambda: daemon.shop.events("products")[-1]["value"]["op"] == "u", "its changes come again")
    killer.assert_whole(failures=1)


@pytest.mark.crash
def test_runs_killed_at_every_step_of_a_table_s_end_tell_it_once(daemon: Daemon, killer: Killer) -> None:
    killer.light(chains.RETIREMENT[0])
    daemon.shop.execute("EXEC sys.sp_cdc_disable_table N'dbo', N'products', N'dbo_products'")
    daemon.shop.execute("INSERT INTO dbo.customers (name) VALUES (?)", "Beside an end")
    killer.kill_at(chains.RETIREMENT)
    daemon.wait_until(lambda: "Beside an end" in names(daemon), "the other tables go on")
    killer.assert_whole(failures=1)
    assert statuses(daemon) == {"products": "failed"}
    changes = [change for row in daemon.shop.rows("shop") for change in row["value"]["tableChanges"]]
    assert [change["id"] for change in changes if change["type"] == "DROP"] == ['"SalesDb"."dbo"."products"']


def statuses(daemon: Daemon) -> dict[str, str]:
    """Tables that are not healthy."""
    tables = daemon.shop.view().state.tables.values()
    return {state.table.table: state.status for state in tables if state.status != "healthy"}
