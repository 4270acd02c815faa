"""Events recorded together are those that Dagster records one by one."""

import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from cdc_assets.defs.batches import PORTION, record_in_portions, recorded_together

RUN = str(uuid4())


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as found:
        yield found


def key(number: int) -> dg.AssetKey:
    return dg.AssetKey(["shop", f"t{number}"])


def report(instance: dg.DagsterInstance, number: int, run_id: str = RUN) -> None:
    evaluation = dg.AssetCheckEvaluation(asset_key=key(number), check_name="check", passed=bool(number % 2))
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION.value
    instance.report_dagster_event(dg.DagsterEvent(kind, "job", event_specific_data=evaluation), run_id)


def shown(instance: dg.DagsterInstance, count: int) -> dict[dg.AssetKey, str]:
    keys = [dg.AssetCheckKey(key(number), "check") for number in range(count)]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    return {check.asset_key: record.status.value for check, record in found.items()}


def reported(instance: dg.DagsterInstance) -> list[dg.AssetKey | None]:
    events = [entry.dagster_event for entry in instance.all_logs(RUN)]
    return [event.asset_check_evaluation_data.asset_key for event in events if event]


def test_all_are_recorded_in_their_order_by_few_connections(instance: dg.DagsterInstance) -> None:
    count, opened, inside = 2 * PORTION + 1, 0, SqliteEventLogStorage._connect

    def connect(self: SqliteEventLogStorage, shard: str) -> object:
        nonlocal opened
        opened += 1
        return inside(self, shard)

    with patch.object(SqliteEventLogStorage, "_connect", connect):
        record_in_portions(instance, RUN, range(count), lambda number: report(instance, number))
    assert opened <= 3
    assert reported(instance) == [key(number) for number in range(count)]
    assert shown(instance, count) == {key(n): "SUCCEEDED" if n % 2 else "FAILED" for n in range(count)}


def test_those_before_a_failure_are_recorded(instance: dg.DagsterInstance) -> None:
    def fail_at_three(number: int) -> None:
        if number == 3:
            raise ValueError(number)
        report(instance, number)

    with pytest.raises(ValueError, match="3"):
        record_in_portions(instance, RUN, range(5), fail_at_three)
    assert reported(instance) == [key(0), key(1), key(2)]
    report(instance, 4)
    assert len(shown(instance, 5)) == 4


def test_other_threads_record_meanwhile(instance: dg.DagsterInstance) -> None:
    report(instance, 0)
    others = [threading.Thread(target=report, args=(instance, 1, run)) for run in (RUN, str(uuid4()))]
    with recorded_together(instance, RUN):
        report(instance, 2)
        for thread in others:
            thread.start()
        report(instance, 3)
    for thread in others:
        thread.join(20)
    assert not any(thread.is_alive() for thread in others)
    assert len(shown(instance, 4)) == 4
    assert sorted(map(str, reported(instance))) == sorted(str(key(number)) for number in range(4))


def test_storage_in_memory_records_too() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        record_in_portions(instance, RUN, range(3), lambda number: report(instance, number))
        assert reported(instance) == [key(0), key(1), key(2)]
