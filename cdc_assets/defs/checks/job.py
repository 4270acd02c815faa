"""The half-hourly checks of a capture between runs: the steps of their job, and its schedule.

Dagster writes two records for each check of a run, and each table has a check: with a thousand tables a run of
all of them every half hour writes a hundred thousand records a day that say what is shown already. So the schedule compares the
tables itself, by a few statements for all. It selects the checks of the whole capture, and of those tables whose result is another
one than Dagster shows, or the first. A run of the stream evaluates the checks of the tables that it writes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import dagster as dg

from cdc_assets.defs.checks.events import Checked, result_of, specs_of
from cdc_assets.defs.checks.shown import newest_records, recorded_verdict
from cdc_assets.defs.failures import as_failures
from cdc_assets.defs.run_troubles import is_reported_by_a_run, named, silent_run, troubles_of_runs
from cdc_assets.defs.runs import repository_of
from cdc_assets.defs.view import CaptureView
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.overview.checks.check import Check, Facts, ReportAlone, Subject, Verdict, not_known

ViewOf = Callable[[Any], CaptureView]
"""The view of a capture, from its resource; or from nothing if none is needed."""


def definitions_of(
    checks: Sequence[Check], catalog: Checked, job: str, resource: str, view: ViewOf
) -> list[dg.AssetChecksDefinition]:
    """Definitions of the half-hourly checks of a capture; each is a step of its job.

    Args:
        job: name of that job.
        resource: key of the capture's resource; empty if none is needed.
    """
    own = [check for check in checks if check.when == "half-hourly"]
    return [_definition(check, catalog, job, resource, view) for check in own if catalog.checked(check.of)]


def _definition(check: Check, catalog: Checked, job: str, resource: str, view: ViewOf) -> dg.AssetChecksDefinition:
    needed, specs = {resource} if resource else set[str](), specs_of(check, catalog)

    @dg.multi_asset_check(name=f"{job}_{check.name}", specs=specs, can_subset=True, required_resource_keys=needed)
    def evaluate(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        chosen = sorted(found.asset_key for found in context.selected_asset_check_keys)
        seen_by, subjects = view(getattr(context.resources, resource) if resource else None), catalog.checked(check.of)
        with as_failures():
            found = _verdicts(check, seen_by, context, [subjects[key] for key in chosen])
        yield from (result_of(check, verdict, key) for key, verdict in zip(chosen, found, strict=True))

    return evaluate


def _verdicts(
    check: Check, view: CaptureView, context: dg.AssetCheckExecutionContext, subjects: Sequence[Subject]
) -> list[Verdict]:
    """What a check finds of each subject; a failed step would leave results open, which nobody corrects in this run."""
    try:
        with _facts(check, view, context) as facts:
            return [check.found(facts, subject) for subject in subjects]
    except CdcError as error:
        return [not_known(describe_error(error))] * len(subjects)


def _facts(check: Check, view: CaptureView, context: dg.AssetCheckExecutionContext) -> AbstractContextManager[Facts]:
    """What a check is made of.

    Raises:
        CdcError: the server or the lake does not answer.
    """
    if check.made_of != "report" and view.answers is not None:
        return view.answers()
    report = view.observe().report
    if view.runs is not None:  # the page has them, too
        instance, runs = context.instance, view.runs.of(repository_of(context.run))
        is_reported = is_reported_by_a_run(instance, runs, view.key)
        found = troubles_of_runs(instance, runs, is_reported=is_reported)
        report = replace(report, troubles=(*report.troubles, *found))
        report = named(report, silent_run(instance, runs, view.key))
    return nullcontext(ReportAlone(report, ""))


def half_hourly_schedule(
    catalog: Checked, job: Any, checks: Sequence[Check], resource: str, view: ViewOf
) -> dg.ScheduleDefinition:
    """The schedule of the job.

    Args:
        job: runs all checks; what `dg.define_asset_job` returns.
        resource: key of the capture's resource.
    """

    @dg.schedule(
        job=job,
        cron_schedule="*/30 * * * *",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        required_resource_keys={resource},
        name=f"{job.name}_schedule",
        description=f"Every half hour: {job.description}",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        seen_by = view(getattr(context.resources, resource))
        if seen_by.runs and is_reported_by_a_run(context.instance, seen_by.runs, seen_by.key):
            return dg.SkipReason("A run is active, which does these checks itself.")
        own = [check for check in checks if check.when == "half-hourly"]
        always = [dg.AssetCheckKey(seen_by.key, check.name) for check in own if check.of == "capture"]
        of_tables = [check for check in own if check.of != "capture" and catalog.checked(check.of)]
        outdated = _outdated(of_tables, catalog, seen_by, context.instance) if of_tables else []
        return dg.RunRequest(asset_selection=[], asset_check_keys=[*always, *outdated])

    return schedule


def _outdated(
    checks: Sequence[Check], catalog: Checked, view: CaptureView, instance: dg.DagsterInstance
) -> list[dg.AssetCheckKey]:
    """Checks of tables whose result is not the one that Dagster shows."""
    if view.answers is None:
        return []
    try:
        with view.answers() as facts:
            results = {
                dg.AssetCheckKey(key, check.name): check.found(facts, subject)
                for check in checks
                for key, subject in catalog.checked(check.of).items()
            }
    except CdcError:  # the check of the whole capture says it
        return []
    shown = newest_records(instance, results)
    return [
        key
        for key, result in results.items()
        if key not in shown or recorded_verdict(shown[key]) != (result.passed, result.text)
    ]
