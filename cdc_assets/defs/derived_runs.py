"""Runs that the sensor requests so that everything derived from topics keeps up: mirrors, and Kafka.

Both follow in the runs that write topics. A run of their own is for what these could not do: nothing was written since, a step lasts too
long for a run to wait for it, a broker was away. The sensor requests one if nothing else is to do (`sensors`).
"""

from collections.abc import Sequence
from time import monotonic

import dagster as dg

from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.runs import CaptureRuns
from cdc_assets.defs.schedule import MAX_FAILURES, growing_retry_time, pause_ends, run_key, terminated_until
from cdc_assets.errors import describe_error
from cdc_assets.lake.audit import Turns

MIRRORS_TAG = "cdc/mirrors"
"""On a run that was started because mirrors lag their topics: these topics."""
MIRRORED_TAG = "cdc/mirrored"
"""On the same run: the newest row of the manifest when it was requested."""
KAFKA_TAG = "cdc/kafka"
"""On a run that was started because windows wait to be published: how many."""
_MAX_TRIES = 8
"""Runs for the same mirrors after a run of the capture: about an hour."""
_BROKER_AWAY_S = 30.0
"""Seconds after which a broker that does not answer is queried again, since a tick waits for it."""


def mirroring(
    catalog: CaptureCatalog,
    resource: CaptureResource,
    instance: dg.DagsterInstance,
    runs: CaptureRuns,
    records: Sequence[dg.RunRecord],
    turns: Turns,
    *,
    first: bool = False,
) -> dg.RunRequest | dg.SkipReason | None:
    """A request for a run of the mirrors only, if they lag their topics and none is under way. One that fails is repeated after pauses
    that grow, a few times unless more is recorded, because a refused mirror keeps lagging; meanwhile the sensor does everything
    else. One that succeeded has come as far as it could, until more is recorded, which need not be by a run of the capture's jobs.

    Args:
        records: the newest ended runs of the capture.
        turns: of the sensor: by turns of each tick the mirrors that lack data would be others, and a new reason, each time.
        first: whether only the first such run after them is requested.
    """
    if not catalog.keys("current"):
        return None
    try:
        behind = resource.mirrors().behind(turns)
        recorded = str(resource.recorded()) if behind else ""
    except Exception as error:  # noqa: BLE001 - whatever it is, topics do not wait for it
        return dg.SkipReason(f"How far the mirrors are is not known: {describe_error(error)}")
    own = catalog.mirror_runs().of(runs.repository)
    if not behind or own.active(instance):
        return None
    what, since = ", ".join(behind), records[0].storage_id if records else -1
    ended = own.finished_of(instance, catalog.names.mirror, _MAX_TRIES)
    ended = [record for record in ended if record.storage_id > since]
    tries = [record for record in ended if record.dagster_run.tags.get(MIRRORS_TAG) == what]
    if (ended and first) or (tries and not _is_tried_again(tries, what, recorded)):
        return None
    key = run_key(catalog.names.capture, ended or records, "mirrors")
    return dg.RunRequest(run_key=key, job_name=catalog.names.mirror, tags={MIRRORS_TAG: what, MIRRORED_TAG: recorded})


def _is_tried_again(tries: Sequence[dg.RunRecord], what: str, recorded: str) -> bool:
    """Whether mirrors that lag after some runs for them get another one now."""
    last = tries[0].dagster_run
    is_more = last.tags.get(MIRRORED_TAG) != recorded
    if last.status is dg.DagsterRunStatus.FAILURE:
        return (is_more or len(tries) < _MAX_TRIES) and growing_retry_time(tries, MIRRORS_TAG, what) is None
    return is_more


class KafkaRuns:
    """Requests runs that publish to Kafka.

    Args:
        catalog: the assets of the capture.
    """

    def __init__(self, catalog: CaptureCatalog) -> None:
        self._catalog = catalog
        self._done = -1
        """Newest row of the manifest when nothing waited."""
        self._next = 0.0

    def request(
        self, instance: dg.DagsterInstance, runs: CaptureRuns, resource: CaptureResource
    ) -> dg.RunRequest | dg.SkipReason | None:
        """A request if windows wait, or a topic is stopped, and no run publishes; the reason if it has to wait itself.

        Args:
            runs: those that publish only.
        """
        names = self._catalog.names
        if runs.active(instance):
            return None
        records = runs.finished_of(instance, names.publish, MAX_FAILURES)
        if again := terminated_until(records):
            return dg.SkipReason(
                f"The last run that published was terminated; the next starts after {again:%H:%M:%S} UTC."
            )
        if ends := pause_ends(records, of_any_kind=True):
            return dg.SkipReason(f"Publishing to Kafka failed; the next attempt starts after {ends:%H:%M:%S} UTC.")
        size = resource.recorded()
        if size == self._done:
            return None
        if monotonic() < self._next:
            return None
        found = resource.published()
        if found is None or found.problem:
            self._next = monotonic() + _BROKER_AWAY_S
            return None
        if not (found.waiting or found.stopped):  # of a topic of the capture as a whole it is not known what waits
            self._done = size
            return None
        key = run_key(names.capture, records, f"kafka:{size}")
        return dg.RunRequest(run_key=key, job_name=names.publish, tags={KAFKA_TAG: str(found.waiting)})
