"""What is wrong with a capture from SQL Server: settings, databases, the lake, tables, and what is made of the topics. Of what the settings
leave out nothing is wrong (`no_longer_captured`)."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.capture_job import CaptureJob
from cdc_assets.errors import describe_error
from cdc_assets.lake.audit import Loss
from cdc_assets.lake.system_topics import history_directory
from cdc_assets.ledger.table_state import EXCLUDED
from cdc_assets.overview.capture import CaptureOverview
from cdc_assets.overview.mirrors import inspect_mirrors
from cdc_assets.overview.published import kafka_troubles, kafka_unknown, published_of
from cdc_assets.overview.report import STOPPED, TableReport, Trouble
from cdc_assets.publish.view import AskMarker


def troubles_of(
    overview: CaptureOverview, jobs: Mapping[str, CaptureJob], tables: Sequence[TableReport]
) -> Iterator[Trouble]:
    """Of the settings, then databases, the lake, and tables; a database's own problem includes those of its tables."""
    problems, history = (
        overview.problems() if overview.asks else {},
        history_directory(overview.config.events.topic_prefix),
    )
    logs = overview.state.logs
    restored = {name: log.restored for name, log in logs.items() if log.restored and overview.is_configured(name)}
    if refused := overview.other_name:
        yield Trouble(refused.what, str(refused))
    yield from (Trouble(name, describe_error(problem)) for name, problem in problems.items())
    yield from (Trouble(name, text) for name, text in restored.items() if name not in problems)
    yield from (
        Trouble(job.database, job.trouble) for job in jobs.values() if job.trouble and job.database not in problems
    )
    yield from (Trouble(loss.directory, _lost(loss, overview.config)) for loss in overview.losses_of_no_table)
    yield from (Trouble(commit.directory, commit.trouble) for commit in overview.doubled)
    if overview.lacks_structures and history not in {loss.directory for loss in overview.losses_of_no_table}:
        yield Trouble(history, _lost(Loss(history, overview.lacks_structures), overview.config))
    known = {*problems, *restored}
    for table in tables:
        if table.condition in STOPPED:
            if table.table.database in known and table.condition == "failed":
                continue
            yield Trouble(str(table.table), table.reason or table.condition)
    yield from (Trouble(found.property_name, str(found)) for found in overview.unmatched)
    for run in overview.state.snapshots.values():
        failed = [(table, reason) for table, reason in run.failed if overview.includes(table)]
        yield from (Trouble(str(table), f"its snapshot failed: {reason}") for table, reason in failed)


def no_longer_captured(overview: CaptureOverview, tables: Sequence[TableReport]) -> Iterator[str]:
    """What was recorded of databases and tables that the settings leave out now: it matters only once they include them again."""
    logs = overview.state.logs
    restored = {name: log.restored for name, log in logs.items() if log.restored and not overview.is_configured(name)}
    yield from (f"{name} is no longer captured. Before that: {text}" for name, text in restored.items())
    for table in tables:
        had_stopped = table.condition == "excluded" and table.reason not in ("", EXCLUDED)
        if had_stopped and table.table.database not in restored:
            yield f"{table.table} is no longer captured. {table.reason}"
        elif table.condition == "excluded" and table.lacks:
            yield f"{table.table} is no longer captured. It lacks changes {table.lacks}, without which it went on"


def _lost(loss: Loss, config: CaptureConfig) -> str:
    if loss.directory == history_directory(config.events.topic_prefix):
        return f"{loss.what}. Next: restore its folder from a copy, or set snapshot.mode=recovery for one run"
    return f"{loss.what}. Next: let a run record it, which continues without what is lost"


def unanswered(overview: CaptureOverview, jobs: Mapping[str, CaptureJob]) -> Iterator[Trouble]:
    """What the server's answers do not say of databases."""
    for database, why in overview.unanswered().items():
        yield Trouble(database, f"how far it is read is not known: {why}")
    yield from (Trouble(job.database, job.unknown) for job in jobs.values() if job.unknown)


def hindered(overview: CaptureOverview, *, retried: bool) -> Iterator[Trouble]:
    """What runs have met in their own questions, however short the lag is.

    Args:
        retried: whether the run itself tries it again.
    """
    for what, found in overview.hindrances.get("stream", {}).items():
        if found.retried is retried:
            yield Trouble(
                what, f"it has been unable to continue since {found.since:%Y-%m-%d %H:%M:%S} UTC: {found.why}"
            )


def derived_troubles(overview: CaptureOverview, at: datetime, marker: AskMarker | None) -> Iterator[Trouble]:
    """What is wrong, or not known, of what is made of the topics: mirrors, and topics in Kafka.

    Raises:
        LakeError: the lake cannot be read.
    """
    yield from itertools.chain(*inspect_mirrors(overview, at))
    published = published_of(overview, at, marker)
    yield from kafka_troubles(published, overview.config.kafka.late_s)
    if published and not published.is_away:  # brokers are queried besides
        yield from kafka_unknown(published)
