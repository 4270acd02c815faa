"""Pending work that signals have requested; stored in the manifest, so that a crash forgets and repeats nothing."""

import dataclasses
from dataclasses import dataclass

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.lake.files import DataFile

Key = tuple[str | None, ...]
"""Values of a key's columns in the server's own text form; None is NULL."""

_REMEMBERED = 1000
"""Requests of the inbox that are not acted on again. Positions alone protect against repetition elsewhere."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A table in the queue of the incremental snapshot.

    Args:
        signal: id of the signal that asked for it.
        condition: predicate that limits the rows, or empty.
        surrogate: column to walk along in place of the key, or empty.
        maximum: greatest key when the table was begun; later rows come from the stream. None: not begun.
        last: rows up to this key are committed; None: none are.
        rows: READ events so far.
        order: names of the columns whose values `maximum` and `last` are.
    """

    table: TableId
    signal: str
    condition: str = ""
    surrogate: str = ""
    maximum: Key | None = None
    last: Key | None = None
    rows: int = 0
    order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockingRequest:
    """A snapshot that the stream is to wait for.

    Args:
        signal: id of the signal that asked for it.
        tables: in their order, each with a SELECT that is read in its place, or empty.
    """

    signal: str
    tables: tuple[tuple[TableId, str], ...]


@dataclass(frozen=True, slots=True)
class StructureRequest:
    """Structures that a signal gives.

    Args:
        changes: Debezium's `tableChanges` as JSON text.
        window_id: under which they were last tried, or 0.
    """

    signal: str
    changes: str
    window_id: int = 0


@dataclass(frozen=True, slots=True)
class RoundReads:
    """Files of a round that are recorded and may not be committed yet.

    Args:
        window_id: number of the commit.
        directory: of the topic table's generation.
        files: what was written; none if all rows were dropped.
        last: rows up to this key were read.
        finished: whether the table has no further row.
        entry: the queued table as it stood; None in what earlier releases recorded.
    """

    window_id: int
    directory: str
    files: tuple[DataFile, ...]
    last: Key
    finished: bool
    entry: Collection | None = None


@dataclass(frozen=True, slots=True)
class SignalState:
    """One database's signals.

    Args:
        read_until: rows of the signal table up to this commit LSN were handled; None: from its first position on.
        handled: ids of requests of the inbox that were acted on, newest last.
        queue: tables to read; the first is being read.
        paused: whether the incremental snapshot waits.
        reads: see `RoundReads`.
        blocking: snapshots for which the stream is to wait, in their order.
        structures: to be taken into the schema history, in their order.
        places: of channels outside the log: stream and number of the first message that was not handled; the same
            in every database.
        failed: ids of signals in the queue, each with a table that could not be read for it.
    """

    read_until: Lsn | None = None
    handled: tuple[str, ...] = ()
    queue: tuple[Collection, ...] = ()
    paused: bool = False
    reads: RoundReads | None = None
    blocking: tuple[BlockingRequest, ...] = ()
    structures: tuple[StructureRequest, ...] = ()
    places: tuple[tuple[str, int], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()

    @property
    def unfinished(self) -> bool:
        """Whether a run has something to do though nothing new comes."""
        return bool(self.blocking or self.structures or self.reads or (self.queue and not self.paused))

    def with_handled(self, signal: str) -> "SignalState":
        """With an id remembered."""
        return dataclasses.replace(self, handled=(*self.handled, signal)[-_REMEMBERED:])
