"""Writes the structures of a snapshot's tables into the schema history, before any of their rows.

The record is one commit with the snapshot's number, so a repeated run finds it
and takes the structures from the history: rows read before and after a
crash become events by the same structure.

*The number is the newest one when it is used.* A snapshot gets a number when it is planned. If it must wait then, a
window of another database may take the next one and pass it in the history; so a snapshot whose number is not the
newest any more is planned again under the next, and only then its structures are written.

*A writer that was believed dead* may hold structures of the snapshot. It would write them beside those of its successor. So a
number is closed in the history (`history.store`) before the snapshot gets another one, ends without having been read, or is
repeated without anything new. What such a writer has written before that is taken.

| crash after | next run |
|---|---|
| the former number is closed | plans it again under the next |
| another number | writes the structures under it, or under the next if it is not the newest again |
| the commit of the structures | finds them there |
| tables failed | reads the others |

*A table that is dropped, or loses its capture instance, before its structure was recorded* fails alone. So does one
that such a writer did not see when it recorded the others under the snapshot's number: a new table is then planned again.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance
from cdc_assets.core.steps import step
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.structure import without_namesakes
from cdc_assets.ledger.snapshot_state import SnapshotRun, SnapshotTable
from cdc_assets.shared.instances import newest
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.shared.shown import shown_otherwise
from cdc_assets.snapshot.plan import SnapshotPlanner

_UNKNOWN = 0
"""Object id of a table that is only recorded, not read."""


class Structures:
    """Records the structures of snapshots of one capture.

    Args:
        planner: knows which databases stream.
    """

    def __init__(self, parts: CaptureParts, planner: SnapshotPlanner) -> None:
        self._server, self._lake, self._ledger, self._planner = parts.server, parts.lake, parts.ledger, planner
        self._only_captured = parts.config.history.only_captured_tables
        """Whether to leave out tables that are not captured."""

    def record(self, database: str, *, repeated: bool) -> Mapping[TableId, HistoryEntry]:
        """Record a CREATE for each table whose structure is new, before any data of the snapshot in flight.

        A snapshot requested by a signal records all of its tables, as the connector does.

        Args:
            repeated: whether an earlier run may still record structures of the snapshot.

        Returns:
            Structures of all tables but those that failed.

        Raises:
            FencedError: another writer has taken over.
        """
        history, manifest = self._lake.history, self._ledger.manifest
        run = manifest.state.snapshots[database]
        begun = run.done > 0 or manifest.state.in_flight(database) is not None
        if not begun and not history.written(run.snapshot_id):
            self._record_new(run, repeated=repeated)
        step("history-written")
        run = manifest.state.snapshots[database]
        found = {table.table: history.of_instance(table.table, table.identity) for table in run.tables}
        entries = {table: entry for table, entry in found.items() if entry is not None}
        lacking = [table for table in run.tables if table.table not in {*entries, *dict(run.failed)}]
        if lacking:
            self._fail(run, lacking)
        return entries

    def _record_new(self, run: SnapshotRun, *, repeated: bool) -> None:
        """Record the structures that are new under the snapshot's number, or another one if that cannot be used any more."""
        history, manifest = self._lake.history, self._ledger.manifest
        new, number = self._new(run), run.snapshot_id
        if new and number + 1 == manifest.state.next_window and not history.is_closed(number):
            self._lake.record(number, new)
            return
        is_recorded = (new or repeated) and history.close(number)  # by a run that was believed dead
        if new and not is_recorded:
            number = manifest.state.next_window
            manifest.start_snapshot(self._ledger.clock.now(), dataclasses.replace(run, snapshot_id=number))
            self._lake.record(number, new)

    def _new(self, run: SnapshotRun) -> list[HistoryEntry]:
        """Entries that are not in the history yet."""
        history, now = self._lake.history, self._ledger.clock.now()
        new: list[HistoryEntry] = []
        shown: list[HistoryEntry] = []
        for table, entry in self._current(run, now):
            if self._joined(table):
                entry = dataclasses.replace(entry, lsn=table.low.next(), snapshot=None)
            elif position := self._resumed(table):
                entry = dataclasses.replace(entry, lsn=position.next())
            entry = dataclasses.replace(entry, hidden=self._lake.hidden(entry.schema, entry.captured))
            known = history.of_instance(entry.table, entry.identity)
            repeated = bool(run.signal) and table.object_id != _UNKNOWN
            partly, latest = self._shown_partly(table, now), history.latest(entry.table)
            if partly is not None and latest is not None and partly.lsn > entry.lsn:
                partly = dataclasses.replace(entry, kind="ALTER", lsn=partly.lsn, snapshot=None)
                entry = dataclasses.replace(entry, hidden=latest.hidden)
            shown += [] if partly is None else [partly]
            if (
                repeated
                or known is None
                or known.identity != entry.identity
                or not known.same_structure(entry)
                or known.schema.object_id != entry.schema.object_id
            ):
                new.append(entry)
            elif partly is None and (known.hidden or ()) != entry.hidden:
                shown.append(dataclasses.replace(entry, kind="ALTER", lsn=self._shown_from(table), snapshot=None))
        if new and not run.slices and new[-1].snapshot:
            new[-1] = dataclasses.replace(new[-1], last=True)
        # those of a table by LSN, but tables in the order of their reading, which ends with `last`
        rank = {entry.table: number for number, entry in enumerate(new)}
        return sorted([*shown, *new], key=lambda entry: (rank.get(entry.table, -1), entry.lsn))

    def _fail(self, run: SnapshotRun, tables: Sequence[SnapshotTable]) -> None:
        """Record that tables without a structure take no part: they or their capture instances are gone, or were when a run
        that was believed dead recorded those of the others."""
        schemas = self._server.source.table_schemas([table.table for table in tables], run.known)
        instances = self._server.instances(run.database, known=run.known)
        failed = dict(run.failed)
        for table in tables:
            if table.table not in schemas:
                failed[table.table] = "It was dropped before it was read."
            elif table.identity is not None and _of(instances.get(table.table, []), table) is None:
                failed[table.table] = (
                    f"Its capture instance {table.instance} was dropped before the table was read. "
                    "Next: enable it again and materialize its snapshot asset."
                )
            else:
                failed[table.table] = (
                    "Its structure is not among those that were recorded for the snapshot, as a run that was believed dead has "
                    "recorded them without it. Next: let the capture run again, which reads a new table, or materialize the "
                    "table's snapshot asset."
                )
        self._ledger.manifest.start_snapshot(self._ledger.clock.now(), run.without(failed))

    def _current(self, run: SnapshotRun, now: datetime) -> Iterator[tuple[SnapshotTable, HistoryEntry]]:
        """Present structures of the tables that are there, from one query to the server."""
        tables = [*run.tables, *self._uncaptured(run)]
        schemas = self._server.described(
            self._server.source.table_schemas([table.table for table in tables], run.known)
        )
        instances = self._server.instances(run.database, known=run.known)
        for table in tables:
            schema, instance = schemas.get(table.table), _of(instances.get(table.table, []), table)
            if schema is None or (table.instance is not None and instance is None):
                continue
            entry = HistoryEntry("CREATE", schema, None, None, table.low, now, "INITIAL")
            if instance is not None:
                entry = dataclasses.replace(
                    entry,
                    schema=without_namesakes(schema, instance),
                    captured=instance.columns,
                    instance=instance.name,
                    made=instance.created,
                    change_table_id=instance.change_table_id,
                )
            yield table, entry

    def _uncaptured(self, run: SnapshotRun) -> list[SnapshotTable]:
        """User tables that are only recorded in the history, if the settings require all (spec debezium-sqlserver §6.1)."""
        known = any(table.database == run.database for table in self._ledger.state.tables)
        if known or self._only_captured:
            return []
        captured = {table.table for table in run.tables}
        others = [table for table in self._server.source.user_tables(run.database) if table not in captured]
        instances = self._server.instances(run.database, known=run.known)
        found = []
        for table in others:
            last = newest(instances.get(table, []))
            entry = SnapshotTable(table, _UNKNOWN, None, run.tables[0].low, (), whole=False)
            if last is not None:
                entry = dataclasses.replace(
                    entry, instance=last.name, made=last.created, change_table_id=last.change_table_id
                )
            found.append(entry)
        return found

    def _resumed(self, table: SnapshotTable) -> Lsn | None:
        """Position from which a table that failed continues; its instance's present structure fits rows of any age, and may
        be what it lacked."""
        known = self._ledger.state.tables.get(table.table)
        return known.position if known is not None and known.resumes and known.identity == table.identity else None

    def _shown_from(self, table: SnapshotTable) -> Lsn:
        """LSN from which on events are shown by the settings of now, which hide other columns than those before: what is read from its
        position on, and not what an earlier snapshot has read."""
        known = self._ledger.state.tables.get(table.table)
        if known is None or not known.keeps_position or known.position is None or known.identity != table.identity:
            return table.low
        return min(max(known.position, known.snapshot_lsn or known.position).next(), table.low)

    def _shown_partly(self, table: SnapshotTable, now: datetime) -> HistoryEntry | None:
        """The structure shown by other settings than before, if not all rows are read: that makes nothing good that an earlier snapshot
        of the whole table has read, so it is valid behind that one."""
        state = self._ledger.state.tables.get(table.table)
        if state is None or state.position is None or state.snapshot_lsn is None or (table.whole and table.data):
            return None
        known = self._lake.history.of_instance(state.table, state.identity)
        return None if known is None else shown_otherwise(self._lake, state, known, state.position, now)

    def _joined(self, table: SnapshotTable) -> bool:
        """Whether a table without rows is added to a capture that streams; unchanged until the snapshot is complete."""
        new = not self._ledger.state.has_position(table.table)
        return new and table.instance is not None and not table.ranges and self._planner.streams(table.table.database)


def _of(instances: Sequence[CaptureInstance], table: SnapshotTable) -> CaptureInstance | None:
    """The instance with which a table is read; None if there is none, or it is gone."""
    return next((instance for instance in instances if instance.identity == table.identity), None)
