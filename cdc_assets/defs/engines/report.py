"""Reports batches of a run as few, complete materializations: see `defs.reporter`.

*Materialized means read.* READ events materialize a table's `snapshot` if they are all of the table: those of the connector's own first
snapshot, which is one batch, and at its end those of a run that has requested them. What another signal requests is an
observation: whether a condition chose the rows, or more follow, only the connector knows. (Topics and files that others have written
do not show that either; there each batch with READ events is a materialization.)
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import dagster as dg

from cdc_assets.connectors.engine.batch_metrics import parts_by_database
from cdc_assets.connectors.engine.ledger import Batch
from cdc_assets.connectors.engine.source import point_of_offset
from cdc_assets.defs.engines.catalog import ConnectorCatalog
from cdc_assets.defs.envelope_io import Committed
from cdc_assets.defs.keys import Role
from cdc_assets.defs.row_facts import rows_facts
from cdc_assets.defs.runtime import Runtime
from cdc_assets.defs.writing import Results, Writing
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
        facts: dict[str, Any] = rows_facts(self.rows) | {"batches": self.batches, "ran_on": _RAN_ON}
        facts |= {"last_batch": self.last} if self.batches else {}
        facts |= {"bytes": self.size} if self.size else {}
        facts |= {"to_position": reached} if reached else {}
        return facts | ({"last_commit": dg.MetadataValue.timestamp(self.at)} if self.at else {})


class BatchReport:
    """Adds up the batches of one run.

    Args:
        written: what the run writes with; its page is that of the record of batches.
        every_s: minimum number of seconds between two reports.
        count: counts batches in metrics.
    """

    def __init__(
        self,
        catalog: ConnectorCatalog,
        context: dg.AssetExecutionContext,
        written: Writing,
        every_s: float,
        count: OnCommit,
    ) -> None:
        self._catalog, self._context, self._every_s, self._count = catalog, context, every_s, count
        self._page, self._events = written.page, written.events
        self._sums: dict[_Place, BatchSum] = {}
        self._brought: dict[dg.AssetKey, Counter[str]] = defaultdict(Counter)
        """Rows by operation since the run began; not of the record of batches, which no IO manager writes."""
        self._since = monotonic()
        self._reached = ""
        self._short = {directory: name for name, directory in catalog.system.items()}
        self._runtime = Runtime(context)

    def add(self, batch: Batch) -> None:
        """Add a committed batch, and report if it is time."""
        self._runtime.note_progress()
        for part in parts_by_database(self._catalog.config, batch):
            self._count(part)
        for _, offset in batch.offsets:
            self._reached = str(point_of_offset(offset) or self._reached)
        for directory, files in batch.files.items():
            topic = directory.partition("@")[0]
            for file in files:
                for key, rows, is_partial in self._parts(topic, file, batch):
                    observed = is_partial and key not in self._events.selected
                    self._sum(key, topic, observed=observed).add(rows, file.size, batch.batch_id)
                    self._brought[key].update(rows)
        ledger = self._catalog.system["batches"]
        self._sum(self._catalog.page_key, ledger).add({"event": batch.rows}, 0, batch.batch_id)
        self._context.log.info(str(batch))
        if monotonic() - self._since >= self._every_s:
            self._report()

    def _sum(self, key: dg.AssetKey, directory: str, *, observed: bool = False) -> BatchSum:
        return self._sums.setdefault((key, directory, observed), BatchSum())

    def _parts(self, topic: str, file: DataFile, batch: Batch) -> Iterator[tuple[dg.AssetKey, Mapping[str, int], bool]]:
        """What a file brings each asset: rows by operation, and whether they may be a part of what is read."""
        if topic in self._short:
            rows = dict(file.operations) or {"event": file.rows}
            yield self._catalog.system_key(self._short[topic]), rows, False
            return
        if topic.startswith("__") or ".__" in topic:
            return
        reads = {op: count for op, count in file.operations.items() if op == "r"}
        others = {op: count for op, count in file.operations.items() if op != "r"}
        table = self._catalog.table(topic)
        parts: dict[Role, dict[str, int]] = {"snapshot": reads, "changes": others}
        for role, rows in parts.items():
            if rows and self._catalog.has(table, role):
                is_partial = role == "snapshot" and not (batch.anew or self._catalog.config.is_reader)
                yield self._catalog.key(table, role), rows, is_partial

    def _drain(self) -> Iterator[tuple[dg.AssetKey, Committed, bool]]:
        """What was summed up, by asset, and whether it is only observed."""
        sums, self._sums, self._since = self._sums, {}, monotonic()
        for (key, directory, observed), total in sums.items():
            page = self._page.facts() if key == self._catalog.page_key else {}
            yield key, Committed(directory, page | total.metadata(self._reached), self._brought.get(key, {})), observed

    def _report(self, partly: Container[dg.AssetKey] = ()) -> None:
        for key, committed, observed in self._drain():
            self._events.event(key, committed, observed=observed or key in partly)

    def report_all(self) -> None:
        """Report all batches of a run that fails. A selected `snapshot` is only observed: not all that was to be read is there."""
        self._report(self._catalog.keys("snapshot").keys() & self._events.selected)

    def results(self, *, all_selected: bool = False, unread: Container[dg.AssetKey] = ()) -> Results:
        """The last report of the run.

        Args:
            all_selected: whether selected assets are reported too of which nothing was read.
            unread: those whose rows the connector was not to read.
        """
        if all_selected:
            catalog, known = self._catalog, {key for key, _, _ in self._sums}
            written = {catalog.system_key(name): directory for name, directory in catalog.system.items()}
            written |= {key: catalog.topic(table) for role in _ROLES for key, table in catalog.keys(role).items()}
            for key, directory in written.items():
                if key in self._events.selected - known and key not in unread:
                    self._sum(key, directory)
        for key, committed, observed in self._drain():
            yield from self._events.result(key, committed, observed=observed)
