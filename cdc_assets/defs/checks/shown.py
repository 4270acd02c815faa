"""What Dagster shows of checks, and which results it shows otherwise."""

from collections.abc import Collection, Mapping, Sequence

import dagster as dg

from cdc_assets.defs.dagster_internals import CheckRecord
from cdc_assets.overview.checks.health import HEALTH
from cdc_assets.overview.formatting import without_numbers

Verdict = tuple[bool, str | None]
"""Whether a check passed, and its description; of `health` without the numbers in it, which change all the time."""


def verdict_of(result: dg.AssetCheckEvaluation) -> Verdict:
    """What a result says."""
    text = result.description
    if result.check_name == HEALTH.name and text is not None:
        text = without_numbers(text)
    return result.passed, text


def recorded_verdict(record: CheckRecord) -> Verdict | None:
    """What a record says; None if it was planned and not evaluated."""
    evaluation = record.evaluation
    return verdict_of(evaluation) if evaluation is not None and record.status.value in ("SUCCEEDED", "FAILED") else None


def newest_records(
    instance: dg.DagsterInstance, keys: Collection[dg.AssetCheckKey]
) -> Mapping[dg.AssetCheckKey, CheckRecord]:
    """The newest record of each check that has one."""
    return instance.event_log_storage.get_latest_asset_check_execution_by_key(list(keys)) if keys else {}


def shown_otherwise(
    instance: dg.DagsterInstance, results: Sequence[dg.AssetCheckEvaluation], *, is_news: bool
) -> Sequence[dg.AssetCheckEvaluation]:
    """Results that Dagster shows otherwise: those that fail, those that had failed and pass now, and those that a run has left open.

    Args:
        is_news: whether the page says something else than before, so that failures are compared by their texts, too.
    """
    records = newest_records(instance, [result.asset_check_key for result in results])
    left_open = _left_open(instance, records)
    return [
        result
        for result in results
        if (key := result.asset_check_key) in left_open
        or _is_shown_otherwise(result, records.get(key), is_news=is_news)
    ]


def _left_open(
    instance: dg.DagsterInstance, records: Mapping[dg.AssetCheckKey, CheckRecord]
) -> Collection[dg.AssetCheckKey]:
    """Checks that a run was to evaluate which has ended without that."""
    planned = {key: record.run_id for key, record in records.items() if recorded_verdict(record) is None}
    if not planned:
        return ()
    runs = instance.get_runs(dg.RunsFilter(run_ids=[*{*planned.values()}]))
    at_work = {run.run_id for run in runs if not run.is_finished}
    return {key for key, run in planned.items() if run not in at_work}


def _is_shown_otherwise(result: dg.AssetCheckEvaluation, record: CheckRecord | None, *, is_news: bool) -> bool:
    verdict = recorded_verdict(record) if record else None
    if result.passed:
        return verdict is not None and not verdict[0]
    return verdict is None or verdict[0] or (is_news and verdict != verdict_of(result))
