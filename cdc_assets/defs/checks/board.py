"""Shows results of checks so that Dagster's pages keep showing them while assets are materialized every few seconds.

*The rule of the pages.* A page shows the newest result of a check only if it belongs to the asset's newest materialization: it
is of the same run, or newer than it. All else is *Not Evaluated*. So a failure that the sensor or another job reports
disappears with the next window. Here results are reported under the id of the run that materializes the asset, so that
they belong to all of its materializations: one record for each result that is new, however long the run is.

*Another run's result in between.* Dagster has one record for each check and run, in order of their first reports. So a result
that another run reports meanwhile (checks started by hand) hides the run's own for good. That matters if one of the two has
failed. Then the run's own result is reported once more without a run, which adds a record, and one that has failed again after the next
materialization. Good results are compared less often, since there are many.

*One board in a run.* All results of a run are shown here, from any thread, so that none is reported twice.

*Crash:* nothing is kept; the next run reports the results of its own.
"""

import threading
from collections.abc import Collection, Iterable, Mapping
from time import monotonic

import dagster as dg

from cdc_assets.defs.checks.shown import newest_records, recorded_verdict, verdict_of
from cdc_assets.defs.dagster_internals import CheckRecord, newest_target

_COMPARE_EVERY_S = 15.0
"""Least seconds between two searches for failures that another run has reported of what is good."""


class CheckBoard:
    """The results that one run shows.

    Args:
        instance: where results are recorded.
        run_id: the run that materializes the assets.
        job_name: job of that run.
    """

    def __init__(self, instance: dg.DagsterInstance, run_id: str, job_name: str) -> None:
        self._instance, self._run_id, self._job_name = instance, run_id, job_name
        self._own: dict[dg.AssetCheckKey, dg.AssetCheckEvaluation] = {}
        self._lock, self._compared_at = threading.Lock(), float("-inf")

    def show(
        self,
        results: Iterable[dg.AssetCheckEvaluation],
        materialized: Collection[dg.AssetKey],
        *,
        last: bool = False,
        anew: bool = False,
    ) -> None:
        """Report results that the pages do not show yet, or will not show any more.

        Args:
            materialized: assets that this run has materialized, or will.
            last: whether these assets' results are reported again also if only their facts differ.
            anew: whether the sensor may have reported other results meanwhile, so that good ones have to be repeated, too.
        """
        with self._lock:
            self._show({result.asset_check_key: result for result in results}, materialized, last, anew)

    def _show(
        self,
        found: Mapping[dg.AssetCheckKey, dg.AssetCheckEvaluation],
        materialized: Collection[dg.AssetKey],
        last: bool,
        anew: bool,
    ) -> None:
        changed = [
            key
            for key, result in found.items()
            if not self._is_reported(result, last and key.asset_key in materialized)
        ]
        is_due = anew or monotonic() - self._compared_at >= _COMPARE_EVERY_S
        self._compared_at = monotonic() if is_due else self._compared_at
        watched = [key for key, result in found.items() if is_due or not result.passed]
        shown = newest_records(self._instance, {*changed, *watched})
        new = [key for key in changed if key.asset_key in materialized or not self._is_settled(found[key], shown)]
        for key in new:
            self._report(found[key])
            record = shown.get(key)
            if record is not None and key in self._own and record.run_id != self._run_id:
                self._report_beside(found[key])
            self._own[key] = found[key]
        for key in set(watched) - set(changed):
            record = shown.get(key)
            if record is not None and record.run_id != self._run_id and self._hides(record, found[key]):
                self._report_beside(found[key])

    def _is_reported(self, result: dg.AssetCheckEvaluation, with_facts: bool) -> bool:
        """Whether this run has reported the same."""
        reported = self._own.get(result.asset_check_key)
        if reported is None or verdict_of(reported) != verdict_of(result):
            return False
        return not with_facts or reported.metadata == result.metadata

    def _is_settled(self, result: dg.AssetCheckEvaluation, shown: Mapping[dg.AssetCheckKey, CheckRecord]) -> bool:
        """Whether an earlier run's result says the same and stays."""
        key = result.asset_check_key
        record = shown.get(key)
        return key not in self._own and record is not None and recorded_verdict(record) == verdict_of(result)

    def _hides(self, record: CheckRecord, result: dg.AssetCheckEvaluation) -> bool:
        """Whether another run's record says something else, or, of a failure, is not of the newest materialization."""
        if recorded_verdict(record) != verdict_of(result):
            return True
        if result.passed:
            return False
        target = record.evaluation.target_materialization_data if record.evaluation else None
        newest = newest_target(self._instance, result.asset_key)
        return newest is not None and (target is None or target != newest)

    def _report_beside(self, result: dg.AssetCheckEvaluation) -> None:
        """Report a result without a run, for the newest materialization: times are too coarse to show that it is newer."""
        event = dg.AssetCheckEvaluation(
            asset_key=result.asset_key,
            check_name=result.check_name,
            passed=result.passed,
            metadata=result.metadata,
            severity=result.severity,
            description=result.description,
            blocking=result.blocking,
            target_materialization_data=newest_target(self._instance, result.asset_key),
        )
        self._instance.report_runless_asset_event(event)

    def _report(self, result: dg.AssetCheckEvaluation) -> None:
        event = dg.DagsterEvent(
            dg.DagsterEventType.ASSET_CHECK_EVALUATION.value, self._job_name, event_specific_data=result
        )
        self._instance.report_dagster_event(event, self._run_id)
