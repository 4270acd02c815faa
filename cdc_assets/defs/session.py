"""Shared by the bodies of the `snapshot` and `changes` assets: turns progress into Dagster events."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic

import dagster as dg

from cdc_assets.capture.progress import Progress, SliceProgress
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import TableSchema
from cdc_assets.defs.batches import record_in_portions
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.columns import stored_columns
from cdc_assets.defs.envelope_io import Committed
from cdc_assets.defs.io_managers import Writers
from cdc_assets.defs.keys import Role
from cdc_assets.defs.partitions import range_numbers
from cdc_assets.defs.range_facts import partition_facts, shown_ranges
from cdc_assets.defs.reporting import Sum, Tally
from cdc_assets.defs.runtime import Runtime
from cdc_assets.defs.samples import sample_of_events
from cdc_assets.errors import CdcError
from cdc_assets.ledger.state import TableState

Results = Iterator[dg.MaterializeResult[Committed]]

_OF_TABLE = frozenset({"rows", "rows_reads", "bytes", "windows"})
"""Numbers that a run has of a table, not of its partitions."""

_UNASKED: Mapping[TableId, TableSchema] = {}


class Session:
    """Reports the progress of a run.

    Args:
        role: role of the assets that are written.
        writers: the IO managers by which the run writes.
        every_s: minimum number of seconds between two materializations of a table.
    """

    def __init__(
        self,
        catalog: CaptureCatalog,
        role: Role,
        context: dg.AssetExecutionContext,
        writers: Writers,
        every_s: float,
    ) -> None:
        self._catalog, self._role, self._context = catalog, role, context
        self._tallies: dict[Role, Tally] = {"changes": Tally(every_s), "snapshot": Tally(every_s)}
        self._writers, self._topics = writers, writers.topics
        self._partitioned = catalog.keys("snapshot")
        self._structures = {schema.table: schema for schema in catalog.tables}
        self.windows, self._runtime = 0, Runtime(context)
        self._brought: dict[tuple[Role, TableId], Counter[str]] = defaultdict(Counter)
        """Rows by operation since the run began."""
        self._slices: dict[TableId, list[SliceProgress]] = {}
        """What a snapshot has read, by table."""

    def chosen(self) -> list[TableId]:
        """Tables of the selected assets."""
        keys = self._catalog.keys(self._role)
        return [table for key, table in keys.items() if key in self._context.selected_asset_keys]

    def on_progress(self, progress: Progress) -> None:
        """Report a committed window or round.

        Rows that a streaming run reads again, for a signal or a gap, are materializations of the
        `snapshot` assets; and a window that a snapshot run finishes is one of the `changes` assets.
        """
        written: Role = "changes" if progress.kind == "stream" else "snapshot"
        self._tallies[written].add(progress, monotonic())
        for table, part in progress.tables.items():
            self._brought[written, table].update(part.rows)
        self.windows += 1
        self._runtime.note_progress()
        for read in progress.slices_read:
            self._slices.setdefault(read.table, []).append(read)
        self._context.log.info(_line(progress))
        for trouble in progress.troubled:
            self._context.log.error(f"{trouble.table} has stopped: {trouble.reason}")
        for role, tally in self._tallies.items():
            self._log(role, tally.due(monotonic()))

    @contextmanager
    def reporting_in_any_case(self) -> Iterator[None]:
        """If the block fails or is interrupted, report what was committed until then, since no later run reports it."""
        try:
            yield
        except BaseException:
            with suppress(CdcError):  # the lake may be the reason of the failure
                for role, tally in self._tallies.items():
                    self._log(role, tally.drain())
            raise

    def results(self, structures: Mapping[TableId, TableSchema]) -> Results:
        """The last report of the run: tables that changed since the previous report, with their present columns."""
        for role, tally in self._tallies.items():
            selected = self._context.selected_asset_keys
            reports = list(self._reports(role, tally.drain(), structures))
            yield from (dg.MaterializeResult(asset_key=key, value=last) for key, last in reports if key in selected)
            # not selected, but read in the same loop; or newer than the loaded code location
            self._log_all((key, last) for key, last in reports if key not in selected)

    def tell_partitions(self, states: Mapping[TableId, TableState]) -> None:
        """Give each partition's materialization the numbers of its own; called before `results` of a snapshot."""
        names = self._catalog.partitions.get_partition_keys()
        chosen = range_numbers(self._catalog.partitions, self._context.partition_keys)
        for table, slices in self._slices.items():
            key = self._catalog.key(table, "snapshot")
            if key in self._context.selected_asset_keys and table in states:
                ranges = shown_ranges(table, states[table].ranges, self._catalog.config.events)
                for name, facts in partition_facts(slices, ranges, names, chosen):
                    self._context.add_asset_metadata(facts, key, name)

    def _log(self, role: Role, totals: Mapping[TableId, Sum]) -> None:
        self._log_all(self._reports(role, totals))

    def _log_all(self, reports: Iterable[tuple[dg.AssetKey, Committed]]) -> None:
        """Report materializations without outputs: an asset may have many in a run, but only one output."""
        found = (event for key, committed in reports for event in self._materializations(key, committed))
        record_in_portions(self._context.instance, self._context.run.run_id, found, self._context.log_event)

    def _materializations(self, key: dg.AssetKey, committed: Committed) -> Iterator[dg.AssetMaterialization]:
        """In a run of partitions an asset that has them gets one for each, as from an output."""
        metadata = self._writers.account(committed)
        in_ranges = self._context.has_partition_key or self._context.has_partition_key_range
        for partition in self._context.partition_keys if in_ranges and key in self._partitioned else (None,):
            yield dg.AssetMaterialization(key, metadata=metadata, partition=partition)

    def _reports(
        self, role: Role, totals: Mapping[TableId, Sum], structures: Mapping[TableId, TableSchema] = _UNASKED
    ) -> Iterator[tuple[dg.AssetKey, Committed]]:
        for table, total in totals.items():
            if not self._catalog.has(table, role):
                continue
            facts = total.metadata(self._tallies[role].lag_s)
            if self._role == role == "snapshot":  # of all partitions; each has its own besides
                facts = {f"table_{name}" if name in _OF_TABLE else name: value for name, value in facts.items()}
            if total.structures:
                self._structures[table] = total.structures[-1].entry.events_of
            schema = structures.get(table) or self._structures.get(table)
            if schema is not None:
                config = self._catalog.config
                facts |= stored_columns(schema, config.events, self._catalog.key(table, "source"))
                facts |= sample_of_events(config, self._topics, self._catalog.topic(table), schema, role)
            brought = self._brought[role, table]
            yield self._catalog.key(table, role), Committed(self._catalog.topic(table), facts, brought)


def _line(progress: Progress) -> str:
    rows = sum(sum(part.rows.values()) for part in progress.tables.values())
    end = f"{progress.slices_done} of {progress.slices} slices" if progress.slices else f"to {progress.to_lsn}"
    return f"{progress.kind} {progress.window_id} of {progress.database}: {rows} events of {len(progress.tables)} tables, {end}; ran on {progress.ran_on}"
