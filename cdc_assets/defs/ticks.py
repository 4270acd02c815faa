"""A tick of a capture's sensor: it decides what to do, and keeps the capture's page true if no run does.

*There is always a report.* Who makes it is decided by the age of the newest one of a run (`seen`), not by Dagster's status of
runs: after a full queue, while a run starts, after its process was frozen or killed, the sensor reports what it sees.

*First the page, then the error.* What hinders a tick must not hinder the page: whatever a decision raises is reported once
the page is, and an error for which somebody has to act is shown even if the report found nothing.

*A tick ends.* It waits `_GRACE_S` for its decision (`asking`); Dagster would throw it away after sixty seconds. If the decision takes
longer than one that waits for a change, a report is begun beside it, so that the end of the tick shows whether that is answered.

*Cursor.* It stores the reason of the last tick, since Dagster's list of ticks shows cursors, but of a tick without a run not why;
and after it which start that was (`service`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from time import monotonic
from typing import Any, Protocol

import dagster as dg

from cdc_assets.core.asking import Asking
from cdc_assets.defs.catalog import Catalog
from cdc_assets.defs.run_troubles import is_reported_by_a_run, named, silent_run, troubles_of_runs
from cdc_assets.defs.runs import CaptureRuns, repository_here
from cdc_assets.defs.schedule import Asks, Records, change_comes, pause_of
from cdc_assets.defs.view import CaptureView, Observation
from cdc_assets.defs.watch import Events, IdlePage
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.overview.report import Trouble

_SOON_S, _GRACE_S, _RETRY_AFTER_S = 4.5, 16.0, 1.0
"""Seconds that a tick waits for its decision: without a report beside it, in all, and for one that an earlier tick has requested."""
_BEHIND_REASON = " · start "
_LONGEST_REASON = 500
"""Characters of a cursor that say why a run was requested."""

Answer = dg.RunRequest | dg.SkipReason


NOTHING_NEW = "Nothing new"
"""How an answer begins if there is nothing to do."""


class Decider(Protocol):
    """What one kind of capture has of its own in a sensor."""

    def answer(self, context: dg.SensorEvaluationContext, resource: Any, records: Records) -> Answer:
        """What there is to do, where no run is at work and no pause lasts.

        Args:
            records: those of the capture's newest runs.

        Raises:
            CdcError: the server or the lake cannot be read.
        """

    def times(self, resource: Any) -> tuple[float, float]:
        """How long a tick may wait for a change, and the interval between two questions; in seconds."""

    def changes(self, resource: Any) -> AbstractContextManager[Asks]:
        """Opens a connection over which the tick asks for news."""


def sensor_of(
    catalog: Catalog, name: str, about: str, jobs: Sequence[Any], view: Callable[[Any], CaptureView], decider: Decider
) -> dg.SensorDefinition:
    """The sensor of one capture. A tick that finds nothing waits for a change (`schedule`).

    Args:
        name: of the sensor.
        about: its description.
        view: the capture, from its resource.
    """
    resource_key = catalog.names.resource
    runs = catalog.runs()
    watch = Watch(catalog.names.capture, runs)

    @dg.sensor(
        name=name,
        jobs=list(jobs),
        minimum_interval_seconds=1,  # the daemon ticks every 5 s; a minimum of 5 would give 5 to 10
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={resource_key},
        description=about,
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason | dg.SensorResult:
        resource = getattr(context.resources, resource_key)

        def answer() -> Answer:
            records, pause = pause_of(runs.of(repository_here(context)), context.instance)
            return dg.SkipReason(pause) if pause else decider.answer(context, resource, records)

        def decide() -> Answer:
            began, found = monotonic(), answer()
            if isinstance(found, dg.SkipReason) and (found.skip_message or "").startswith(NOTHING_NEW):
                wait_s, every_s = decider.times(resource)
                if change_comes(context, began, wait_s, every_s, lambda: decider.changes(resource)):
                    found = answer()
            return found

        return watch.tick(context, decide, view(resource))

    return sensor


class Watch:
    """The ticks of one capture.

    Args:
        capture: its name.
        runs: those that write to it.
    """

    def __init__(self, capture: str, runs: CaptureRuns) -> None:
        self._runs, self._page = runs, IdlePage()
        self._asking: Asking[tuple[Answer, str]] = Asking(f"tick of {capture}")

    def tick(
        self, context: dg.SensorEvaluationContext, decide: Callable[[], Answer], view: CaptureView
    ) -> Answer | dg.SensorResult:
        """Decide, and report.

        Args:
            decide: finds from server and lake what there is to do.

        Raises:
            Exception: a decision's, unless it may succeed later; the page was reported before it is raised.
        """
        context.instance  # noqa: B018 - opened here, and not by the thread beside
        error, hindrance, start = None, "", start_of(context)
        try:
            view.share_home(context.instance)
            found = self._found(lambda: (decide(), start_of(context)), view)
        except Exception as raised:  # noqa: BLE001 - raised again, once the page is reported
            answer: Answer = dg.SkipReason(describe_error(raised))
            if not (isinstance(raised, CdcError) and raised.retryable):
                error, hindrance = raised, describe_error(raised)
        else:
            if found is None:
                hindrance = f"no answer from the server, the lake or Kafka since {self._asking.since:%H:%M:%S} UTC"
            answer, start = found or (dg.SkipReason(f"There was {hindrance}."), start)
        context.update_cursor(f"{reason_of(answer)}{_BEHIND_REASON}{start}")
        events = self._events(context, view, hindrance)
        if error is not None:
            for event in events:
                context.instance.report_runless_asset_event(event)
            raise error
        if not events:
            return answer
        if isinstance(answer, dg.RunRequest):
            return dg.SensorResult(run_requests=[answer], asset_events=events)
        return dg.SensorResult(skip_reason=answer, asset_events=events)

    def _found(self, question: Callable[[], tuple[Answer, str]], view: CaptureView) -> tuple[Answer, str] | None:
        """The decision; None if there is none in time."""
        if self._asking.is_under_way:
            return self._asking.ask(question, _RETRY_AFTER_S)
        found = self._asking.ask(question, _SOON_S)
        if found is None:
            self._page.begin(view)
            found = self._asking.ask(question, _GRACE_S - _SOON_S)
        return found

    def _events(self, context: dg.SensorEvaluationContext, view: CaptureView, hindrance: str) -> Events:
        """The capture's page if there is news and no run reports it."""
        instance, runs = context.instance, self._runs.of(repository_here(context))
        if is_reported_by_a_run(instance, runs, view.key):
            self._page.forget()
            return []
        found = list(_troubles(instance, runs, hindrance))
        return self._page.events(instance, _naming(view, silent_run(instance, runs, view.key)), found)


def _naming(view: CaptureView, silent: Trouble | None) -> CaptureView:
    """The view, whose reports name a run that does not go on while there is something to do."""

    def observe() -> Observation:
        seen = view.observe()
        return replace(seen, report=named(seen.report, silent))

    return view if silent is None else replace(view, observe=observe)


def _troubles(instance: dg.DagsterInstance, runs: CaptureRuns, hindrance: str) -> Iterator[Trouble]:
    """What Dagster knows, and a report does not find."""
    if hindrance:
        yield Trouble("the sensor", f"it cannot find out what there is to do: {hindrance}")
    yield from troubles_of_runs(instance, runs, is_reported=False)


def start_of(context: dg.SensorEvaluationContext) -> str:
    """The start that the cursor names."""
    return (context.cursor or "").rpartition(_BEHIND_REASON)[2]


def reason_of(answer: Answer) -> str:
    """What a tick decided, for the list of ticks."""
    return answer.skip_message or "" if isinstance(answer, dg.SkipReason) else _requested(answer)


def _requested(request: dg.RunRequest) -> str:
    """Which run is requested, and why."""
    why = "; ".join(f"{name} {value}" for name, value in request.tags.items() if name.startswith("cdc/"))
    return f"Requested a run of {request.job_name}{f': {why:.{_LONGEST_REASON}}' if why else ''}."
