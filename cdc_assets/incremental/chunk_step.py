"""READ events of a round of an incremental snapshot as a step: they are built once, and one commit follows (`lake.step`).

They are built from rows that were read between two markers, so they cannot be made again: they are recorded with the queue of
signals before they are committed, and committed before any window is planned, since newer events must come after them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cdc_assets.lake.step import Events
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.signal_state import RoundReads


@dataclass(frozen=True)
class ChunkStep:
    """READ events that are built, or recorded by an earlier run.

    Args:
        is_recorded: whether the queue has them.
        check: raises if the database was restored since they were read.
        keep: records them with the queue.
        advance: records that they are committed, and goes on with the queue.
    """

    tables: TopicTables
    reads: RoundReads
    is_recorded: bool
    check: Callable[[], None]
    keep: Callable[[RoundReads], None]
    advance: Callable[[RoundReads], None]

    @property
    def number(self) -> int:
        """Number of the commit."""
        return self.reads.window_id

    def found(self) -> RoundReads | None:
        """Those that are recorded."""
        return self.reads if self.is_recorded else None

    def write(self) -> RoundReads:
        """They are written."""
        self.check()
        return self.reads

    def changes(self, written: RoundReads) -> list[list[Events]]:
        """One commit; none if no row is left."""
        if not written.files:
            return []
        rows = sum(file.rows for file in written.files)
        about = {"window_id": str(written.window_id), "rows": str(rows), "snapshot": "incremental"}
        return [[Events(self.tables, written.directory, written.files, about, reached="reads-committed")]]

    def record(self, written: RoundReads) -> None:
        """Record the files with the queue."""
        self.keep(written)

    def complete(self, written: RoundReads) -> None:
        """Go on with the queue."""
        self.advance(written)
