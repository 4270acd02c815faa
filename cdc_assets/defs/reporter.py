"""Turns the progress of a run into Dagster's events: few and complete materializations, and observations.

An event costs 25 to 45 ms of run storage and is never pruned, while a loop may
finish several windows per second. So windows are added up per table (`Tally`), and a table
that changed is reported at most every `every_s` seconds and at the end; a table
that did not change is not reported. `Reporter` is shared by the bodies of the `snapshot` and `changes` assets.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any

import dagster as dg

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ran_on import NOWHERE, RanOn, count_of
from cdc_assets.core.schema import TableSchema
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.columns import stored_columns
from cdc_assets.defs.envelope_io import Committed
from cdc_assets.defs.keys import Role
from cdc_assets.defs.reads import SnapshotReads
from cdc_assets.defs.row_facts import ran_on_facts, rows_facts
from cdc_assets.defs.runtime import Runtime
from cdc_assets.defs.samples import sample_of_events
from cdc_assets.defs.writing import Results, Writing
from cdc_assets.history.records import table_change
from cdc_assets.shared.progress import Progress, RangesRead, StructureChange, TableProgress


@dataclass(slots=True)
class Sum:
    """Progress of one table since its last report."""

    rows: Counter[str] = field(default_factory=Counter)
    size: int = 0
    from_lsn: Lsn | None = None
    to_lsn: Lsn | None = None
    committed: datetime | None = None
    windows: int = 0
    structures: list[StructureChange] = field(default_factory=list)
    ran_on: RanOn = NOWHERE

    def add(self, part: TableProgress, ran_on: RanOn) -> None:
        """Add one window or round, and where its jobs ran."""
        self.ran_on += ran_on
        self.rows.update(part.rows)
        self.size += part.size
        self.from_lsn = part.from_lsn if self.windows == 0 else self.from_lsn
        self.to_lsn = part.to_lsn
        self.committed = part.committed or self.committed
        self.windows += 1

    def metadata(self, lag_s: float | None) -> dict[str, Any]:
        """Metadata for the asset page; numbers stay numbers, so that the page plots them."""
        facts: dict[str, Any] = rows_facts(self.rows) | {"bytes": self.size, "windows": self.windows}
        facts |= {name: str(lsn) for name, lsn in (("from_lsn", self.from_lsn), ("to_lsn", self.to_lsn)) if lsn}
        if self.committed:
            facts["last_commit"] = dg.MetadataValue.timestamp(self.committed)
        facts |= _structure_facts(self.structures) if self.structures else {}
        facts |= ran_on_facts(self.ran_on)
        return facts if lag_s is None else facts | {"lag_seconds": round(lag_s, 3)}


def _structure_facts(changes: Sequence[StructureChange]) -> dict[str, Any]:
    """Metadata about a table's new structure: its differences, and its record from now on."""
    last = changes[-1].entry
    texts = [
        f"{change.entry.kind} from {change.entry.lsn}: {', '.join(map(str, change.differences)) or 'all columns'}"
        for change in changes
    ]
    return {
        "structure_changed": "; ".join(texts),
        "structure_from_lsn": str(last.lsn),
        "schema_history_record": dg.MetadataValue.json(table_change(last)),
    }


class Tally:
    """Adds up progress per table and returns what is due for a report.

    Args:
        every_s: minimum number of seconds between two reports, so that a short run reports once.
            Times are seconds on any monotonic clock.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._since: float | None = None
        self._tables: dict[TableId, Sum] = {}
        self.lag_s: float | None = None

    def add(self, progress: Progress, now: float) -> None:
        """Add a window or round."""
        self.lag_s = progress.lag_s
        if self._since is None:
            self._since = now
        for table, part in progress.tables.items():
            self._tables.setdefault(table, Sum()).add(part, progress.ran_on)
        for change in progress.structures:
            self._tables.setdefault(change.entry.table, Sum()).structures.append(change)

    def due(self, now: float) -> dict[TableId, Sum]:
        """Progress since the last report, if the interval is over; else empty."""
        waited = 0.0 if self._since is None else now - self._since
        return self.drain() if waited >= self._every_s else {}

    def take(self, table: TableId) -> Sum:
        """Progress of one table since the last report."""
        return self._tables.pop(table, Sum())

    def drain(self) -> dict[TableId, Sum]:
        """Progress since the last report."""
        self._since = None
        tables, self._tables = self._tables, {}
        return tables


Totals = Mapping[TableId, Sum]

_OF_TABLE = frozenset({"rows", "rows_reads", "bytes", "windows"})
"""Numbers that a run has of a table, not of its partitions."""


class Reporter:
    """Reports the progress of a run.

    Args:
        role: role of the assets that are written.
        written: what the run writes with.
        every_s: minimum number of seconds between two materializations of a table.
    """

    def __init__(
        self,
        catalog: CaptureCatalog,
        role: Role,
        context: dg.AssetExecutionContext,
        written: Writing,
        every_s: float,
    ) -> None:
        self._catalog, self._role, self._context = catalog, role, context
        self._tallies: dict[Role, Tally] = {"changes": Tally(every_s), "snapshot": Tally(every_s)}
        self._events, self._topics = written.events, written.writers.topics
        self._reads = SnapshotReads(catalog.partitions.get_partition_keys(), catalog.config.events)
        self._structures = {schema.table: schema for schema in catalog.tables}
        self.windows, self._runtime = 0, Runtime(context)
        self._brought: dict[tuple[Role, TableId], Counter[str]] = defaultdict(Counter)
        """Rows by operation since the run began."""

    def chosen(self) -> list[TableId]:
        """Tables of the selected assets."""
        keys = self._catalog.keys(self._role)
        return [table for key, table in keys.items() if key in self._events.selected]

    def on_progress(self, progress: Progress) -> None:
        """Report a committed window or round.

        A window that a snapshot run finishes is a materialization of the `changes` assets. Rows that are read, in a streaming
        run for a signal or a gap, are observations of the `snapshot` assets until all are there (`on_read`).
        """
        written: Role = "changes" if progress.kind == "stream" else "snapshot"
        self._tallies[written].add(progress, monotonic())
        for table, part in progress.tables.items():
            self._brought[written, table].update(part.rows)
        self._structures |= {change.entry.table: change.entry.events_of for change in progress.structures}
        self.windows += 1
        self._runtime.note_progress()
        self._reads.note_slices(progress.slices_read)
        self._context.log.info(_line(progress))
        for trouble in progress.troubled:
            self._context.log.error(f"{trouble.table} has stopped: {trouble.reason}")
        for role, tally in self._tallies.items():
            self._log(role, tally.due(monotonic()))

    def on_read(self, read: RangesRead) -> None:
        """Take note of a snapshot that is complete. A streaming run reports it at once, since it may last for long."""
        self._reads.note_read(read)
        if self._role == "changes":
            self._log_read()

    def report_all(self) -> None:
        """Report all progress at once."""
        self._log("changes", self._tallies["changes"].drain())
        self._log_read()
        self._log("snapshot", self._tallies["snapshot"].drain())

    def results(self, structures: Mapping[TableId, TableSchema], also: Iterable[TableId] = ()) -> Results:
        """The last report of the run: tables that changed since the previous report, with their present columns; and what was read.

        An output has all partitions of the run. So a table of which only some were read gives none, and nothing
        downstream starts on it in this run.

        Args:
            also: tables that are reported whether they changed or not.
        """
        context = self._context
        # `changes` have none, whatever range their run is tagged with
        has_partitions = self._role == "snapshot" and (context.has_partition_key or context.has_partition_key_range)
        chosen = context.partition_keys if has_partitions else []
        self._structures |= structures
        totals = self._tallies["changes"].drain()
        totals = {table: Sum() for table in also if table not in totals} | totals
        for key, last in list(self._reports("changes", totals)):
            yield from self._events.result(key, last)
        for key, last, partitions in self._read_whole():
            if key in self._events.selected and partitions.keys() >= set(chosen):
                for name in chosen:
                    context.add_asset_metadata(partitions.pop(name), key, name)
                yield dg.MaterializeResult(asset_key=key, value=last)
            self._events.partitions(key, last, partitions)
        self._log("snapshot", self._tallies["snapshot"].drain())

    def _log(self, role: Role, totals: Totals) -> None:
        """Report changes, or rows that were read of tables that are not read whole."""
        for key, committed in self._reports(role, totals):
            self._events.event(key, committed, observed=role == "snapshot")

    def _log_read(self) -> None:
        """Report partitions that were read whole."""
        for key, committed, partitions in self._read_whole():
            self._events.partitions(key, committed, partitions)

    def _read_whole(self) -> Iterator[tuple[dg.AssetKey, Committed, dict[str, dict[str, Any]]]]:
        """Assets of which partitions were read whole since the last report, with what is said of each partition."""
        for table in self._reads.tables:
            total, partitions = self._tallies["snapshot"].take(table), dict(self._reads.take(table))
            for key, committed in self._reports("snapshot", {table: total}):
                yield key, committed, partitions

    def _reports(self, role: Role, totals: Totals) -> Iterator[tuple[dg.AssetKey, Committed]]:
        for table, total in totals.items():
            if not self._catalog.has(table, role):
                continue
            facts = total.metadata(self._tallies[role].lag_s)
            if role == "snapshot":  # of all partitions; each has its own besides
                facts = {f"table_{name}" if name in _OF_TABLE else name: value for name, value in facts.items()}
            if schema := self._structures.get(table):
                config = self._catalog.config
                facts |= stored_columns(schema, config.events, self._catalog.key(table, "source"))
                facts |= sample_of_events(config, self._topics, self._catalog.topic(table), schema, role)
            brought = self._brought[role, table]
            yield self._catalog.key(table, role), Committed(self._catalog.topic(table), facts, brought)


def _line(progress: Progress) -> str:
    rows = sum(sum(part.rows.values()) for part in progress.tables.values())
    end = f"{progress.slices_done} of {progress.slices} slices" if progress.slices else f"to {progress.to_lsn}"
    return f"{progress.kind} {progress.window_id} of {progress.database}: {count_of(rows, 'event')} in {count_of(len(progress.tables), 'table')}, {end}; ran on {progress.ran_on}"
