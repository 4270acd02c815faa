"""The view of a capture by an embedded connector, or of events that others have written.

Lateness is only on the page while a run works: as a check's result it would be another one every few seconds. A database that
does not answer fails the check of completeness at once, as it fails that of head-room.
"""

from contextlib import nullcontext
from datetime import UTC, datetime

from cdc_assets.assembly.engine import ask_unread
from cdc_assets.connectors.engine.topics import BATCHES
from cdc_assets.defs.engines.catalog import ConnectorCatalog
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.defs.view import CaptureView, Observation
from cdc_assets.lake.audit import Turns
from cdc_assets.overview.checks.check import Inspection
from cdc_assets.overview.checks.connector import CHECKS, ConnectorFacts
from cdc_assets.overview.engine import answers_of


def connector_view(catalog: ConnectorCatalog, resource: ConnectorResource, turns: Turns | None = None) -> CaptureView:
    """The capture.

    Args:
        turns: of somebody who makes a view for each report, as each tick of a sensor does.
    """
    turns = turns or Turns()

    def facts() -> ConnectorFacts:
        at, overview = datetime.now(UTC), resource.overview(turns)
        return ConnectorFacts(overview, answers_of(overview, resource.probe, ask_unread(overview.config)), at)

    return CaptureView(
        capture=catalog.config.name,
        key=catalog.page_key,
        directory=catalog.system[BATCHES],
        observe=lambda: Observation.of(Inspection.of(CHECKS, facts()), catalog),
        answers=lambda: nullcontext(facts()),
        checks=CHECKS,
        runs=catalog.runs(),
        lake=lambda: resource.settings().lake,
    )
