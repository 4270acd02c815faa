"""Terminate, as the button in the pages does it: a run ends within seconds, is told as canceled and leaves nothing.

What a terminated stream has not read is read by the run of the next test. Spark's session starts beside each run of the sensor,
which has found work, so a run may end in the midst of that.
"""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest

from cdc_assets.defs.partitions import all_ranges, range_partitions
from cdc_assets.defs.process import PROCESS_TAG
from cdc_assets_tests.e2e.conftest import Daemon, busy, dagster_dev
from cdc_assets_tests.patience import wait_until
from cdc_assets_tests.shop import Shop, open_shop
from mssql_standin import sample

pytestmark = pytest.mark.timeout(600)

SECONDS = 45
"""Of a loaded machine; a quiet one takes one to five."""
STEADY = {"stream.idle.timeout.ms": "600000"}
_WRITE = "UPDATE dbo.products SET stock = stock + 1 WHERE sku = 'SKU-0001'"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """With a capture whose runs do not end by themselves, and with its sensor off once it has read the tables."""
    with open_shop(tmp_path_factory.mktemp("terminate")) as shop:
        shop.write(STEADY)
        with dagster_dev(shop) as found:
            found.wait_until(lambda: len(shop.view().state.tables) == 4, "the initial snapshot is through")
            found.stop_sensor()
            found.wait_until(found.idle, "its run has ended")
            yield found


@pytest.fixture
def shop(daemon: Daemon) -> Iterator[Shop]:
    """As it was before the test."""
    yield daemon.shop
    daemon.shop.server.faults.clear()
    daemon.shop.server.faults.struck.clear()
    daemon.shop.write(STEADY)


def launch(daemon: Daemon, job: str = "shop_follow") -> dg.DagsterRun:
    """Launch a job as the sensor does, so that a stream follows the log; returns when its process is known."""
    ranges = all_ranges(range_partitions(8)) if job == "shop_snapshot" else {}
    tags = {"dagster/sensor_name": "shop_lsn"} | ranges
    run_id, found = daemon.launch(job, {}, tags), list[dg.DagsterRun]()

    def works() -> bool:
        run = daemon.instance.get_run_by_id(run_id)
        found[:] = [run] if run and PROCESS_TAG in run.tags else []
        return bool(found)

    daemon.wait_until(works, "the run is at work", 60)
    return found[0]


def processes_of(run: dg.DagsterRun) -> list[psutil.Process]:
    """The run's process and all that it has started: the JVM, Spark's Python workers."""
    process = psutil.Process(int(run.tags[PROCESS_TAG].split("/")[2]))
    return [process, *process.children(recursive=True)]


def assert_ends(daemon: Daemon, run: dg.DagsterRun, *, with_spark: bool) -> None:
    """Terminate a run, whose Spark session may or must be there; it must end as the module's head says."""
    processes = processes_of(run)
    assert not with_spark or any("java" in process.name() for process in processes)
    asked, retries_before = time.monotonic(), retries(daemon, run)
    daemon.terminate(run.run_id)
    wait_for(lambda: status(daemon, run).value in ("CANCELED", "FAILURE"), f"the run ends: {status(daemon, run)}")
    assert status(daemon, run) is dg.DagsterRunStatus.CANCELED
    _, left = psutil.wait_procs(processes, SECONDS)
    assert not left
    print(f"ended after {time.monotonic() - asked:.1f} s")  # noqa: T201
    assert retries(daemon, run) == retries_before
    assert daemon.idle(), "there is no run beside it"


def retries(daemon: Daemon, run: dg.DagsterRun) -> int:
    """How often a step of the run was begun again."""
    again = dg.DagsterEventType.STEP_UP_FOR_RETRY
    return len(daemon.instance.get_records_for_run(run.run_id, of_type=again).records)


def status(daemon: Daemon, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    """Of a run now."""
    found = daemon.instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def wait_for(holds: Callable[[], bool], what: str) -> None:
    """For what must come within seconds."""
    wait_until(holds, SECONDS, lambda: what, every=0.1)


def test_stream_that_waits_while_spark_starts(daemon: Daemon) -> None:
    assert_ends(daemon, launch(daemon), with_spark=False)


def test_stream_whose_server_is_away(daemon: Daemon, shop: Shop) -> None:
    run = launch(daemon)
    shop.server.faults.drop(times=1_000_000)
    daemon.wait_until(lambda: len(shop.server.faults.struck) > 4, "statements fail")
    assert_ends(daemon, run, with_spark=False)


def test_stream_whose_server_does_not_answer(daemon: Daemon, shop: Shop) -> None:
    run = launch(daemon)
    shop.server.faults.hang(times=1_000_000)
    daemon.wait_until(lambda: len(shop.server.faults.struck) > 0, "a statement waits")
    assert_ends(daemon, run, with_spark=False)


def test_snapshot_whose_tasks_wait_for_rows(daemon: Daemon, shop: Shop) -> None:
    shop.server.faults.hang(matching="cdc-assets: rows", times=1_000_000)
    run = launch(daemon, "shop_snapshot")
    daemon.wait_until(lambda: bool(shop.server.faults.struck), "a task waits for rows")
    assert_ends(daemon, run, with_spark=True)


def test_snapshot_that_waits_for_a_table_lock_while_spark_starts(daemon: Daemon, shop: Shop) -> None:
    shop.write(STEADY | {"snapshot.isolation.mode": "exclusive", "snapshot.lock.timeout.ms": "-1"})
    with shop.server.connect(sample.DATABASE, autocommit=False) as writer:
        writer.execute(_WRITE)
        run = launch(daemon, "shop_snapshot")
        daemon.wait_until(lambda: waits_for_a_lock(shop), "the run waits for the lock")
        daemon.wait_until(lambda: len(processes_of(run)) > 1, "a JVM starts")
        assert_ends(daemon, run, with_spark=False)
        writer.rollback()


def waits_for_a_lock(shop: Shop) -> bool:
    """Whether a session does."""
    return bool(shop.server.execute("SELECT 1 FROM sys.dm_exec_requests WHERE blocking_session_id <> 0"))


def test_stream_whose_spark_session_starts(daemon: Daemon, shop: Shop) -> None:
    run = launch(daemon)
    shop.execute(_WRITE)
    daemon.wait_until(lambda: len(processes_of(run)) > 1, "a JVM starts")
    assert_ends(daemon, run, with_spark=False)


def test_stream_with_spark(daemon: Daemon, shop: Shop) -> None:
    before = len(shop.events("products"))
    run = launch(daemon)
    with busy(daemon, _WRITE):
        daemon.wait_until(lambda: len(shop.events("products")) > before + 5, "the run follows the log")
        assert_ends(daemon, run, with_spark=True)
    assert shop.doubled() == []


def test_run_ends_with_the_dagster_dev_that_started_it(tmp_path: Path) -> None:
    with open_shop(tmp_path) as shop:
        shop.write(STEADY)
        with dagster_dev(shop) as daemon:
            daemon.wait_until(lambda: len(shop.view().state.tables) == 4, "the initial snapshot is through")
            daemon.stop_sensor()  # a run of its own would have this one end in its favour
            daemon.wait_until(daemon.idle, "its run has ended")
            run = launch(daemon)
            with busy(daemon, _WRITE):
                daemon.wait_until(lambda: len(shop.events("products")) > 15, "the run follows the log")
                processes = psutil.Process(daemon.process.pid).children(recursive=True)
                daemon.process.send_signal(signal.SIGTERM)
                _, left = psutil.wait_procs(processes, 2 * SECONDS)
            assert not left
            assert status(daemon, run) is dg.DagsterRunStatus.FAILURE
            found = daemon.instance.get_run_by_id(run.run_id)
            assert found is not None
            assert found.tags["dagster/failure_reason"] == "UNEXPECTED_TERMINATION", "no failure of its own"
        assert shop.doubled() == []
