"""The `kafka` asset: the topics in Kafka, which follow those of the lake window by window.

While a run writes to topics, a thread of that run publishes each window as soon as it is complete; at the end of the run
it has some seconds for the rest. Its materializations are events of that run. The asset can also be materialized by itself, by job
`<capture>_publish`; the sensor starts that job if windows wait while no run works: because there are many, because
publishing was turned on later, or because the broker was away. While that job works, the threads of other runs leave
publishing to it.

*Only a run that publishes is waited for.* A run of that job that is queued, or whose process is gone, holds no other back; the sensor
requests no second one while one is queued.

*A topic that is stopped* is tried again at each start of publishing. While nothing else is new, the sensor starts one after pauses
that grow. The run fails when the topic stops; those after it say that it still is, as the page and the check do.

*A fault of publishing ends publishing only*, whatever it is, in a run that writes topics.

*Nothing slows the capture down.* A broker that is away fails nothing in a run of topics: the reason is in the log and on the
page, and the check fails. Nor is it waited for at the end of a run: the page has queried it just before.

*Two publishers* end each other by Kafka's fencing, the newer one the older, and no event is there twice. That of a run comes back after
`_RETRY_AFTER_S` seconds, for a command that somebody has started by hand has mostly ended by then.
"""

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import dagster as dg

from cdc_assets.assembly.publishing import TICK_MARKER
from cdc_assets.core.interruption import Interrupted
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.checks.events import result_of, specs_of
from cdc_assets.defs.failures import as_step
from cdc_assets.defs.runs import COMMITTED_TAG
from cdc_assets.defs.tags import tag_run
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.overview.checks.sqlserver import PUBLISHED, published_facts, published_result
from cdc_assets.publish.publisher import Commit

log = logging.getLogger(__name__)

_REST_S: Final = 20.0
"""Seconds that a run of topics waits at its end for what is not published yet."""
_SILENT_S: Final = 5.0
"""Seconds of that after which it waits no longer if no transaction succeeds."""
_PARTING_S: Final = 1.0
"""Seconds in which publishing may end by itself if nothing is waited for."""
_REPORT_S: Final = 10.0
"""Least seconds between two materializations in a run."""
_RETRY_AFTER_S: Final = 60.0
"""Seconds after which a run of topics begins to publish again if that has failed, or somebody else has published."""
_POLL_S: Final = 5.0
"""Seconds between two checks whether another run publishes."""


@dataclass
class Sum:
    """What was published since something was reported."""

    since: float = field(default_factory=time.monotonic)
    events: int = 0
    transactions: int = 0
    newest: Commit | None = None

    def add(self, commit: Commit) -> None:
        """Add a transaction."""
        self.events, self.transactions, self.newest = self.events + commit.rows, self.transactions + 1, commit

    def metadata(self) -> dict[str, Any]:
        """Metadata for the asset's page; numbers stay numbers, so that the page plots them."""
        facts: dict[str, Any] = {"events": self.events, "transactions": self.transactions}
        facts["ran_on"] = "this process: a transaction of Kafka has one writer"
        facts["events_per_second"] = round(self.events / max(0.001, time.monotonic() - self.since), 1)
        if self.newest is not None:
            facts |= {"window": self.newest.window, "windows_behind": self.newest.complete - self.newest.window}
            facts |= {"published_to_lsn": self.newest.lsn} if self.newest.lsn else {}
            facts |= {"stopped": dict(self.newest.stopped)} if self.newest.stopped else {}
        return facts


def kafka_asset(catalog: CaptureCatalog) -> dg.AssetsDefinition:
    """The asset of the topics in Kafka."""
    names = catalog.names

    @dg.multi_asset(
        name=names.publish_op,
        specs=[catalog.kafka_spec()],
        check_specs=specs_of(PUBLISHED, catalog),
        pool=names.kafka_pool,
        required_resource_keys={names.resource},
    )
    def kafka(context: dg.AssetExecutionContext) -> Iterator[Any]:
        resource: CaptureResource = getattr(context.resources, names.resource)
        done = Sum()
        with as_step(context):
            before = resource.published()
            stopped = resource.publish(done.add)
            found = resource.published()
        tag_run(context.instance, context.run.run_id, {COMMITTED_TAG: str(done.transactions)})
        yield dg.MaterializeResult(asset_key=catalog.kafka_key, metadata=done.metadata() | published_facts(found))
        yield result_of(PUBLISHED, published_result(found), catalog.kafka_key)
        known = before.stopped if before else {}
        for topic in stopped.keys() & known.keys():
            context.log.error(f"{topic} is still not published further: {stopped[topic]}")
        if new := stopped.keys() - known.keys():
            raise dg.Failure(
                description="\n".join(f"{topic}: {stopped[topic]}" for topic in sorted(new)), allow_retries=False
            )

    return kafka


class KafkaFollower:
    """Publishes while the block of a run writes to topics; does nothing unless `kafka.enabled`."""

    def __init__(self, catalog: CaptureCatalog, context: dg.AssetExecutionContext, resource: CaptureResource) -> None:
        self._catalog, self._context, self._resource = catalog, context, resource
        self._ending, self._sum = threading.Event(), Sum()
        self._until: float | None = None
        self._is_abandoned = False
        """Whether the run has ended without it: it must not report any more."""
        self._progress = 0.0
        """When the newest transaction was committed."""
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._catalog.has_kafka:
            self._thread = threading.Thread(target=self._work, name="publishing", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Publish what is complete by now, for some seconds; not if the run has failed, or the broker has just not answered."""
        if self._thread is None:
            return
        is_hopeless = error is not None or TICK_MARKER.is_away(self._catalog.config)
        self._until = time.monotonic() + (0.0 if is_hopeless else _REST_S)
        self._ending.set()
        self._progress = time.monotonic()
        silent = _PARTING_S + (0.0 if is_hopeless else _SILENT_S)
        while self._thread.is_alive() and time.monotonic() - self._progress < silent:
            self._thread.join(0.1)
        self._is_abandoned = self._thread.is_alive()
        if self._is_abandoned:
            self._context.log.warning("Publishing to Kafka did not end with the run; the sensor starts it again.")

    def _work(self) -> None:
        """Publish until the run ends; again after a pause if that fails, since a run may last a day."""
        while True:
            try:
                try:
                    self._publish()
                finally:
                    self._report()
                return
            except (Interrupted, _TimeIsUpError):
                return  # what waits is published by the next run
            except CdcError as error:
                if not self._is_abandoned:
                    self._context.log.error(f"Kafka's topics cannot follow: {describe_error(error)}")
            except Exception:
                log.exception("Publishing to Kafka ended; the capture continues.")
            if self._ending.wait(_RETRY_AFTER_S):
                return

    def _publish(self) -> None:
        publishing = self._catalog.publishing_runs()
        while publishing.others_at_work(self._context.instance, self._context.run):
            if self._ending.wait(_POLL_S):
                return
        self._resource.publish(self._note, ends=self._ending.is_set)

    def _note(self, commit: Commit) -> None:
        self._progress = time.monotonic()
        self._sum.add(commit)
        if time.monotonic() - self._sum.since > _REPORT_S:
            self._report()
        if self._until is not None and time.monotonic() > self._until and commit.complete > commit.window:
            raise _TimeIsUpError

    def _report(self) -> None:
        """Materialize the asset, as an event of this run."""
        if self._sum.events and not self._is_abandoned:
            event = dg.AssetMaterialization(self._catalog.kafka_key, metadata=self._sum.metadata())
            dg.DagsterEvent.asset_materialization(self._context.get_step_execution_context(), event)  # records it
        self._sum = Sum()


class _TimeIsUpError(Exception):
    """Ends publishing after a transaction."""
