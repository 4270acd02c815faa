"""Where each table of a capture continues after another reader. Nothing is written here.

| table | what happens |
|---|---|
| its capture instance holds everything after the position | it continues there |
| changes after the position were cleaned up | it has a gap, which `gap.policy` treats like any other |
| it was enabled after the position, or the connector did not know it | it is new: `snapshot.mode` decides |
| it has no capture instance | the same |
| a run has captured it since an adoption was interrupted | it stays as it is |

*The position of a table.* A window reads commits in `(position, until]`. If everything up to a commit was delivered,
that commit is the position. If the other reader stopped inside a transaction, the position is the LSN before it. Each table of
which something was delivered has the place after which it is read (`TableState.begins`).
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from cdc_assets.adoption.delivered import Delivered, Row, delivered
from cdc_assets.adoption.history import Columns
from cdc_assets.adoption.offsets import ConnectorOffset
from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance, TableSchema
from cdc_assets.errors import InvalidValueError
from cdc_assets.ledger.state import TableRead
from cdc_assets.ledger.table_state import Start, TableState
from cdc_assets.shared.instances import before, gap_of, newest, reads_of
from cdc_assets.shared.server import Server
from cdc_assets.shared.statements import rows_of_commit
from cdc_assets.streaming.gaps import with_gap


class CommitTimes(Protocol):
    """What adoption needs of a server beyond `Source`. Times are the server's, without zone."""

    def time_of(self, database: str, lsn: Lsn) -> datetime | None:
        """Time of the newest commit up to an LSN; None if the server no longer knows."""

    def lsn_of_time(self, database: str, time: datetime) -> Lsn | None:
        """The newest LSN whose time is not after a given one; None if the server no longer knows."""


@dataclass(frozen=True, slots=True)
class AdoptedTable:
    """What happens to one table.

    Args:
        state: its state in the manifest; None if it is not adopted.
        note: what a person should know.
    """

    table: TableId
    state: TableState | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """What adoption would record.

    Args:
        offsets: where the other reader stopped, by database.
        times: the server's time of these places, where it knows them.
        tables: all captured tables, in order.
        notes: what is missing beyond tables.
    """

    offsets: Mapping[str, ConnectorOffset]
    times: Mapping[str, datetime]
    tables: Sequence[AdoptedTable]
    notes: Sequence[str] = ()

    @property
    def states(self) -> list[TableState]:
        """States to record."""
        return [entry.state for entry in self.tables if entry.state is not None]


def named_offsets(captured: Collection[str], offsets: Mapping[str, ConnectorOffset]) -> dict[str, ConnectorOffset]:
    """Offsets by the server's names of databases; one of an old release belongs to the only database.

    Args:
        captured: databases, as the server names them.
        offsets: by the name that the connector was configured with, maybe in other letters.

    Raises:
        InvalidValueError: two offsets of one database differ.
    """
    names = {name.lower(): name for name in captured} | {name: name for name in captured}
    if len(set(captured)) == 1:
        names[""] = next(iter(captured))
    written: dict[str, str] = {}
    for name in offsets:
        database = names.get(name, names.get(name.lower()))
        if database is not None and offsets[written.setdefault(database, name)] != offsets[name]:
            raise InvalidValueError(
                "offset file", f"{written[database] or '(no database)'} and {name or '(no database)'}",
                f"one offset of database {database}; these two differ",
                "keep the one that the connector continues from: its configuration names the database so",
            )  # fmt: skip
    return {database: offsets[name] for database, name in written.items()}


class AdoptionPlanner:
    """Plans for the tables of one capture.

    Args:
        server: the server both read.
        times: times of its commits.
        known: tables of the connector's schema history; None if there is none.
        captured: tables that have events of this capture.
    """

    def __init__(
        self,
        config: CaptureConfig,
        server: Server,
        times: CommitTimes,
        known: Mapping[TableId, Columns] | None,
        captured: Collection[TableId],
    ) -> None:
        self._config, self._server, self._times, self._known = config, server, times, known
        self._captured = captured

    def plan(self, captured: Mapping[str, Collection[TableId]], offsets: Mapping[str, ConnectorOffset]) -> AdoptionPlan:
        """Where each captured table continues.

        Args:
            captured: captured tables by database.
            offsets: where the other reader stopped, by database.

        Raises:
            InvalidValueError: an offset is not of this server, or does not say what was delivered.
            CdcError: the server cannot be read.
        """
        offsets = named_offsets(captured, offsets)
        tables: list[AdoptedTable] = []
        notes: list[str] = []
        times: dict[str, datetime] = {}
        for database, members in captured.items():
            offset = offsets.get(database)
            if offset is None:
                tables += [
                    AdoptedTable(table, None, "no offset of its database: snapshot.mode decides") for table in members
                ]
                continue
            time = self._times.time_of(database, offset.commit)
            if time is not None:
                times[database] = time
            found, added = self._of_database(database, sorted(members), offset, time)
            tables, notes = tables + found, notes + added
        return AdoptionPlan(offsets, times, tables, notes)

    def _of_database(
        self, database: str, tables: Sequence[TableId], offset: ConnectorOffset, time: datetime | None
    ) -> tuple[list[AdoptedTable], list[str]]:
        self._check_captured(database, offset.commit)
        instances = self._server.instances(database, known=offset.commit)
        schemas = self._server.source.table_schemas(tables, offset.commit)
        notes = [
            f"{database}: the incremental snapshot of {name} is not finished; signal it again."
            for name in offset.unread
        ]
        position, starts = offset.commit, dict[TableId, Start]()
        chosen = {
            table: note for table in tables if (note := self._reason_to_leave(table, instances.get(table, []), time))
        }
        going = [table for table in tables if table not in chosen]
        if offset.change is not None:
            done = self._delivered(going, instances, offset)
            if not done.all or self._ends_later(offset):
                position, starts = before(offset.commit), self._counted(done, offset)
            if not done.found:
                notes.append(
                    f"{database}: no captured table has the row of the offset; everything up to its change LSN is taken "
                    "as delivered."
                )
        found = [
            AdoptedTable(table, None, chosen[table])
            if table in chosen
            else self._adopted(schemas[table], instances[table], position, starts.get(table))
            for table in tables
        ]
        return found, notes

    def _check_captured(self, database: str, commit: Lsn) -> None:
        newest = self._server.source.max_captured_lsn(database)
        if newest is None or commit > newest:
            raise InvalidValueError(
                "position", str(commit), f"an LSN of database {database}, whose log was captured up to {newest}",
                "check that it is the same server and that the database was not restored",
            )  # fmt: skip

    def _adopted(
        self, schema: TableSchema, instances: Sequence[CaptureInstance], position: Lsn, begins: Start | None
    ) -> AdoptedTable:
        """A table that continues after a position, with the instance that is read there."""
        [first, *_] = reads_of(schema.table, instances, position, position.next())
        instance = next(one for one in instances if one.name == first.instance)
        state = TableState(
            schema.table,
            schema.object_id,
            position,
            instance.name,
            made=instance.created,
            change_table_id=instance.change_table_id,
            begins=begins,
        )
        return self._checked(state, instances, instance)

    def _reason_to_leave(self, table: TableId, instances: Sequence[CaptureInstance], time: datetime | None) -> str:
        """Why a table is not adopted; empty if it is."""
        if table in self._captured:
            return "captured meanwhile: it stays as it is"
        decides = f"snapshot.mode={self._config.snapshot.mode} decides"
        if not instances:
            return f"not enabled for change data capture: {decides}"
        if self._known is not None and table not in self._known:
            return f"the connector did not know it: {decides}"
        oldest = min((one.created for one in instances if one.created is not None), default=None)
        if time is not None and oldest is not None and oldest > time:
            return f"enabled at {oldest:%Y-%m-%d %H:%M:%S}, after the position: {decides}"
        return ""

    def _ends_later(self, offset: ConnectorOffset) -> bool:
        """Whether the END of a transaction that was delivered as a whole is still to be published."""
        return offset.transaction and self._config.events.transaction_metadata

    def _delivered(
        self, tables: Sequence[TableId], instances: Mapping[TableId, Sequence[CaptureInstance]], offset: ConnectorOffset
    ) -> Delivered:
        assert offset.change is not None  # noqa: S101 - the caller has checked
        commit = offset.commit
        marks = {one.name: one.start_lsn for found in instances.values() for one in found}
        reads = {table: reads_of(table, instances[table], before(commit), commit) for table in tables}
        rows = {table: self._rows(parts[0], commit) for table, parts in reads.items() if gap_of(parts, marks) is None}
        return delivered(rows, commit, offset.change, offset.serial)

    def _rows(self, read: TableRead, commit: Lsn) -> Iterator[Row]:
        skipped = self._config.events.skipped_operations
        statement, parameters = rows_of_commit(read, commit, self._config.streaming.query_mode, skipped)
        bulk = self._server.reaching(read.table.database, commit)
        for batch in bulk.read(statement, parameters):
            for command, change, operation in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield command, Lsn(bytes(change)), operation

    def _counted(self, done: Delivered, offset: ConnectorOffset) -> dict[TableId, Start]:
        """Starts with the numbers of events that the connector has counted, if it numbers transactions."""
        counts = offset.counts if self._ends_later(offset) else {}
        return {
            table: dataclasses.replace(start, events=counts.get(str(table), 0)) for table, start in done.starts.items()
        }

    def _checked(
        self, state: TableState, instances: Sequence[CaptureInstance], instance: CaptureInstance
    ) -> AdoptedTable:
        """The table with its gap, if changes after its position are gone, and with what is worth knowing."""
        assert state.position is not None  # noqa: S101 - it was just given one
        last = newest(instances)
        until = max(state.position.next(), last.start_lsn if last else state.position)
        reads = reads_of(state.table, instances, state.position, until)
        gap = gap_of(reads, {one.name: one.start_lsn for one in instances})
        if gap is not None:
            lost = with_gap(state, gap, self._config.streaming.gap_policy, instances)
            return AdoptedTable(
                state.table,
                dataclasses.replace(lost, begins=None),
                lost.reason or f"changes up to {gap.until} are gone (gap.policy=ignore)",
            )
        return AdoptedTable(state.table, state, self._difference(state.table, instance))

    def _difference(self, table: TableId, instance: CaptureInstance) -> str:
        """Columns that differ between the connector's history and the capture instance that is read."""
        if self._known is None:
            return ""
        theirs, ours = set(self._known[table]), set(instance.columns)
        parts = [f"without {', '.join(sorted(theirs - ours))}"] if theirs - ours else []
        parts += [f"with {', '.join(sorted(ours - theirs))}"] if ours - theirs else []
        return f"events are {' and '.join(parts)}, unlike the connector's structure" if parts else ""
