"""Reports batches of a run as few, complete materializations: see `defs.reporter`.

*Materialized means read.* READ events materialize a table's `snapshot` if they are all of the table: those of the connector's own first
snapshot, which is one batch, and at its end those of a run that has requested them. What another signal requests is an
observation: whether a condition chose the rows, or more follow, only the connector knows. (Topics and files that others have written
do not show that either; there each batch with READ events is a materialization.)
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import dagster as dg

from cdc_assets.config.reader import is_reader
from cdc_assets.core.ran_on import count_of
from cdc_assets.defs.engines.catalog import ConnectorCatalog
from cdc_assets.defs.envelope_io import Committed
from cdc_assets.defs.io_managers import Writers
from cdc_assets.defs.keys import Role
from cdc_assets.defs.reporter import OPERATIONS
from cdc_assets.defs.runtime import Runtime
from cdc_assets.defs.watch import LivePage
from cdc_assets.engine.counted import counted
from cdc_assets.engine.ledger import Batch
from cdc_assets.engine.source import point_of_offset
from cdc_assets.errors import CdcError
from cdc_assets.lake.files import DataFile
from cdc_assets.metrics.exports import OnCommit

_ROLES: tuple[Role, ...] = ("snapshot", "changes")
_Place = tuple[dg.AssetKey, str, bool]
"""An asset, its table's directory, and whether what came for it is only observed."""
_RAN_ON = "the connector's own process, and this one, which commits what it has read"


@dataclass(slots=True)
class BatchSum:
    """What was written to one asset since its last report."""

    rows: Counter[str] = field(default_factory=Counter)
    size: int = 0
    batches: int = 0
    last: int = -1
    at: datetime | None = None

    def add(self, rows: Mapping[str, int], size: int, batch_id: int) -> None:
        """Add a part of a batch."""
        self.rows.update(rows)
        self.size += size
        self.batches += batch_id != self.last
        self.last, self.at = batch_id, datetime.now(UTC)

    def metadata(self, reached: str) -> dict[str, Any]:
        """Metadata for the asset page."""
        facts: dict[str, Any] = {"rows": sum(self.rows.values()), "batches": self.batches}
        facts |= {"last_batch": self.last} if self.batches else {}
        facts |= {"bytes": self.size} if self.size else {}
        facts |= {f"rows_{OPERATIONS.get(op, op)}": count for op, count in sorted(self.rows.items())}
        facts |= {"to_position": reached} if reached else {}
        facts["ran_on"] = _RAN_ON
        return facts | ({"last_commit": dg.MetadataValue.timestamp(self.at)} if self.at else {})


class BatchReport:
    """Adds up the batches of one run.

    Args:
        writers: the IO managers by which the run writes.
        every_s: minimum number of seconds between two reports.
        page: the capture's page, which the record of batches carries.
    """

    def __init__(
        self,
        catalog: ConnectorCatalog,
        context: dg.AssetExecutionContext,
        writers: Writers,
        every_s: float,
        page: LivePage,
    ) -> None:
        self._page = page
        self._catalog, self._context, self._writers, self._every_s = catalog, context, writers, every_s
        self._sums: dict[_Place, BatchSum] = {}
        self._is_reader = is_reader(catalog.config.properties.get("connector.class", ""))
        self._brought: dict[dg.AssetKey, Counter[str]] = defaultdict(Counter)
        """Rows by operation since the run began; not of the record of batches, which no IO manager writes."""
        self._since = monotonic()
        self._reached = ""
        self._count: OnCommit = lambda _: None
        self._short = {directory: name for name, directory in catalog.system.items()}
        self.batches, self._runtime = 0, Runtime(context)

    def add(self, batch: Batch) -> None:
        """Add a committed batch, and report if it is time."""
        self.batches += 1
        self._runtime.note_progress()
        for part in counted(self._catalog.config, batch):
            self._count(part)
        for _, offset in batch.offsets:
            self._reached = str(point_of_offset(offset) or self._reached)
        for directory, files in batch.files.items():
            for file in files:
                self._add(directory.partition("@")[0], file, batch)
        ledger = self._catalog.system["batches"]
        self._sum(self._catalog.page_key, ledger).add({"event": batch.rows}, 0, batch.batch_id)
        self._context.log.info(
            f"batch {batch.batch_id}: {count_of(batch.rows, 'event')} in {count_of(len(batch.files), 'table')}"
        )
        if monotonic() - self._since >= self._every_s:
            self._log_all()

    def _sum(self, key: dg.AssetKey, directory: str, *, observed: bool = False) -> BatchSum:
        return self._sums.setdefault((key, directory, observed), BatchSum())

    def _add(self, topic: str, file: DataFile, batch: Batch) -> None:
        if topic in self._short:
            rows = dict(file.operations) or {"event": file.rows}
            self._bring(self._catalog.system_key(self._short[topic]), topic, rows, file.size, batch)
            return
        if topic.startswith("__") or ".__" in topic:
            return
        reads = {op: count for op, count in file.operations.items() if op == "r"}
        others = {op: count for op, count in file.operations.items() if op != "r"}
        table = self._catalog.table(topic)
        parts: dict[Role, dict[str, int]] = {"snapshot": reads, "changes": others}
        for role, rows in parts.items():
            if rows and self._catalog.has(table, role):
                is_partial = role == "snapshot" and not (batch.anew or self._is_reader)
                self._bring(self._catalog.key(table, role), topic, rows, file.size, batch, is_partial=is_partial)

    def _bring(
        self,
        key: dg.AssetKey,
        topic: str,
        rows: Mapping[str, int],
        size: int,
        batch: Batch,
        *,
        is_partial: bool = False,
    ) -> None:
        observed = is_partial and key not in self._context.selected_asset_keys
        self._sum(key, topic, observed=observed).add(rows, size, batch.batch_id)
        self._brought[key].update(rows)

    def _drain(self) -> Iterator[tuple[dg.AssetKey, Committed, bool]]:
        """What was summed up, by asset, and whether it is only observed."""
        sums, self._sums, self._since = self._sums, {}, monotonic()
        for (key, directory, observed), total in sums.items():
            page = self._page.facts() if key == self._catalog.page_key else {}
            yield key, Committed(directory, page | total.metadata(self._reached), self._brought.get(key, {})), observed

    def _log_all(self, partly: Container[dg.AssetKey] = ()) -> None:
        for key, committed, observed in self._drain():
            self._log_one(key, committed, observed=observed or key in partly)

    def _log_one(self, key: dg.AssetKey, committed: Committed, *, observed: bool) -> None:
        event = dg.AssetObservation if observed else dg.AssetMaterialization
        self._context.log_event(event(key, metadata=self._writers.account(committed)))

    @contextmanager
    def counting(self, exported: AbstractContextManager[OnCommit]) -> Iterator[None]:
        """Count batches in metrics. If the block fails or is interrupted, report what was committed until then: no later run does.
        A selected `snapshot` is only observed then: not all that was to be read is there.

        Args:
            exported: exports metrics.
        """
        try:
            with exported as self._count:
                yield
        except BaseException:
            with suppress(CdcError):
                self._log_all(self._catalog.keys("snapshot").keys() & self._context.selected_asset_keys)
            raise

    def results(self, *, all_selected: bool = False) -> Iterator[dg.MaterializeResult[Committed]]:
        """The last report of the run.

        Args:
            all_selected: whether selected assets are reported too of which nothing was read.
        """
        if all_selected:
            known = {key for key, _, _ in self._sums}
            for key, directory in self._directories():
                if key in self._context.selected_asset_keys - known:
                    self._sum(key, directory)
        for key, committed, observed in self._drain():
            if key in self._context.selected_asset_keys:
                yield dg.MaterializeResult(asset_key=key, value=committed)
            else:  # not selected, but written by the same run; or newer than the loaded code location
                self._log_one(key, committed, observed=observed)

    def _directories(self) -> Iterator[tuple[dg.AssetKey, str]]:
        """All assets that runs write, with their tables."""
        catalog = self._catalog
        yield from ((catalog.system_key(name), directory) for name, directory in catalog.system.items())
        for topic, schema in catalog.topics.items():
            yield from ((catalog.key(schema.table, role), topic) for role in _ROLES)
