"""Decides with which structure each capture instance of a window is decoded, and which structures are new.

*At a hand-over* the structure of an instance that is read for the first time is queried. An ALTER is recorded from its first row
on, even if events stay the same: so each instance has a structure
of its own, whatever is recorded of the table later.

*A table that is altered in place* keeps its capture instance, whose rows then
arrive in another type (`history.structure`). The list of capture instances, queried before
the read, shows whether it was altered. If so, the change
table's types are compared with the recorded ones, and a difference is recorded
as an ALTER from the window's first row on, like a hand-over. A table that is
altered while it is read keeps its old position and is read by the next
window.

*A dropped column.* A snapshot records what it reads, so without columns that were dropped before it, whether or not the capture job has
come to the statement. Rows that were logged before it hold their values; so the structure with them is recorded again in front of these.

*Settings that leave out or mask other columns* change no structure, but what events tell. With the first rows that become events by
them the structure is recorded again, with what they hide, so that mirrors learn which rows no event tells (`mirror.altered`).

*An instance that is dropped* after the window was planned can no longer be read. Its table keeps its position too, unless
the window was committed to it already, and before the next window is planned the table ends, or has a gap (`gaps`).

*Repeating.* Entries are committed under the window's number before its data. A
repeat of the window finds them and records no more, because entries of a number are one commit. A repeat that records none
closes the number (`history.store`). A table that needs another one is left to the next window, which records the structure: it
could not be read the first time, or was altered in between.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance, InstanceId, TableSchema
from cdc_assets.errors import CdcError, ConfigurationError, CredentialsError, InvariantError, LakeError, describe_error
from cdc_assets.history.records import HistoryEntry
from cdc_assets.history.structure import captured_structure, followed, with_nulls
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.state import TableRead, Window
from cdc_assets.shared.instances import instance_of
from cdc_assets.shared.lake import Lake
from cdc_assets.shared.server import Server
from cdc_assets.shared.shown import shown_otherwise

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Structures:
    """The structures with which the reads of a window are decoded.

    Args:
        entries: entries of the schema history by table and instance.
        recorded: new entries, which must be in the history before the data.
        failed: tables whose structure cannot be read, with the reason.
        altered: LSN of the newest DDL that the structure takes into account, by instance; None if there is none.
        moved: tables that are left to the next window: an instance of them is gone, or their structure could only be
            recorded under the number of another window.
        uncounted: reads that were only to be counted, and whose structure cannot be used any more.
    """

    entries: Mapping[tuple[TableId, str], HistoryEntry]
    recorded: tuple[HistoryEntry, ...]
    failed: Mapping[TableId, str]
    altered: Mapping[str, Lsn | None]
    moved: frozenset[TableId] = frozenset()
    uncounted: frozenset[TableRead] = frozenset()


@dataclass(slots=True)
class _Found:
    """What is found, read by read.

    Args:
        closed: whether what is recorded under the window's number is complete.
        entries: see `Structures`; likewise `failed`, `moved` and `uncounted`.
        recorded: new structures by table, the last one of each.
        new: all of them.
        shown: structures that are recorded again, since settings hide other columns than before.
    """

    closed: bool
    entries: dict[tuple[TableId, str], HistoryEntry] = field(default_factory=dict)
    recorded: dict[TableId, HistoryEntry] = field(default_factory=dict)
    new: list[HistoryEntry] = field(default_factory=list)
    shown: dict[tuple[TableId, InstanceId | None], HistoryEntry] = field(default_factory=dict)
    failed: dict[TableId, str] = field(default_factory=dict)
    moved: set[TableId] = field(default_factory=set)
    uncounted: set[TableRead] = field(default_factory=set)


class WindowStructures:
    """Finds the structures of a window.

    Args:
        server: source of structures that are not recorded.
        lake: lake with the schema history.
    """

    def __init__(self, server: Server, lake: Lake, ledger: Ledger) -> None:
        self._server, self._lake, self._ledger = server, lake, ledger
        self._compared: dict[tuple[TableId, str], Lsn] = {}
        """LSN of the newest DDL by instance whose recorded structure was compared at that time."""
        self._noted: set[str] = set()
        """Databases of whose tables it is recorded what the settings hide."""

    def of(self, window: Window, repeated: bool) -> Structures:
        """The structures of a window's reads.

        Args:
            window: pending in the manifest.
            repeated: whether this is a repeat, perhaps long after the first attempt.

        Raises:
            RetryableError: the server is away or busy.
            LakeError: a topic table cannot be created or changed.
        """
        # as the planner saw them before it chose the window, or for a repeat as they are now
        instances = self._server.instances(window.database, known=window.until, refresh=repeated)
        found = _Found(self._lake.history.is_closed(window.window_id))
        for read in window.reads:
            known = self._lake.history.of_instance(read.table, read.identity, read.after.next())
            if read.counted:
                self._count(read, known, found)
            else:
                self._decode(window, read, known, instance_of(read, instances.get(read.table, [])), found)
        fresh = {entry.instance for entry in found.new}
        altered = {
            instance.name: instance.altered if instance.name in fresh or self._is_compared(instance) else None
            for of_table in instances.values()
            for instance in of_table
        }
        recorded = sorted(
            (*found.new, *found.shown.values(), *self._unrecorded(window, found)), key=lambda entry: entry.lsn
        )
        return Structures(
            found.entries, tuple(recorded), found.failed, altered, frozenset(found.moved), frozenset(found.uncounted)
        )

    def _count(self, read: TableRead, known: HistoryEntry | None, found: _Found) -> None:
        """Find the structure of rows that are only counted."""
        if known is not None and self._is_usable(known):
            found.entries.setdefault((read.table, read.instance), known)
        else:  # its events are in the lake, so its table lacks nothing
            log.warning("END counts no events of %s: their structure cannot be used any more.", read.table)
            found.uncounted.add(read)

    def _decode(
        self,
        window: Window,
        read: TableRead,
        known: HistoryEntry | None,
        instance: CaptureInstance | None,
        found: _Found,
    ) -> None:
        """Find the structure with which rows become events."""
        previous = found.recorded.get(read.table) or self._lake.history.latest(read.table)
        try:
            if known is not None:
                self._lake.destination(known)
                found.entries[read.table, read.instance] = known
            # its instance is not there any more: the next window decides what has become of it
            if instance is None:
                found.moved.add(read.table)
                return
            entry = self._entry(read, known, previous, instance, found.closed)
            self._lake.destination(entry)
        except (LakeError, CredentialsError):  # not limited to one table
            raise
        except CdcError as error:
            if error.retryable:
                raise
            if self._has_gone(read):
                found.moved.add(read.table)
            else:
                found.failed[read.table] = describe_error(error)
            return
        if entry is known and not (found.closed and _lacks_columns(known, instance)):
            self._keep(window, read, entry, found)
        elif found.closed:
            # structures of this number are recorded already, and a second record would be another one
            found.moved.add(read.table)
        else:
            self._record(read, entry, previous, found)

    def _keep(self, window: Window, read: TableRead, entry: HistoryEntry, found: _Found) -> None:
        """Keep a recorded structure; it is recorded again if settings hide other columns by now."""
        state, now = self._ledger.state.tables[read.table], self._ledger.clock.now()
        other = shown_otherwise(self._lake, state, entry, read.after, now)
        if other is not None and not found.closed:
            found.shown[other.table, other.identity] = other
        elif other is not None and not self._is_begun(window, read.table):
            found.moved.add(read.table)  # its rows would be shown otherwise than is recorded

    def _record(self, read: TableRead, entry: HistoryEntry, previous: HistoryEntry | None, found: _Found) -> None:
        """Record a new structure."""
        is_read = self._ledger.state.tables[read.table].snapshot_lsn
        if previous is not None and is_read and entry.lsn <= is_read and self._is_shown_otherwise(previous):
            # a snapshot that is ahead was read by the former settings, and makes good nothing that the new ones show
            found.shown[entry.table, entry.identity] = replace(entry, lsn=is_read.next())
            others = [one for one in entry.hidden or () if previous.schema.column(one[0]) is None]
            entry = replace(entry, hidden=None if previous.hidden is None else (*previous.hidden, *others))
        found.entries[read.table, read.instance] = found.recorded[read.table] = entry
        found.new.append(entry)

    def _unrecorded(self, window: Window, found: _Found) -> list[HistoryEntry]:
        """Structures of the other tables of a database with what the settings hide from them, if an earlier version did not record that:
        while no change comes, it would not be known once they are shown."""
        if found.closed or window.database in self._noted:
            return []
        history, now, read = self._lake.history, self._ledger.clock.now(), {read.table for read in window.reads}
        entries = []
        for table, state in self._ledger.state.tables.items():
            latest = history.latest(table) if table.database == window.database and table not in read else None
            if latest is not None and latest.hidden is None and state.streams and state.position:
                known = history.of_instance(table, state.identity)
                other = None if known is None else shown_otherwise(self._lake, state, known, state.position, now)
                entries += [] if other is None else [other]
        if not entries:
            self._noted.add(window.database)
        return entries

    def _is_shown_otherwise(self, entry: HistoryEntry) -> bool:
        """Whether the settings hide other columns of a recorded structure by now."""
        return self._lake.hidden(entry.schema, entry.captured) != (entry.hidden or ())

    def _is_begun(self, window: Window, table: TableId) -> bool:
        """Whether an earlier attempt has committed any of a table's rows, so that it cannot be left to the next window."""
        reads = [read for read in window.reads if read.table == table and read.directory and not read.counted]
        return any(self._lake.tables.committed(read.directory, window.window_id) for read in reads)

    def _is_usable(self, entry: HistoryEntry) -> bool:
        """Whether rows of a structure can be counted again; their topic is not touched, for it may be gone."""
        try:
            self._lake.plan(entry.schema, entry.captured)
        except ConfigurationError:
            return False
        return True

    def _has_gone(self, read: TableRead) -> bool:
        """Whether the instance of a read is gone now."""
        return (
            instance_of(read, self._server.instances(read.table.database, known=read.until).get(read.table, [])) is None
        )

    def _entry(
        self,
        read: TableRead,
        known: HistoryEntry | None,
        previous: HistoryEntry | None,
        instance: CaptureInstance,
        closed: bool,
    ) -> HistoryEntry:
        """The structure of an instance's rows: the recorded one, unless it is read for the first time or was altered."""
        lacks = _lacks_columns(known, instance)
        if known is not None and not lacks and (instance.altered is None or self._is_compared(instance)):
            return known
        arriving = self.arriving(read, instance)
        schema = arriving if known is None or lacks else followed(known.schema, arriving)
        if known is not None and schema == known.schema and instance.altered is not None:
            self._compared[read.table, instance.name] = instance.altered
        if known is not None and (schema == known.schema or closed):
            return known
        return HistoryEntry(
            kind="ALTER" if previous else "CREATE",
            schema=schema,
            captured=instance.columns,
            instance=instance.name,
            lsn=read.after.next(),
            at=self._ledger.clock.now(),
            made=instance.created,
            change_table_id=instance.change_table_id,
            hidden=self._lake.hidden(schema, instance.columns),
        )

    def _is_compared(self, instance: CaptureInstance) -> bool:
        return self._compared.get((instance.table, instance.name)) == instance.altered

    def arriving(self, read: TableRead, instance: CaptureInstance | None) -> TableSchema:
        """The present structure of an instance's rows, from the server.

        Raises:
            InvariantError: the table or the instance is gone.
        """
        source = self._server.source
        schema = source.table_schema(read.table, read.until)
        stored = None if instance is None else source.table_schema(instance.change_table, read.until)
        if schema is None or instance is None or stored is None:
            raise InvariantError(
                f"{read.table} or its capture instance {read.instance} vanished before its structure was read. "
                "Next: enable capture again and materialize the table's snapshot asset."
            )
        arriving = captured_structure(self._server.described({read.table: schema})[read.table], stored, instance)
        if instance.altered is None:
            return arriving
        required = [column for column in arriving.columns if not column.nullable and column.name in instance.columns]
        return with_nulls(arriving, source.columns_with_nulls(instance, required, read.after, read.until))


def _lacks_columns(entry: HistoryEntry | None, instance: CaptureInstance | None) -> bool:
    """Whether a recorded structure is without columns that the instance captures, as that of a snapshot that began after they were dropped."""
    if entry is None or instance is None:
        return False
    return any(entry.schema.column(name) is None for name in instance.columns)
