"""Pending work that signals have requested; stored in the manifest, so that a crash loses and repeats nothing."""

import dataclasses
from dataclasses import dataclass

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.lake.files import DataFile

Key = tuple[str | None, ...]
"""Values of a key's columns in the server's own text form; None is NULL."""

_REMEMBERED = 1000
"""Number of remembered request ids of the inbox, which are not handled again. Other channels need positions only."""


@dataclass(frozen=True, slots=True)
class QueuedTable:
    """A table in the queue of an incremental snapshot.

    Args:
        signal: id of the signal that requested it.
        condition: predicate that limits the rows, or empty.
        surrogate: column that orders the chunks in place of the key, or empty.
        maximum: greatest key at the table's start; later rows come from the stream. None: not started.
        last: key up to which rows are committed; None if there are none.
        rows: number of READ events so far.
        order: names of the columns to which the values of `maximum` and `last` belong.
        types: what the order of those columns' values depends on (`core.ranges`); empty if it was not recorded.
    """

    table: TableId
    signal: str
    condition: str = ""
    surrogate: str = ""
    maximum: Key | None = None
    last: Key | None = None
    rows: int = 0
    order: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockingRequest:
    """A requested blocking snapshot, during which streaming waits.

    Args:
        signal: id of the signal that requested it.
        tables: tables in order, each with the SELECT that replaces it, or empty.
    """

    signal: str
    tables: tuple[tuple[TableId, str], ...]


@dataclass(frozen=True, slots=True)
class StructureRequest:
    """Structures given by a signal.

    Args:
        changes: Debezium's `tableChanges` as JSON text.
        window_id: window number of the last attempt, or 0.
    """

    signal: str
    changes: str
    window_id: int = 0


@dataclass(frozen=True, slots=True)
class RoundReads:
    """Files of an incremental round that are recorded and perhaps not committed yet.

    Args:
        window_id: number of the commit.
        directory: directory of the topic table's generation.
        files: written files; none if all rows were dropped.
        last: key up to which rows were read.
        finished: whether the table has no further row.
        entry: state of the queued table at that time.
        hidden: columns that they do not show as they are (`EventPlan.hidden`); None if it was not recorded.
    """

    window_id: int
    directory: str
    files: tuple[DataFile, ...]
    last: Key
    finished: bool
    entry: QueuedTable
    hidden: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class SignalState:
    """Signal state of one database.

    Args:
        read_until: commit LSN up to which rows of the signal table were handled; None: start at the table's first
            position.
        handled: ids of handled requests of the inbox, newest last.
        queue: tables to read; the first is being read.
        paused: whether the incremental snapshot is paused.
        reads: see `RoundReads`.
        blocking: requested blocking snapshots, in order.
        structures: structures to be recorded in the schema history, in order.
        places: positions in channels outside the log: stream, and number of the first message not handled; the same in
            every database.
        failed: ids of signals in the queue, each with a table that could not be read for it.
        signal_table: the table of `read_until`; None if it was not recorded yet.
    """

    read_until: Lsn | None = None
    handled: tuple[str, ...] = ()
    queue: tuple[QueuedTable, ...] = ()
    paused: bool = False
    reads: RoundReads | None = None
    blocking: tuple[BlockingRequest, ...] = ()
    structures: tuple[StructureRequest, ...] = ()
    places: tuple[tuple[str, int], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    signal_table: TableId | None = None

    @property
    def unfinished(self) -> bool:
        """Whether there is work even without new changes."""
        return bool(self.blocking or self.structures or self.reads or (self.queue and not self.paused))

    @property
    def table_of_reads(self) -> TableId | None:
        """The table that the files of `reads` belong to, which a signal may have taken out of the queue since; None without files."""
        return None if self.reads is None else self.reads.entry.table

    def with_handled(self, signal: str) -> "SignalState":
        """The state with an id added to `handled`."""
        return dataclasses.replace(self, handled=(*self.handled, signal)[-_REMEMBERED:])
