"""Events recorded together are those that Dagster records one by one, whatever happens to a portion."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import dagster as dg
import pytest
import sqlalchemy
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage

from cdc_assets.core.steps import VARIABLE
from cdc_assets.defs.batches import PORTION, recorded_together
from cdc_assets_tests.dagster.portions import key, report, report_all

RUN = str(uuid4())


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as found:
        yield found


def shown(instance: dg.DagsterInstance, count: int) -> dict[dg.AssetKey, str]:
    keys = [dg.AssetCheckKey(key(number), "check") for number in range(count)]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    return {check.asset_key: record.status.value for check, record in found.items()}


def reported(instance: dg.DagsterInstance, run_id: str = RUN) -> list[dg.AssetKey | None]:
    events = [entry.dagster_event for entry in instance.all_logs(run_id)]
    return [event.asset_check_evaluation_data.asset_key for event in events if event]


def keys(count: int) -> list[dg.AssetKey]:
    return [key(number) for number in range(count)]


def together(instance: dg.DagsterInstance, numbers: Iterable[int], but: Any = ()) -> None:
    """One portion; some errors are passed over, as Dagster does with those of messages."""
    with recorded_together(instance, RUN):
        for number in numbers:
            with suppress(but):
                report(instance, RUN, number)


def child(folder: Path, run_id: str, count: int, each_s: float = 0.0, crash_at: str = "") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cdc_assets_tests.dagster.portions", str(folder), run_id, str(count), str(each_s)]
    return subprocess.Popen(command, env=os.environ | {VARIABLE: crash_at}, stderr=subprocess.PIPE)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=180)
    return process.returncode, errors.decode()


def test_all_are_recorded_in_their_order_by_few_connections(instance: dg.DagsterInstance) -> None:
    count, opened, inside = 2 * PORTION + 1, 0, SqliteEventLogStorage._connect

    def connect(self: SqliteEventLogStorage, shard: str) -> object:
        nonlocal opened
        opened += 1
        return inside(self, shard)

    with patch.object(SqliteEventLogStorage, "_connect", connect):
        report_all(instance, RUN, range(count))
    assert opened <= 3
    assert reported(instance) == keys(count)
    assert shown(instance, count) == {key(n): "SUCCEEDED" if n % 2 else "FAILED" for n in range(count)}


def test_those_before_a_failure_are_recorded(instance: dg.DagsterInstance) -> None:
    def fail_at_three() -> Iterator[int]:
        yield from range(3)
        raise ValueError(3)

    with pytest.raises(ValueError, match="3"):
        together(instance, fail_at_three())
    assert reported(instance) == keys(3)
    report(instance, RUN, 4)
    assert len(shown(instance, 5)) == 4


@pytest.mark.crash
@pytest.mark.parametrize(
    ("step", "on_run_page"), [("events-recorded:2", PORTION), ("run-events-committed:2", 2 * PORTION)]
)
def test_a_process_that_is_killed_inside_a_portion_leaves_whole_portions_and_no_lock(
    instance: dg.DagsterInstance, tmp_path: Path, step: str, on_run_page: int
) -> None:
    status, errors = ended(child(tmp_path, RUN, 3 * PORTION, crash_at=step))
    assert status == -signal.SIGKILL, errors
    assert reported(instance) == keys(on_run_page)
    assert len(shown(instance, 3 * PORTION)) == PORTION
    with patch("dagster._core.storage.event_log.sqlite.sqlite_event_log.SQLITE_BUSY_TIMEOUT_SECONDS", 0):
        report(instance, RUN, 3 * PORTION)
    report_all(instance, str(uuid4()), range(3 * PORTION))
    assert len(shown(instance, 3 * PORTION + 1)) == 3 * PORTION + 1
    for file in (RUN, INDEX_SHARD_NAME):
        with sqlite3.connect(tmp_path / "history" / "runs" / f"{file}.db") as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]


def test_processes_that_record_at_once_wait_for_each_other(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    count, other = 2 * PORTION, str(uuid4())
    processes = [child(tmp_path, run_id, count, each_s=0.002) for run_id in (RUN, RUN, other)]
    assert [ended(process) for process in processes] == [(0, "")] * 3
    assert sorted(map(str, reported(instance))) == sorted(map(str, 2 * keys(count)))
    assert reported(instance, other) == keys(count)
    assert len(shown(instance, count)) == count


@contextmanager
def full_disk(file: str) -> Iterator[None]:
    """One of the storage's files cannot grow any more."""

    def connected(connection: Any, _: object) -> None:
        if Path(connection.execute("pragma database_list").fetchone()[2]).stem == file:
            connection.execute("pragma max_page_count = 1")

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", connected)
    try:
        yield
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "connect", connected)


@pytest.mark.parametrize("file", [RUN, INDEX_SHARD_NAME], ids=["of-the-run", "of-all-runs"])
@pytest.mark.parametrize("passed_over", [False, True], ids=["raised", "passed-over"])
def test_a_portion_that_finds_no_room_is_told_and_not_recorded(
    instance: dg.DagsterInstance, file: str, passed_over: bool
) -> None:
    report_all(instance, RUN, range(3))
    error = sqlalchemy.exc.OperationalError
    with full_disk(file), pytest.raises(error, match="full"):
        together(instance, range(3, PORTION), but=error if passed_over else ())
    assert reported(instance) == keys(3)
    assert len(shown(instance, PORTION)) == 3
    report_all(instance, RUN, range(3, PORTION))
    assert reported(instance) == keys(PORTION)
    assert len(shown(instance, PORTION)) == PORTION


def test_other_threads_record_meanwhile(instance: dg.DagsterInstance) -> None:
    report(instance, RUN, 0)
    others = [threading.Thread(target=report, args=(instance, run, 1)) for run in (RUN, str(uuid4()))]
    with recorded_together(instance, RUN):
        report(instance, RUN, 2)
        for thread in others:
            thread.start()
        report(instance, RUN, 3)
    for thread in others:
        thread.join(20)
    assert not any(thread.is_alive() for thread in others)
    assert len(shown(instance, 4)) == 4
    assert sorted(map(str, reported(instance))) == sorted(str(key(number)) for number in range(4))


def test_storage_in_memory_records_too() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        report_all(instance, RUN, range(3))
        assert reported(instance) == keys(3)
