"""The sensor alone brings rows into the lake; a run that is killed at any step loses and doubles nothing."""

import time

import pyodbc
import pytest

from cdc_assets.lake.steps import STEPS
from cdc_assets.standin import sample
from cdc_assets_tests.e2e.conftest import Daemon

pytestmark = pytest.mark.timeout(900)

STREAM_STEPS = [
    "window-planned",
    "history-written",
    "files-written",
    "table-committed",
    "transactions-committed",
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
"""In the order in which they are reached, so that each restarted run can be killed at the next."""


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


def light(daemon: Daemon, step: str) -> None:
    """The next run that reaches the step dies."""
    assert step.partition(":")[0] in STEPS
    daemon.fuse.write_text(step)


def await_death(daemon: Daemon, step: str, deaths: int) -> None:
    """Until the run has died and Dagster knows; then that many have died in all."""
    daemon.wait_until(lambda: not daemon.fuse.exists(), f"a run reaches {step} and dies")
    daemon.wait_until(lambda: daemon.killed_runs() == deaths, f"the death at {step} is noticed")


def await_deaths(daemon: Daemon, steps: list[str], deaths: int) -> None:
    """The run that is to die at the first step, the one after it at the second, and so on."""
    for number, step in enumerate(steps, 1):
        if number > 1:
            light(daemon, step)
        await_death(daemon, step, deaths + number)


def write_rows(daemon: Daemon, name: str) -> None:
    """One transaction over three tables; it inserts a customer."""
    with daemon.shop.server.connect(sample.DATABASE, autocommit=False) as connection:
        connection.execute("INSERT INTO dbo.customers (name) VALUES (?)", name)
        connection.execute("UPDATE dbo.products SET stock = stock + 1")
        connection.execute("UPDATE dbo.orders SET discount = COALESCE(discount, 0) + 1 WHERE id = 1001")
        connection.commit()


def await_rest(daemon: Daemon) -> int:
    """Until nothing is at work and the lake agrees; returns the number of deaths so far."""
    daemon.wait_until(lambda: idle(daemon) and settled(daemon), "the lake agrees with the server and no run works")
    return daemon.killed_runs()


def assert_whole(daemon: Daemon, deaths: int) -> None:
    """Nothing is lost, nothing doubled, and nothing failed but what we killed."""
    assert await_rest(daemon) == deaths
    assert daemon.shop.doubled() == []
    assert daemon.failed_steps() == 0


@pytest.mark.crash
def test_runs_killed_at_every_step_of_a_window_lose_and_double_nothing(daemon: Daemon) -> None:
    deaths = await_rest(daemon)
    light(daemon, STREAM_STEPS[0])
    write_rows(daemon, "Killed at every step")
    await_deaths(daemon, STREAM_STEPS, deaths)
    daemon.wait_until(lambda: "Killed at every step" in names(daemon), "the row is in the lake")
    assert_whole(daemon, deaths + len(STREAM_STEPS))
    transactions = daemon.shop.transactions()
    assert len(transactions) == len(set(transactions))


@pytest.mark.crash
@pytest.mark.parametrize("step", ["table-committed:3", "checkpoint-written"])
def test_run_killed_once_loses_and_doubles_nothing(daemon: Daemon, step: str) -> None:
    deaths = await_rest(daemon)
    light(daemon, step)
    write_rows(daemon, f"Killed at {step}")
    if step == "checkpoint-written":  # folded every hundred rows; each transaction is a window here, of two rows
        daemon.shop.add_customers(50)
    await_death(daemon, step, deaths + 1)
    daemon.wait_until(lambda: f"Killed at {step}" in names(daemon), "the next run finishes")
    assert_whole(daemon, deaths + 1)


@pytest.mark.crash
def test_runs_killed_at_every_step_of_a_snapshot_leave_each_row_once(daemon: Daemon) -> None:
    deaths = await_rest(daemon)
    light(daemon, SNAPSHOT_STEPS[0])
    daemon.shop.execute("CREATE TABLE dbo.late (id int NOT NULL PRIMARY KEY, name varchar(20) NULL)")
    daemon.shop.execute("INSERT INTO dbo.late (id, name) VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    daemon.shop.execute("EXEC sys.sp_cdc_enable_table N'dbo', N'late', @role_name = NULL")
    daemon.reload()
    await_deaths(daemon, SNAPSHOT_STEPS, deaths)
    daemon.wait_until(lambda: len(daemon.shop.events("late")) == 3, "the next run finishes")
    assert_whole(daemon, deaths + len(SNAPSHOT_STEPS))
    assert sorted(event["key"]["id"] for event in daemon.shop.events("late")) == [1, 2, 3]


@pytest.mark.crash
def test_run_killed_when_it_has_marked_a_table_goes_on_with_the_others(daemon: Daemon) -> None:
    deaths = await_rest(daemon)
    light(daemon, "tables-marked")
    daemon.shop.execute("EXEC sys.sp_cdc_disable_table N'dbo', N'products', N'dbo_products'")
    daemon.shop.add_customers(1)
    await_death(daemon, "tables-marked", deaths + 1)
    assert await_rest(daemon) == deaths + 1
    assert daemon.shop.doubled() == []
    assert daemon.failed_steps() == 1, "the blocking check of that table must fail the run, after its windows"
    statuses = {state.table.table: state.status for state in daemon.shop.view().state().tables.values()}
    assert statuses.pop("products") == "failed"
    assert set(statuses.values()) == {"healthy"}


def idle(daemon: Daemon) -> bool:
    """Whether no run is at work."""
    return all(run.is_finished for run in daemon.instance.get_runs())
