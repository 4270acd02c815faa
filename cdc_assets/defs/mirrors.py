"""The `current` and `history` assets: mirrors that follow their topics.

While a run writes to topics, the mirrors follow in the same run: every `mirror.interval.ms` in a thread of its own, so
that the stream does not wait for them, and once more at the end. Their materializations are events of that run. The
assets can also be materialized by themselves, by job `<capture>_mirror` or one by one; the sensor of the capture starts
that job if a mirror lags while nothing else is to do, for example because it is new. While it works, other runs leave the
mirrors to it. Unless a run of the mirrors is the sensor's, it reports all that are selected, also those that have nothing new.

*No run waits for long.* The end of a run of topics, which holds the pool of the capture, waits `_REST_S` seconds for its mirrors. What
lasts longer, as the first step of a large mirror does, is left: the run says so by a tag, and the sensor starts the job, beside
which the next stream works. *Crash, and a run that is terminated,* leave a step as any crash does (`mirror.apply`): the next one repeats it.

A mirror that cannot follow fails nothing but itself, whatever the reason is: in a run of topics it is in the log, in its own
run it is the failure.
"""

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Any, Final

import dagster as dg
import pyarrow as pa
from pydantic import Field

from cdc_assets.core.asking import begun
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.interruption import sleep
from cdc_assets.core.ran_on import NOWHERE, JobAccount, RanOn
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.derived_runs import MIRRORS_TAG
from cdc_assets.defs.failures import as_step
from cdc_assets.defs.row_facts import ran_on_facts
from cdc_assets.defs.runs import is_asked_for
from cdc_assets.defs.samples import sample_of_mirror
from cdc_assets.defs.tags import tag_run
from cdc_assets.defs.turns import Turns
from cdc_assets.errors import CdcError, FencedError, describe_error
from cdc_assets.lake.row_shape import CHANGED_AT
from cdc_assets.mirror import shape
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.delta import current_directory, history_directory
from cdc_assets.mirror.ledger import MirrorState
from cdc_assets.mirror.shape import COMMENT
from cdc_assets.mirror.work import StepReport

log = logging.getLogger(__name__)

MIRRORS_LEFT_TAG = "cdc/mirrors_left"
"""On a run whose end did not wait for its mirrors any more."""
_REST_S: Final = 20.0
"""Seconds that a run of topics waits at its end for its mirrors."""
_POLL_S: Final = 0.05
"""Seconds between two checks whether they are done."""

_SOURCE, _TYPE, _NOTE = b"cdc.source.column", b"cdc.source.type", b"cdc.note"
_COMMENT = COMMENT.encode()
_OWN = {
    shape.LSN: "commit LSN that made the row what it is",
    CHANGED_AT: "time of that commit",
    shape.FROM_LSN: "commit LSN from which the version was the row",
    shape.TO_LSN: "commit LSN from which it was not any more",
    shape.FROM_AT: "time of the first of them",
    shape.TO_AT: "time of the second",
    shape.ENDED_BY: "what ended it: u, d, or r if the table was read again",
    shape.STEP: "step of the mirror that recorded it",
}
"""Descriptions of the columns that no source has."""


class MirrorConfig(dg.Config):
    """How mirrors are materialized."""

    rebuild: bool = Field(default=False, description="Rebuild them from their topics; their history starts again too.")


def mirror_assets(catalog: CaptureCatalog) -> dg.AssetsDefinition:
    """The multi-asset of all mirrors of a capture."""
    names = catalog.names

    @dg.multi_asset(
        name=names.mirror_op,
        specs=[*catalog.specs("current", deps="changes"), *catalog.specs("history", deps="changes")],
        can_subset=True,
        pool=names.mirror_pool,
        required_resource_keys={names.resource},
    )
    def mirrors(context: dg.AssetExecutionContext, config: MirrorConfig) -> Iterator[Any]:
        resource: CaptureResource = getattr(context.resources, names.resource)
        is_sensors = is_asked_for(context.run, names.sensor)
        if config.rebuild or is_sensors:
            resource.get_ready()
        selected = context.selected_asset_keys
        reports: dict[str, StepReport] = {}
        with as_step(context), Turns(context, catalog.mirror_record).taken():
            opened = resource.mirrors(partial(_add, reports))
            tables = {
                table for role in catalog.mirror_roles for key, table in catalog.keys(role).items() if key in selected
            }
            captured = opened.captured(tables)
            named = context.run.tags.get(MIRRORS_TAG, "").split(", ")
            suspected = [table for table in captured if catalog.topic(table) in named]
            troubles = opened.catch_up(captured, anew=config.rebuild, suspected=suspected)
            if not is_sensors:
                topics = [catalog.topic(table) for table in captured]
                reports |= _unmoved(opened, [topic for topic in topics if topic not in {*reports, *troubles}])
        for key, facts in materializations(catalog, opened, reports.values()):
            if key in selected:
                yield dg.MaterializeResult(asset_key=key, metadata=dict(facts))
        if troubles:
            raise dg.Failure(
                description="\n".join(f"{topic}: {error}" for topic, error in troubles.items()), allow_retries=False
            )

    return mirrors


def _unmoved(mirrors: CaptureMirrors, topics: Iterable[str]) -> dict[str, StepReport]:
    """Mirrors that are where their topics are, as steps that have done nothing."""
    states, found = mirrors.states(), {}
    for topic in topics:
        state = states.get(topic, MirrorState())
        rows = sum(count for _, _, count in mirrors.tables.files(current_directory(topic)))
        found[topic] = StepReport(topic, state.step, state.lsn, rows=rows)
    return found


@dataclass
class _Followed:
    """What following has come to, as far as it came."""

    opened: CaptureMirrors | None = None
    reports: list[StepReport] = field(default_factory=list)
    troubles: Mapping[str, CdcError] = field(default_factory=dict)
    error: Exception | None = None
    ran_on: RanOn = NOWHERE


class MirrorFollower:
    """Lets the mirrors of a capture follow while a run writes to its topics; does nothing if there are none, or while another run
    keeps them."""

    def __init__(self, catalog: CaptureCatalog, context: dg.AssetExecutionContext, resource: CaptureResource) -> None:
        self._catalog, self._context, self._resource = catalog, context, resource
        self._is_on = catalog.config.mirror.enabled
        self._following: Future[_Followed] | None = None
        self._next = monotonic() + catalog.config.mirror.interval_s
        self._vacuumed: dict[str, float] = {}
        """When tables were vacuumed last, for all that is opened in the run."""
        self._jobs = JobAccount()
        """Where the jobs of all that is opened in the run have run."""
        self._is_left = threading.Event()

    def note_commit(self) -> None:
        """Called after something was committed to topics."""
        if self._following is not None and self._following.done():
            self._report()
        if self._is_on and self._following is None and monotonic() >= self._next:
            self._begin()

    def finish(self) -> None:
        """Follow to the end of the topics, for some seconds; called when nothing more is committed.

        Raises:
            Interrupted: the run was to end.
        """
        if not self._is_on:
            return
        until = monotonic() + _REST_S
        if self._ended(until):
            self._begin()
            self._ended(until)

    def _ended(self, until: float) -> bool:
        """Wait for the step in flight, if there is one, and report it; whether it has ended in time."""
        while self._following is not None and not self._following.done():
            if monotonic() >= until:
                self._leave()
                return False
            sleep(_POLL_S)
        if self._following is not None:
            self._report()
        return True

    def _leave(self) -> None:
        self._is_left.set()
        tag_run(self._context.instance, self._context.run.run_id, {MIRRORS_LEFT_TAG: "true"})
        self._context.log.info("The mirrors continue in a separate run, which the sensor starts.")

    def _begin(self) -> None:
        self._next = monotonic() + self._catalog.config.mirror.interval_s
        if not self._catalog.mirror_runs().others_at_work(self._context.instance, self._context.run):
            self._following = begun("mirrors", self._follow)

    def _follow(self) -> _Followed:
        found, before = _Followed(), self._jobs.of("mirror")
        try:
            found.opened = self._resource.mirrors(found.reports.append, self._jobs)
            found.opened.tables.tables.vacuumed = self._vacuumed
            found.troubles = found.opened.catch_up(should_end=self._is_left.is_set)
        except Exception as error:
            if not isinstance(error, CdcError):
                log.exception("The mirrors cannot follow; the capture continues.")
            found.error = error
        found.ran_on = self._jobs.of("mirror").since(before)
        return found

    def _report(self) -> None:
        """Report the step that has ended."""
        assert self._following is not None  # noqa: S101 - the callers have checked
        following, self._following = self._following, None
        self._next = monotonic() + self._catalog.config.mirror.interval_s
        found = following.result()
        if isinstance(found.error, FencedError):
            self._context.log.info(f"The mirrors are left to another run: {found.error}")
        elif found.error is not None:
            self._context.log.error(f"The mirrors cannot follow: {describe_error(found.error)}")
        for topic, trouble in found.troubles.items():
            self._context.log.error(f"The mirror of {topic} cannot follow: {trouble}")
        if found.opened is None:
            return
        if found.reports:
            self._context.log.info(f"mirrors: {len(found.reports)} steps; ran on {found.ran_on}")
        sums: dict[str, StepReport] = {}
        for report in found.reports:
            _add(sums, report)
        for report in sums.values():
            try:
                for key, facts in materializations(self._catalog, found.opened, [report]):
                    self._context.log_event(dg.AssetMaterialization(key, metadata=facts))
            except Exception:
                log.exception("A step of the mirror of %s could not be reported; the capture continues.", report.topic)


def _add(sums: dict[str, StepReport], report: StepReport) -> None:
    """Add a step to those of the same mirror that are not reported yet."""
    earlier = sums.get(report.topic)
    sums[report.topic] = report.after(earlier) if earlier else report


def materializations(
    catalog: CaptureCatalog, mirrors: CaptureMirrors, reports: Iterable[StepReport]
) -> Iterator[tuple[dg.AssetKey, dict[str, Any]]]:
    """Keys and metadata of the assets that steps have written."""
    topics = {catalog.topic(table): table for table in catalog.keys("current").values()}
    schemas = {schema.table: schema for schema in catalog.tables}
    for report in reports:
        table = topics.get(report.topic)
        if table is None:
            continue
        common: dict[str, Any] = {"lsn": report.lsn, "step": report.step, "events": report.events, "bytes": report.size}
        common |= ran_on_facts(report.ran_on)
        if report.newest:
            common["last_commit"] = dg.MetadataValue.timestamp(report.newest)
            common["lag_seconds"] = round(max(0.0, (datetime.now(UTC) - report.newest).total_seconds()), 3)
        rows = {"dagster/row_count": report.rows, "files_written": report.rewritten, "leaves_rewritten": report.leaves}
        rows |= sample_of_mirror(catalog.config, mirrors.tables.tables, report.topic, schemas[table])
        yield catalog.key(table, "current"), common | rows | _columns(catalog, mirrors, table, "current")
        versions = sum(count for _, _, count in mirrors.tables.files(history_directory(report.topic)))
        ended = {"versions_ended": report.ended, "dagster/row_count": versions}
        yield catalog.key(table, "history"), common | ended | _columns(catalog, mirrors, table, "history")


def _columns(catalog: CaptureCatalog, mirrors: CaptureMirrors, table: TableId, role: str) -> dict[str, Any]:
    """The natural columns and where they come from."""
    directory = (current_directory if role == "current" else history_directory)(catalog.topic(table))
    schema = mirrors.tables.schema(directory)
    if schema is None:
        return {}
    source = catalog.key(table, "source")
    origins = {
        field.name: [dg.TableColumnDep(asset_key=source, column_name=(field.metadata or {})[_SOURCE].decode())]
        for field in schema
        if _SOURCE in (field.metadata or {})
    }
    return {
        "dagster/column_schema": dg.TableSchema(columns=[_column(field) for field in schema]),
        "dagster/column_lineage": dg.TableColumnLineage(deps_by_column=origins),
    }


def _column(field: pa.Field) -> dg.TableColumn:
    about = field.metadata or {}
    texts = [about[name].decode() for name in (_TYPE, _NOTE, _COMMENT) if about.get(name)]
    return dg.TableColumn(
        name=field.name,
        type=str(field.type),
        description="; ".join(texts) or _OWN.get(field.name),
        constraints=dg.TableColumnConstraints(nullable=field.nullable),
    )
