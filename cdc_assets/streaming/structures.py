"""Decides with which structure each capture instance of a window is decoded, and which structures are new.

*At a hand-over* the structure of an instance that is read for the first time is queried, and an
ALTER is recorded from its first row on, unless events look the same.

*A table that is altered in place* keeps its capture instance, whose rows then
arrive in another type (`history.structure`). The list of capture instances, queried before
the read, shows whether it was altered. If so, the change
table's types are compared with the recorded ones, and a difference is recorded
as an ALTER from the window's first row on, like a hand-over. A table that is
altered while it is read keeps its old position and is read by the next
window. So is one whose new instance is dropped before it was read.

*Repeating.* Entries are committed under the window's number before its data. A
repeat of the window finds them and records no more. If the table was altered in
between, the guard against tables that are altered while they are read leaves it to
the next window, which records the new structure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cdc_assets.capture.lake import Lake
from cdc_assets.capture.ledger import Ledger
from cdc_assets.capture.server import Server
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.schema import CaptureInstance, TableSchema
from cdc_assets.errors import CdcError, CredentialsError, InvariantError, LakeError, describe_error
from cdc_assets.history.records import ChangeType, HistoryEntry
from cdc_assets.history.structure import captured_structure, followed, with_nulls
from cdc_assets.ledger.state import TableRead, Window


@dataclass(frozen=True, slots=True)
class Structures:
    """The structures with which the reads of a window are decoded.

    Args:
        entries: entries of the schema history by table and instance.
        recorded: new entries, which must be in the history before the data.
        failed: tables whose structure cannot be read, with the reason.
        altered: LSN of the newest DDL that the structure takes into account, by instance; None if there is none.
        moved: tables of which an instance vanished before it was read for the first time while another one exists: the
            reads planned for them are no longer valid.
    """

    entries: Mapping[tuple[TableId, str], HistoryEntry]
    recorded: tuple[HistoryEntry, ...]
    failed: Mapping[TableId, str]
    altered: Mapping[str, Lsn | None]
    moved: frozenset[TableId] = frozenset()


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

    def of(self, window: Window, repeated: bool) -> Structures:
        """The structures of a window's reads.

        Args:
            window: pending in the manifest.
            repeated: whether this is a repeat, perhaps long after the first attempt.

        Raises:
            RetryableError: the server is away or busy.
            LakeError: a topic table cannot be created or changed.
        """
        instances = self._instances(window, repeated)
        entries: dict[tuple[TableId, str], HistoryEntry] = {}
        recorded: dict[TableId, HistoryEntry] = {}
        new: list[HistoryEntry] = []
        failed: dict[TableId, str] = {}
        fresh: set[str] = set()
        moved = frozenset(read.table for read in window.reads if self._is_gone(read, instances))
        for read in window.reads:
            if read.table in moved:
                continue
            previous = recorded.get(read.table) or self._lake.history.latest(read.table)
            known = self._known(read)
            try:
                entry = self._entry(read, known, previous, instances.get(read.instance), window)
                self._lake.destination(entry)
            except (LakeError, CredentialsError):  # not limited to one table
                raise
            except CdcError as error:
                if error.retryable:
                    raise
                failed[read.table] = describe_error(error)
                continue
            entries[read.table, read.instance] = entry
            if entry is known:
                continue
            if known is None and previous is not None and previous.same_structure(entry):
                fresh.add(read.instance)
            elif not self._lake.history.written(window.window_id):
                fresh.add(read.instance)
                recorded[read.table] = entry
                new.append(entry)
        altered = {
            name: instance.altered if name in fresh or self._is_compared(instance) else None
            for name, instance in instances.items()
        }
        return Structures(entries, tuple(new), failed, altered, moved)

    def _is_gone(self, read: TableRead, instances: Mapping[str, CaptureInstance]) -> bool:
        """Whether an instance vanished before it was ever read, and was not the table's last one."""
        others = any(instance.table == read.table for instance in instances.values())
        return read.instance not in instances and others and self._known(read) is None

    def _instances(self, window: Window, repeated: bool) -> Mapping[str, CaptureInstance]:
        """Capture instances by name, as the planner saw them before it chose the window, or for a repeat as they are now."""
        found = self._server.instances(window.database, refresh=repeated)
        return {instance.name: instance for instances in found.values() for instance in instances}

    def _entry(
        self,
        read: TableRead,
        known: HistoryEntry | None,
        previous: HistoryEntry | None,
        instance: CaptureInstance | None,
        window: Window,
    ) -> HistoryEntry:
        """The structure of an instance's rows: the recorded one, unless it is read for the first time or was altered."""
        if known is not None and (
            read.counted or instance is None or instance.altered is None or self._is_compared(instance)
        ):
            return known
        arriving = self.arriving(read, instance)
        kind: ChangeType = "ALTER" if previous else "CREATE"
        lsn, now = read.after.next(), self._ledger.clock.now()
        if known is None:
            assert instance is not None  # noqa: S101 - `arriving` has seen to it
            return HistoryEntry(kind, arriving, instance.columns, instance.name, lsn, now)
        schema = followed(known.schema, arriving)
        if schema == known.schema and instance is not None and instance.altered is not None:
            self._compared[read.table, instance.name] = instance.altered
        if schema == known.schema or self._lake.history.written(window.window_id):
            return known
        return HistoryEntry(kind, schema, known.captured, read.instance, lsn, now)

    def _is_compared(self, instance: CaptureInstance) -> bool:
        return self._compared.get((instance.table, instance.name)) == instance.altered

    def _known(self, read: TableRead) -> HistoryEntry | None:
        """The recorded structure of an instance; a hand-over without a difference is not recorded."""
        history = self._lake.history
        found = history.of_instance(read.table, read.instance, read.after.next())
        if found is None and self._ledger.state.tables[read.table].instance == read.instance:
            return history.latest(read.table)
        return found

    def arriving(self, read: TableRead, instance: CaptureInstance | None) -> TableSchema:
        """The present structure of an instance's rows, from the server.

        Raises:
            InvariantError: the table or the instance is gone.
        """
        source = self._server.source
        schema = source.table_schema(read.table)
        stored = None if instance is None else source.table_schema(instance.change_table)
        if schema is None or instance is None or stored is None:
            raise InvariantError(
                f"{read.table} or its capture instance {read.instance} vanished before its structure was read. "
                "Next: enable capture again and materialize the table's snapshot asset."
            )
        arriving = captured_structure(self._server.described({read.table: schema})[read.table], stored, instance)
        if instance.altered is None:
            return arriving
        required = [
            column.name for column in arriving.columns if not column.nullable and column.name in instance.columns
        ]
        return with_nulls(arriving, source.columns_with_nulls(instance, required, read.after))
