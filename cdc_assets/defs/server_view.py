"""The view of a capture from SQL Server."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from cdc_assets.assembly.publishing import TICK_MARKER
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.view import CaptureView, Observation
from cdc_assets.errors import CdcError
from cdc_assets.lake.audit import Turns
from cdc_assets.lake.system_topics import WINDOWS
from cdc_assets.overview import report_of
from cdc_assets.overview.checks.sqlserver import CHECKS, ServerFacts
from cdc_assets.overview.report_builder import inspect_server

_AUDIT_S = 0.1
"""Seconds of a report for topics that seem right: a tick every few seconds comes to all of them."""


def server_view(catalog: CaptureCatalog, resource: CaptureResource, turns: Turns | None = None) -> CaptureView:
    """The capture.

    Args:
        turns: of somebody who makes a view for each report, as each tick of a sensor does.
    """
    turns = turns or Turns()

    @contextmanager
    def answers() -> Iterator[ServerFacts]:
        at, config = datetime.now(UTC), resource.config()
        with resource.overview() as overview:
            yield ServerFacts(overview, lambda: report_of(overview, at, marker=TICK_MARKER.ask(config)))

    return CaptureView(
        capture=catalog.config.name,
        key=catalog.page_key,
        directory=catalog.system[WINDOWS],
        observe=lambda: observe_server(catalog, resource, turns),
        answers=answers,
        checks=CHECKS,
        others=(catalog.kafka_key,) if catalog.has_kafka else (),
        tables=len(catalog.tables),
        runs=catalog.runs(),
        lake=lambda: resource.config().lake,
    )


def observe_server(catalog: CaptureCatalog, resource: CaptureResource, turns: Turns | None = None) -> Observation:
    """Query everything once, and compare some of the topics that seem right with their marks, others each time."""
    config = catalog.config
    with suppress(CdcError):  # which opening the server raises again
        config = resource.config()  # it may name another broker than when definitions were loaded
    marker = TICK_MARKER.ask(config)
    seen = inspect_server(config, lambda: resource.server.quick_source(), audit_s=_AUDIT_S, turns=turns, marker=marker)
    return Observation.of(seen, catalog)
