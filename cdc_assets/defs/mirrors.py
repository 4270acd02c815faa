"""The `current` and `history` assets: mirrors that follow their topics.

While a run writes to topics, the mirrors follow in the same run: every `mirror.interval.ms` in a thread of its own, so
that the stream does not wait for them, and once more at the end. Their materializations are events of that run. The
assets can also be materialized by themselves, by job `<capture>_mirror` or one by one; the sensor of the capture starts
that job if a mirror is behind while nothing else is to do, for example because it is new.

A mirror that cannot follow fails nothing but itself: in a run of topics the reason is in the log, in its own run it is
the failure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import dagster as dg
import pyarrow as pa
from pydantic import Field

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ran_on import JobAccount, RanOn
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.failures import as_step
from cdc_assets.defs.reporting import ran_on_facts
from cdc_assets.defs.runs import is_asked_for
from cdc_assets.defs.samples import sample_of_mirror
from cdc_assets.errors import CdcError
from cdc_assets.mirror import shape
from cdc_assets.mirror.capture import CaptureMirrors
from cdc_assets.mirror.delta import current_directory, history_directory
from cdc_assets.mirror.shape import COMMENT
from cdc_assets.mirror.work import StepReport

_SOURCE, _TYPE, _NOTE = b"cdc.source.column", b"cdc.source.type", b"cdc.note"
_COMMENT = COMMENT.encode()
_OWN = {
    shape.LSN: "commit LSN that made the row what it is",
    shape.CHANGED_AT: "time of that commit",
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

    rebuild: bool = Field(default=False, description="Make them anew from their topics; their history begins anew too.")


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
        if config.rebuild or is_asked_for(context.run):
            resource.get_ready()
        selected = context.selected_asset_keys
        reports: dict[str, StepReport] = {}
        with as_step(context):
            opened = resource.mirrors(partial(_add, reports))
            tables = {
                table for role in catalog.mirror_roles for key, table in catalog.keys(role).items() if key in selected
            }
            troubles = opened.catch_up(opened.captured(tables), anew=config.rebuild)
        for key, facts in materializations(catalog, opened, reports.values()):
            if key in selected:
                yield dg.MaterializeResult(asset_key=key, metadata=dict(facts))
        if troubles:
            raise dg.Failure(
                description="\n".join(f"{topic}: {error}" for topic, error in troubles.items()), allow_retries=False
            )

    return mirrors


class _Followed(NamedTuple):
    """What was done to let the mirrors follow."""

    mirrors: CaptureMirrors
    reports: Sequence[StepReport]
    troubles: Mapping[str, CdcError]
    ran_on: RanOn


class MirrorFollower:
    """Lets the mirrors of a capture follow while a run writes to its topics; does nothing if there are none."""

    def __init__(self, catalog: CaptureCatalog, context: dg.AssetExecutionContext, resource: CaptureResource) -> None:
        self._catalog, self._context, self._resource = catalog, context, resource
        self._is_on = catalog.config.mirror.enabled
        self._thread: ThreadPoolExecutor | None = None
        self._following: Future[_Followed] | None = None
        self._next = monotonic() + catalog.config.mirror.interval_s
        self._vacuumed: dict[str, float] = {}
        """When tables were vacuumed last, for all that is opened in the run."""
        self._jobs = JobAccount()
        """Where the jobs of all that is opened in the run have run."""

    def note_commit(self) -> None:
        """Called after something was committed to topics."""
        if self._following is not None and self._following.done():
            self._report()
        if self._is_on and self._following is None and monotonic() >= self._next:
            self._begin()

    def finish(self) -> None:
        """Follow to the end of the topics; called when nothing more is committed."""
        if not self._is_on:
            return
        if self._following is not None:
            self._report()
        self._begin()
        self._report()
        if self._thread is not None:
            self._thread.shutdown()

    def _begin(self) -> None:
        self._thread = self._thread or ThreadPoolExecutor(1, "mirrors")
        self._following = self._thread.submit(self._follow)

    def _follow(self) -> "_Followed":
        reports, before = list[StepReport](), self._jobs.of("mirror")
        opened = self._resource.mirrors(reports.append, self._jobs)
        opened.tables.tables.vacuumed = self._vacuumed
        troubles = opened.catch_up()
        return _Followed(opened, reports, troubles, self._jobs.of("mirror").since(before))

    def _report(self) -> None:
        """Wait for the step in flight, and report it."""
        assert self._following is not None  # noqa: S101 - the callers have looked
        following, self._following = self._following, None
        self._next = monotonic() + self._catalog.config.mirror.interval_s
        try:
            opened, reports, troubles, ran_on = following.result()
        except CdcError as error:
            self._context.log.error(f"The mirrors cannot follow: {error}")
            return
        for topic, trouble in troubles.items():
            self._context.log.error(f"The mirror of {topic} cannot follow: {trouble}")
        if reports:
            self._context.log.info(f"mirrors: {len(reports)} steps; ran on {ran_on}")
        sums: dict[str, StepReport] = {}
        for report in reports:
            _add(sums, report)
        for key, facts in materializations(self._catalog, opened, sums.values()):
            self._context.log_event(dg.AssetMaterialization(key, metadata=facts))


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
