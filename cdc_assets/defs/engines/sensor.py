"""One sensor per capture by an embedded connector: compares the end of the database's log with the lake, and starts a run if it has grown.

A tick is one connection with one small query, one read of the ledger, and, if the connector reads a signal file, a look into the
lake's folder of signals; no JVM. The cursor is not used for positions; it shows why
a tick has started nothing, for the list of ticks.

A tick that finds nothing waits for a change (`defs.schedule`), by asking for the end of the log, and, if that has moved, whether anything
captured is after the lake.

*When something is new.* A run starts unless the lake is proved to be complete to the log's end (`is_complete`). No run starts either if
the last run was quiet there at most `_UNPROVED` ago: it says so by its tag `cdc/read_to`. Changes of tables
that are not captured move the log, too: a run then only moves the offset, by a heartbeat. A mode of snapshots that reads no log needs no run
once they are taken, but for signals.

*Without a driver*, or for databases of which nothing is known, the sensor cannot query. It then starts a run when the last one
ended `_BLIND` ago.

*Run keys, failures, terminations:* `defs.schedule`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import dagster as dg
from dagster import DagsterRunStatus

from cdc_assets.assembly.engine import inbox_of
from cdc_assets.config.engine import EngineConfig
from cdc_assets.connectors.engine.signalled_run import channels_of, holds_signals, signal_file
from cdc_assets.connectors.engine.source import LogPoint, is_complete
from cdc_assets.defs.engines.assets import READ_TO
from cdc_assets.defs.engines.catalog import ConnectorCatalog
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.defs.engines.view import connector_view
from cdc_assets.defs.schedule import Asks, Records, growing_retry_time, is_failing, retry_time, run_key, waits_until
from cdc_assets.defs.sensors import HINDERED_TAG, SIGNAL_TAG
from cdc_assets.defs.ticks import NOTHING_NEW, Answer, sensor_of
from cdc_assets.errors import EngineError
from cdc_assets.lake.audit import Turns
from cdc_assets.ledger.hindrances import THE_RUN

POSITION_TAG = "cdc/position"
"""On a run that the sensor has started: where the log ended."""
_FILE = "file"
"""Value of the tag of a run that takes signals up."""
_IS_OVER = "All tables were read, and snapshot.mode=initial_only reads no log; only signals start runs."
_BLIND = timedelta(minutes=1)
_UNPROVED = timedelta(minutes=10)
"""How long a run's quietness counts, if nothing proves that it has read everything."""


def log_sensor(catalog: ConnectorCatalog, jobs: Sequence[Any]) -> dg.SensorDefinition:
    """The sensor of one capture."""
    about = "Compares the end of the database's log with the lake, and starts a run of the connector if there is more to read; never a second run at a time."
    view = partial(connector_view, catalog, turns=Turns())  # each tick has a resource and a view of its own
    return sensor_of(catalog, catalog.names.log_sensor, about, jobs, view, _Decider(catalog))


class _Decider:
    """See `ticks.Decider`. Ticks of one capture follow each other."""

    def __init__(self, catalog: ConnectorCatalog) -> None:
        self._catalog = catalog
        self._end: LogPoint | None = None
        """Where the log has ended last."""

    def times(self, resource: ConnectorResource) -> tuple[float, float]:
        """As `ticks.Decider.times`."""
        now = resource.settings()
        return now.sensor_wait_s, now.poll_interval_s

    @contextmanager
    def changes(self, resource: ConnectorResource) -> Iterator[Asks]:
        """Queries whether the log has grown by something that the lake may lack."""
        state = resource.overview().state
        with resource.probe() as probe:

            def has_come() -> bool:
                before, self._end = self._end, (end := probe.log_end())
                return end != before and not is_complete(state, probe, end)

            yield has_come

    def answer(self, _: dg.SensorEvaluationContext, resource: ConnectorResource, records: Records) -> Answer:
        """As `ticks.Decider.answer`."""
        catalog, overview = self._catalog, resource.overview()
        overview.state  # noqa: B018 - raises if the lake is gone
        if _signals_wait(overview.config) and not retry_time(records, SIGNAL_TAG, _FILE):
            return _run(catalog, records, "signals", {SIGNAL_TAG: _FILE})
        if overview.is_over:
            return _seeing(catalog, records, _IS_OVER)
        try:
            with resource.probe() as probe:
                self._end = end = probe.log_end()
                if is_complete(overview.state, probe, end):
                    return _seeing(catalog, records, f"{NOTHING_NEW}.")
        except EngineError as error:
            if again := waits_until(records, _BLIND):
                what = f"The next run starts after {again:%H:%M:%S} UTC, whether something is new or not: {error}"
                return dg.SkipReason(what)
            return _run(catalog, records, "again", {})
        if overview.state.quiet and _has_just_read(records, end):
            return dg.SkipReason(f"{NOTHING_NEW}: the last run has read the log to {end}, and found nothing more.")
        return _run(catalog, records, str(end), {POSITION_TAG: str(end)})


def _has_just_read(records: Records, end: LogPoint) -> bool:
    """Whether the last run was quiet at this end of the log, not long ago."""
    if waits_until(records, _UNPROVED) is None:
        return False
    last = records[0].dagster_run
    return last.status is DagsterRunStatus.SUCCESS and last.tags.get(READ_TO) == str(end)


def _run(catalog: ConnectorCatalog, records: Records, what: str, tags: dict[str, str]) -> dg.RunRequest:
    """A request for a run, which writes all tables whatever is selected; so the number of records does not grow with them."""
    return dg.RunRequest(
        run_key=run_key(catalog.names.capture, records, what),
        job_name=catalog.names.changes,
        asset_selection=[catalog.page_key],
        asset_check_keys=[],
        tags=tags,
    )


def _seeing(catalog: ConnectorCatalog, records: Records, why: str) -> Answer:
    """A request for a run where nothing is to be read, if the last one failed: the page says so until another one reports.

    Args:
        why: nothing is.
    """
    if not is_failing(records):
        return dg.SkipReason(why)
    if again := growing_retry_time(records, HINDERED_TAG, THE_RUN):
        return dg.SkipReason(f"{THE_RUN} failed; the next attempt starts after {again:%H:%M:%S} UTC.")
    return _run(catalog, records, "hindered", {HINDERED_TAG: THE_RUN})


def _signals_wait(config: EngineConfig) -> bool:
    """Whether signals wait in the lake, or in the connector's file if this machine has it."""
    return "file" in channels_of(config) and (inbox_of(config).waiting({}) or holds_signals(signal_file(config)))
