"""Results of a check, recorded in portions; in a process of its own: `python -m … <instance> <run> <count> <seconds each>`."""

import sys
import time
from collections.abc import Iterable

import dagster as dg

from cdc_assets.defs.batches import record_in_portions


def key(number: int) -> dg.AssetKey:
    """An asset of the check."""
    return dg.AssetKey(["shop", f"t{number}"])


def report(instance: dg.DagsterInstance, run_id: str, number: int) -> None:
    """Record one result."""
    evaluation = dg.AssetCheckEvaluation(asset_key=key(number), check_name="check", passed=bool(number % 2))
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION.value
    instance.report_dagster_event(dg.DagsterEvent(kind, "job", event_specific_data=evaluation), run_id)


def report_all(instance: dg.DagsterInstance, run_id: str, numbers: Iterable[int], each_s: float = 0.0) -> None:
    """Record results, slowly."""

    def one(number: int) -> None:
        report(instance, run_id, number)
        time.sleep(each_s)

    record_in_portions(instance, run_id, numbers, one)


if __name__ == "__main__":
    folder, run_id, count, each_s = sys.argv[1:]
    with dg.DagsterInstance.local_temp(folder) as instance:
        report_all(instance, run_id, range(int(count)), float(each_s))
