"""Has a capture continue after another reader: a plan, which writes nothing, and its record."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cdc_assets.adapters.sqlserver.log_times import LogTimes
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.adoption.history import Columns
from cdc_assets.adoption.offsets import ConnectorOffset
from cdc_assets.adoption.plan import AdoptionPlan, AdoptionPlanner, CommitTimes
from cdc_assets.adoption.record import captured_before, record, refuse_captured
from cdc_assets.assembly.capture import without_runner
from cdc_assets.capture.capture import Capture
from cdc_assets.capture.selection import select
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.ledger.state import CaptureState
from cdc_assets.shared.losses import refuse_without_manifest


class Adoption:
    """Lets a capture that has captured nothing, or nothing else but tables beside an adoption that was interrupted, continue after another
    reader.

    Args:
        capture: opened only for this.
    """

    def __init__(self, capture: Capture) -> None:
        self._capture, self._parts = capture, capture.parts

    def plan(
        self, offsets: Mapping[str, ConnectorOffset], times: CommitTimes, known: Mapping[TableId, Columns] | None = None
    ) -> AdoptionPlan:
        """Where each captured table would continue; nothing is written.

        Args:
            offsets: where the other reader stopped, by database.
            times: times of the server's commits.
            known: tables of its schema history; None if there is none.

        Raises:
            InvalidValueError: an offset is not of this server or does not say what was delivered, or something was
                captured before.
            CdcError: the server or the lake cannot be read.
        """
        config, server, lake, manifest = (
            self._parts.config,
            self._parts.server,
            self._parts.lake,
            self._parts.ledger.manifest,
        )
        state = manifest.read()
        refuse_captured(state, config.events.topic_prefix, lake.tables.location.root)
        if lake.tables.open(manifest.directory) is None:
            refuse_without_manifest(lake.tables, CaptureState(), manifest.directory, config)
        found = select(config, server, state)
        for problem in found.unavailable.values():
            raise problem
        return AdoptionPlanner(config, server, times, known, captured_before(state)).plan(found.tables, offsets)

    def record(self, plan: AdoptionPlan) -> None:
        """Claim the capture and record a plan.

        Raises:
            InvalidValueError: something was captured meanwhile.
            CdcError: see `adoption.record`.
        """
        self._capture.claim()
        record(plan, self._parts.server, self._parts.lake, self._parts.ledger)


@contextmanager
def open_adoption(config: CaptureConfig) -> Iterator[tuple[Adoption, LogTimes, SqlServerSource]]:
    """A capture that takes over from another reader, the times of the server's commits, and the server.

    Raises:
        CdcError: the server cannot be reached.
    """
    with SqlServerSource.of(config) as control:
        yield Adoption(without_runner(config, control)), LogTimes(control), control
