"""Writes the structures of a snapshot's tables into the schema history, before any of their rows.

The record is one commit with the snapshot's number, so a repeated run finds it
and takes the structures from the history: rows read before and after a
crash become events by the same structure.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from cdc_assets.capture.instances import newest
from cdc_assets.capture.lake import Lake
from cdc_assets.capture.ledger import Ledger
from cdc_assets.capture.server import Server
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.core.steps import step
from cdc_assets.errors import ConfigurationError, InvariantError
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.structure import without_namesakes
from cdc_assets.ledger.snapshot_state import SnapshotRun, SnapshotTable
from cdc_assets.snapshot.plan import SnapshotPlanner

_UNKNOWN = 0
"""Object id of a table that is only recorded, not read."""


class Structures:
    """Records the structures of snapshots of one capture.

    Args:
        server: source of the structures.
        lake: lake with the schema history.
        planner: knows which databases stream.
        only_captured: whether to leave out tables that are not captured.
    """

    def __init__(
        self, server: Server, lake: Lake, ledger: Ledger, planner: SnapshotPlanner, *, only_captured: bool
    ) -> None:
        self._server, self._lake, self._ledger, self._planner = server, lake, ledger, planner
        self._only_captured = only_captured

    def record(self, run: SnapshotRun) -> Mapping[TableId, HistoryEntry]:
        """Record a CREATE for each table whose structure is new, before any data; returns the structures of all tables.

        A snapshot requested by a signal records all of its tables, as the connector does.
        """
        history, now = self._lake.history, self._ledger.clock.now()
        recorded: list[HistoryEntry] = []
        if not history.written(run.snapshot_id):
            for table, entry in self._current(run, now):
                if self._joined(table):
                    entry = dataclasses.replace(entry, lsn=table.low.next(), snapshot=None)
                known = history.of_instance(entry.table, entry.instance)
                repeated = bool(run.signal) and table.object_id != _UNKNOWN
                if (
                    repeated
                    or known is None
                    or not known.same_structure(entry)
                    or known.schema.object_id != entry.schema.object_id
                ):
                    recorded.append(entry)
            if recorded and not run.slices and recorded[-1].snapshot:
                recorded[-1] = dataclasses.replace(recorded[-1], last=True)
            self._lake.record(run.snapshot_id, recorded)
        step("history-written")
        entries = {table.table: history.of_instance(table.table, table.instance) for table in run.tables}
        missing = [table for table, entry in entries.items() if entry is None]
        if missing:
            raise InvariantError(
                f"The schema history has no structure of {missing[0]}. Next: set snapshot.mode=recovery."
            )
        return {table: entry for table, entry in entries.items() if entry is not None}

    def _current(self, run: SnapshotRun, now: datetime) -> Iterator[tuple[SnapshotTable, HistoryEntry]]:
        """Present structures of the tables, from one query to the server."""
        tables = [*run.tables, *self._uncaptured(run)]
        schemas = self._server.described(self._server.source.table_schemas([table.table for table in tables]))
        instances = self._server.instances(run.database)
        for table in tables:
            schema, captured = schemas.get(table.table), None
            if schema is None and table.object_id == _UNKNOWN:
                continue  # it was dropped meanwhile
            if schema is None:
                expected = "a table that exists"
                raise ConfigurationError("table", str(table.table), expected, "check its name and the filters")
            if table.instance is not None:
                instance = _named(instances.get(table.table, []), table)
                schema, captured = without_namesakes(schema, instance), instance.columns
            yield table, HistoryEntry("CREATE", schema, captured, table.instance, table.low, now, "INITIAL")

    def _uncaptured(self, run: SnapshotRun) -> list[SnapshotTable]:
        """User tables that are only recorded in the history, if the settings require all (spec debezium-sqlserver §6.1)."""
        known = any(table.database == run.database for table in self._ledger.state.tables)
        if known or self._only_captured:
            return []
        captured = {table.table for table in run.tables}
        others = [table for table in self._server.source.user_tables(run.database) if table not in captured]
        instances = self._server.instances(run.database)
        found = []
        for table in others:
            last = newest(instances.get(table, []))
            found.append(
                SnapshotTable(table, _UNKNOWN, last.name if last else None, run.tables[0].low, (), whole=False)
            )
        return found

    def _joined(self, table: SnapshotTable) -> bool:
        """Whether a table without rows is added to a capture that streams; unchanged until the snapshot is complete."""
        new = not self._ledger.state.has_position(table.table)
        return new and table.instance is not None and not table.ranges and self._planner.streams(table.table.database)


def _named(instances: Sequence[CaptureInstance], table: SnapshotTable) -> CaptureInstance:
    for instance in instances:
        if instance.name == table.instance:
            return instance
    raise InvariantError(
        f"{table.table} lost its capture instance {table.instance} during its snapshot. "
        "Next: enable it again and materialize its snapshot asset."
    )
