"""The view of a capture from SQL Server."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from cdc_assets.assembly.publishing import TICK_MARKER
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.known_lake import Home
from cdc_assets.defs.view import CaptureView, Seen
from cdc_assets.errors import CdcError
from cdc_assets.lake.system_topics import WINDOWS
from cdc_assets.overview import report_of
from cdc_assets.overview.checks.sqlserver import CHECKS, ServerFacts
from cdc_assets.overview.look import inspected


def server_view(catalog: CaptureCatalog, resource: CaptureResource) -> CaptureView:
    """The capture."""

    @contextmanager
    def answers() -> Iterator[ServerFacts]:
        at, config = datetime.now(UTC), resource.config()
        with resource.overview() as overview:
            yield ServerFacts(overview, lambda: report_of(overview, at, marker=TICK_MARKER.ask(config)))

    return CaptureView(
        capture=catalog.config.name,
        key=catalog.page_key,
        directory=catalog.system[WINDOWS],
        look=lambda: look(catalog, resource),
        answers=answers,
        checks=CHECKS,
        others=(catalog.kafka_key,) if catalog.has_kafka else (),
        tables=len(catalog.tables),
        runs=catalog.runs(),
        home=lambda: Home.of(resource.config().lake, catalog.system[WINDOWS]),
    )


def look(catalog: CaptureCatalog, resource: CaptureResource) -> Seen:
    """Query everything once."""
    config = catalog.config
    with suppress(CdcError):  # which opening the server raises again
        config = resource.config()  # it may name another broker than when definitions were loaded
    seen = inspected(config, lambda: resource.server.quick_source(), audit_s=0.0, marker=TICK_MARKER.ask(config))
    return Seen.of(seen, catalog)
