"""Where the events of windows go: the topic generation of each read, and what an earlier attempt has committed there.

*Recorded, not derived.* The generation follows from a table's structure and the settings, which may change while a window
is in flight: another one has not reached the window's number, and would get its rows again. So each read of the plan
names its directory, before anything is written there. The plan takes that of the table's newest events; if the structure leads
elsewhere, as at most hand-overs, the plan is recorded again. A repeat reads the directories of the plan. A table that would be
written elsewhere now is left to the next window, unless it is committed.

*A table that stays behind in a repeat* may still be committed by a writer that was believed dead, and the next window would
bring its rows again. So its number is taken first (`TopicTables.leave_out`); a table that turns out to be
committed has reached the end of the window. After a crash in between it stays behind in every later repeat.
"""

import dataclasses
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from cdc_assets.core.identifiers import TableId
from cdc_assets.lake.step import leave_out_if_readable
from cdc_assets.ledger.ledger import Ledger
from cdc_assets.ledger.state import TableRead, Window
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.lake import Lake
from cdc_assets.streaming.window_parts import Part

log = logging.getLogger(__name__)


def plan_destinations(window: Window, tables: Mapping[TableId, TableState]) -> Window:
    """A window whose reads name the directories of their tables' newest events, as far as these are of the same instance."""
    return dataclasses.replace(
        window,
        reads=tuple(
            dataclasses.replace(read, directory=tables[read.table].directory)
            if not read.counted and tables[read.table].identity == read.identity
            else read
            for read in window.reads
        ),
    )


class Destinations:
    """Destinations of the windows in flight."""

    def __init__(self, lake: Lake, ledger: Ledger) -> None:
        self._lake, self._ledger = lake, ledger

    def take(self, part: Part, *, repeated: bool) -> None:
        """Give each read its directory; a table that a repeat would write elsewhere is left to the next window.

        Raises:
            LakeError: a topic table cannot be read.
        """
        window, structures = part.window, part.structures
        own = {(read.table, read.instance) for read in window.reads if not read.counted}
        wanted = {key: self._lake.destination(entry)[1] for key, entry in structures.entries.items() if key in own}
        moved = {read.table for read in window.reads if repeated and self._is_elsewhere(window, read, wanted)}
        part.structures = dataclasses.replace(structures, moved=structures.moved | moved)

        def with_destination(read: TableRead) -> TableRead:
            directory = wanted.get((read.table, read.instance), read.directory)
            keeps = read.counted or (repeated and read.directory)
            return read if keeps else dataclasses.replace(read, directory=directory)

        part.window = dataclasses.replace(window, reads=tuple(with_destination(read) for read in window.reads))

    def _is_elsewhere(self, window: Window, read: TableRead, wanted: Mapping[tuple[TableId, str], str]) -> bool:
        """Whether the rows of a read must not be written where the plan says, or cannot be."""
        directory = read.directory
        if read.counted or not directory or self._lake.tables.committed(directory, window.window_id):
            return False
        is_moved = wanted.get((read.table, read.instance), directory) != directory
        return is_moved or self._lake.tables.left_out(directory, window.window_id)

    def record(self, parts: Iterable[Part]) -> None:
        """Record the directories that the plan does not name, before anything is written there.

        Raises:
            FencedError: another writer has taken over.
        """
        found = {
            (read.table, read.instance): read.directory
            for part in parts
            for read in part.window.reads
            if not read.counted
        }
        pending = self._ledger.state.pending
        windows = [
            dataclasses.replace(
                window,
                reads=tuple(
                    read
                    if read.counted
                    else dataclasses.replace(read, directory=found.get((read.table, read.instance), read.directory))
                    for read in window.reads
                ),
            )
            for window in pending
        ]
        if tuple(windows) != pending:
            self._ledger.manifest.record_destinations(self._ledger.clock.now(), windows)

    def leave_out_of_repeat(self, window: Window, tables: Collection[TableId]) -> tuple[set[TableId], set[TableId]]:
        """Leave tables out of a window that is repeated.

        Returns:
            Of these, the tables that turn out to be committed, and those of which one generation is and another is not.
        """
        there: dict[TableId, list[bool]] = {}
        for read in window.reads:
            if read.table in tables and not read.counted and read.directory:
                is_there = not self._lake.tables.leave_out(read.directory, window.window_id)
                there.setdefault(read.table, []).append(is_there)
        whole = {table for table, found in there.items() if all(found)}
        return whole, {table for table, found in there.items() if any(found)} - whole

    def leave_out_stopped(self, window: Window, reads: Sequence[TableRead]) -> None:
        """Leave out tables that have stopped since the window was planned."""
        for read in reads:
            if not read.counted and read.directory:
                leave_out_if_readable(self._lake.tables, read.directory, window.window_id)
