"""The page of a capture by an embedded connector: the report of `overview.engine`, shown as that of SQL Server's captures.

Lateness is told by the page alone while a run works: as a check's result it would be another one every few seconds. A database that
does not answer fails the check of completeness at once, as it fails that of head-room.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg

from cdc_assets.adapters.databases.probe import is_asked
from cdc_assets.assembly.engine import ask_unread
from cdc_assets.defs.board import evaluated
from cdc_assets.defs.engines.catalog import ConnectorCatalog
from cdc_assets.defs.engines.checks import COMPLETE, HEADROOM, complete_result, headroom_result, nothing_to_remove
from cdc_assets.defs.engines.resource import ConnectorResource
from cdc_assets.defs.known_lake import Home
from cdc_assets.defs.live import Seen, Subject
from cdc_assets.engine.overview import EngineOverview
from cdc_assets.engine.topics import BATCHES
from cdc_assets.errors import CdcError, describe_error
from cdc_assets.overview.engine import Answers, Asked, answers_of, report_of_engine


def engine_subject(catalog: ConnectorCatalog, resource: ConnectorResource) -> Subject:
    """The capture, as its page needs it."""

    def ask() -> Seen:
        return look(catalog, resource)

    def unknown(reason: str) -> Iterator[dg.AssetCheckEvaluation]:
        yield evaluated(headroom_result(None, reason), catalog.batches_key, HEADROOM, blocking=True)
        unknown = dg.AssetCheckResult(
            passed=False, severity=dg.AssetCheckSeverity.WARN, description=f"Not known: {reason}"
        )
        yield evaluated(unknown, catalog.batches_key, COMPLETE)

    def home() -> Home:
        return Home.of(resource.settings().lake, catalog.system[BATCHES])

    directory, runs = catalog.system[BATCHES], catalog.runs()
    return Subject(catalog.config.name, catalog.batches_key, directory, ask, runs=runs, unknown=unknown, home=home)


def look(catalog: ConnectorCatalog, resource: ConnectorResource) -> Seen:
    """Ask lake and database once; whatever cannot be asked is in the report, and fails the checks that depend on it."""
    at = datetime.now(UTC)
    overview = resource.overview()
    asked = answers_of(overview, resource.probe if is_asked(overview.config) else None, ask_unread(overview.config))
    return Seen(report_of_engine(overview, asked, at), tuple(_results(catalog, overview, asked)))


def _results(catalog: ConnectorCatalog, overview: EngineOverview, asked: Asked) -> Iterator[dg.AssetCheckEvaluation]:
    key = catalog.batches_key
    answers = asked if isinstance(asked, Answers) else None
    problem = describe_error(asked) if isinstance(asked, CdcError) else "there is no database to ask"
    headroom = headroom_result(answers.retention if answers else None, problem, nothing_to_remove(overview))
    yield evaluated(headroom, key, HEADROOM, blocking=True)
    try:
        proved = answers is not None and answers.proved
        if proved or overview.losses or isinstance(asked, CdcError):
            complete = complete_result(overview, answers.end if answers else None, proved=proved, problem=problem)
            yield evaluated(complete, key, COMPLETE)
    except CdcError as error:
        lost = dg.AssetCheckResult(passed=False, description=describe_error(error))
        yield evaluated(lost, key, COMPLETE)
