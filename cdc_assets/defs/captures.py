"""One capture as a Dagster resource: its configuration and its adapters."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_assets.adapters.kafka.signals import kafka_channels
from cdc_assets.assembly.capture import open_capture
from cdc_assets.assembly.mirrors import open_mirrors
from cdc_assets.assembly.publishing import TICK_MARKER, publish_topics
from cdc_assets.capture.capture import Capture
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.ran_on import JobAccount
from cdc_assets.defs.spark import OnAnySpark, SparkDependency
from cdc_assets.defs.sqlserver import SqlServerCdcResource
from cdc_assets.lake.topics import TopicTables
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.work import OnStep, StepReport
from cdc_assets.overview import CaptureOverview, published_of
from cdc_assets.publish.publisher import Commit
from cdc_assets.publish.view import PublishedReport
from cdc_assets.shared.progress import OnProgress, OnRead, RangesRead
from cdc_assets.system_topics.notifications import Listener

if TYPE_CHECKING:
    from cdc_assets.reconcile.run import Reconciler


def _ignore(report: StepReport) -> None:
    del report


def _ignore_read(read: RangesRead) -> None:
    del read


class CaptureResource(OnAnySpark, dg.ConfigurableResource):  # type: ignore[type-arg] # the resource's value is the resource itself
    """Opens a capture for one run, with Spark as its task runner.

    Holds the path of the configuration and not its content, so that no secret appears on Dagster's pages.
    """

    server: dg.ResourceDependency[SqlServerCdcResource]
    spark: SparkDependency

    def config(self) -> CaptureConfig:
        """The settings, read now.

        Raises:
            ConfigurationError: the settings cannot be read or are invalid.
        """
        return self.server.settings()

    def get_ready(self) -> None:
        """Start Spark beside what a run does first; for runs that are known to have work."""
        self.spark.early_runner().get_ready()

    def open(
        self,
        run_id: str,
        on_progress: OnProgress,
        listener: Listener | None = None,
        tables: TopicTables | None = None,
        *,
        on_read: OnRead = _ignore_read,
        limits: Mapping[str, Any] | None = None,
    ) -> AbstractContextManager[Capture]:
        """The capture, closed at the end of the block. No JVM starts before there are rows to read.

        Args:
            run_id: run id in the context headers of events.
            on_progress: called after each committed window and round.
            listener: called with every notification.
            tables: Delta tables to commit to, from the IO manager; opened from the settings if None.
            on_read: called after each snapshot of a table, or of some of its ranges.
            limits: when the run ends, instead of the configured times: fields of `StreamingSettings`.
        """
        config = self.config()
        config = replace(config, streaming=replace(config.streaming, **(limits or {})))
        return open_capture(
            config, self.spark.early_runner(), on_progress, on_read=on_read, run_id=run_id, listener=listener, tables=tables,
            source=self.server.source(), bulk=self.server.bulk(),
        )  # fmt: skip

    def mirrors(self, on_step: OnStep = _ignore, account: JobAccount | None = None) -> CaptureMirrors:
        """The mirrors of the capture. No JVM starts before there are events to apply.

        Args:
            on_step: called after each step of a mirror.
            account: where their jobs are counted; of a run that opens them several times.

        Raises:
            ConfigurationError: the settings skip operations that mirrors need.
        """
        return open_mirrors(self.config(), self.spark.early_runner(), on_step, account)

    def publish(
        self, on_commit: Callable[[Commit], None], *, ends: Callable[[], bool] | None = None
    ) -> Mapping[str, str]:
        """Write the topics of the lake to Kafka until nothing is new; the topics that are stopped, with the reason.

        Args:
            on_commit: called after each transaction.
            ends: if given, new windows are waited for until it is true; what is complete by then is published.

        Raises:
            FencedError: another publisher has taken over.
            CdcError: the lake cannot be read, or the broker was away for too long.
        """
        if ends is None:
            return publish_topics(self.config(), on_commit, follow=False)
        return publish_topics(self.config(), on_commit, follow=True, ends=ends)

    def recorded(self) -> int:
        """Number of the newest row of the manifest; -1 if there is none."""
        rows = CaptureOverview(self.config()).rows()
        return int(rows[-1]["sequence"]) if rows else -1

    def published(self) -> PublishedReport | None:
        """How far the topics in Kafka are; None if nothing is written to Kafka.

        Raises:
            CdcError: the lake cannot be read.
        """
        config = self.config()
        return published_of(CaptureOverview(config), datetime.now(UTC), TICK_MARKER.ask(config))

    def reconciler(self) -> AbstractContextManager[tuple[CaptureMirrors, "Reconciler"]]:
        """The mirrors and what compares them with the server, closed at the end of the block.

        Raises:
            ConfigurationError: the settings skip operations that mirrors need.
        """
        from cdc_assets.assembly.reconciler import open_reconciler  # imports that a stream does not need

        return open_reconciler(
            self.config(),
            self.spark.early_runner(),
            source=self.server.source(),
            bulk=self.server.bulk(),
        )

    @contextmanager
    def overview(self, *, at_signals: bool = False) -> Iterator[CaptureOverview]:
        """An overview of the capture for sensors and checks, with short timeouts.

        Args:
            at_signals: whether signal channels are read too.
        """
        config = self.config()
        with ExitStack() as stack:
            source = stack.enter_context(self.server.quick_source())
            channels = stack.enter_context(kafka_channels(config)) if at_signals else []
            yield CaptureOverview(config, source, channels)
