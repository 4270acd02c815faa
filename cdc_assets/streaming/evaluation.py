"""What became of a window that was read: which files count, which tables stay behind, and why.

*A table that was altered* while it was read, or whose capture instances changed, stays behind without a mark: the next window
reads it again. *One that cannot be read* is marked with the reason, at its old position. If an earlier attempt has committed a part
of the window for it (two generations of its topic), no position is right, and it is not tried again.

*What an earlier attempt has committed* lacks nothing, whatever becomes of the table now. A table that stays behind in a repeated
window has its number taken first (`Destinations.leave_out_of_repeat`), since a writer that was believed dead may still hold its files.

*After a hand-over* the older capture instance may be dropped; that is said with the window's completion.
"""

import logging
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import replace
from operator import attrgetter

from cdc_assets.core.identifiers import TableId
from cdc_assets.core.notification import Notification
from cdc_assets.core.signal import signal_table
from cdc_assets.ledger.state import Window
from cdc_assets.ledger.table_state import TableState
from cdc_assets.shared.endings import is_split, split_commit_reason
from cdc_assets.shared.forks import check_recovery_fork
from cdc_assets.shared.instances import Gap
from cdc_assets.shared.parts import CaptureParts
from cdc_assets.shared.statements import skipped_numbers
from cdc_assets.streaming.destinations import Destinations
from cdc_assets.streaming.gaps import with_gap
from cdc_assets.streaming.row_counts import check_rows
from cdc_assets.streaming.window_parts import Part, files_of

log = logging.getLogger(__name__)

_AGAIN = "It is tried again by itself, from its position."


class Evaluation:
    """Evaluates windows that were read, before anything of them is committed.

    Args:
        destinations: where tables are in repeated windows.
    """

    def __init__(self, parts: CaptureParts, destinations: Destinations) -> None:
        self._server, self._lake, self._ledger = parts.server, parts.lake, parts.ledger
        self._settings, self._destinations = parts.config.streaming, destinations
        self._signals = parts.config.signals.collections

    def evaluate(self, part: Part, *, repeated: bool) -> Part:
        """The part with the files to commit and the changed states of tables.

        Raises:
            CdcError: a trouble of its database: nothing of it is committed now.
        """
        window, structures, results = part.window, part.structures, part.results
        for trouble in (result.trouble for result in results if result.trouble):
            raise trouble
        check_recovery_fork(self._ledger, self._server.source, window.database)
        whole = part.whole()
        moved = part.moved() - whole | structures.moved
        failed, committed, torn = dict(structures.failed), set[TableId](), set[TableId]()
        locked = {table: error for result in results for table, error in result.locked.items()}
        if locked and self._must_wait(window.database, locked.keys(), whole, repeated=repeated):
            raise next(iter(locked.values()))
        if repeated:
            behind = moved.union(failed, part.unread()) - whole
            committed, torn = self._destinations.leave_out_of_repeat(window, behind)
            failed |= dict.fromkeys(torn, split_commit_reason("It was altered, or could not be read,"))
            whole |= committed
            moved -= torn | whole
        changed = self._troubled(part, failed, whole, moved, torn)
        for table in moved:
            log.info("%s or its capture instances changed while it was read; the next window reads it again.", table)
        part.behind = {state.table for state in changed} | moved
        unread = part.behind.union(committed, part.unread())
        check_rows(
            self._server.source,
            [entry.read for entry in part.planned if entry.read.table not in unread],
            [result.rows for result in results],
            skipped_numbers(self._lake.events.skipped_operations),
        )
        part.files = files_of(results, without=part.behind | committed)
        part.changed = changed + self._handed_over(window, part.behind)
        part.notifications = list(self._removable(window, part.changed, part.behind))
        return part

    def _must_wait(self, database: str, locked: Set[TableId], whole: Set[TableId], *, repeated: bool) -> bool:
        """Whether a locked table may not fail alone, so that its database waits.

        What is committed as a whole (`whole`) could not be counted any more, what is committed in part not be tried again, and an
        incremental snapshot would skip a table, or all if that of the signals, that is not streamed for a while.
        """
        signals = self._ledger.state.signals.get(database)
        queued = {entry.table for entry in signals.queue} if signals is not None else set[TableId]()
        markers = signal_table(self._signals, database, self._ledger.state.tables) if queued else None
        is_needed = not locked.isdisjoint(whole | queued | ({markers} if markers else set()))
        return is_needed or (repeated and is_split(self._ledger, self._lake, database))

    def _troubled(
        self,
        part: Part,
        failed: dict[TableId, str],
        whole: Set[TableId],
        moved: Collection[TableId],
        torn: Collection[TableId],
    ) -> list[TableState]:
        """States of tables that cannot take part, at their old position; those that are committed lack nothing.

        Those of which a part is committed (`torn`) cannot continue from it, all others can.
        """
        tables = self._ledger.state.tables
        policy = self._settings.gap_policy
        gaps: dict[TableId, Gap] = {}
        for result in part.results:
            failed |= {table: reason for table, reason in result.failed.items() if table not in failed}
            gaps |= {
                table: max(gap, gaps.get(table, gap), key=attrgetter("until")) for table, gap in result.gaps.items()
            }
        for table in whole & (failed.keys() | gaps.keys() | part.structures.moved):
            if part.window.transactions:
                log.warning(
                    "%s was committed by an earlier attempt and can no longer be read: transaction metadata may lack its events.",
                    table,
                )
            failed.pop(table, None)
            gaps.pop(table, None)
        instances = self._server.instances(part.database) if gaps else {}
        marked = [with_gap(tables[table], gap, policy, instances.get(table, [])) for table, gap in gaps.items()]
        return marked + [
            tables[table].stopped(
                reason if table in torn else f"{reason.rstrip('.')}. {_AGAIN}", again=table not in torn
            )
            for table, reason in failed.items()
            if table not in gaps and table not in moved
        ]

    def _handed_over(self, window: Window, troubled: set[TableId]) -> list[TableState]:
        """States of tables that are read from another instance, or written to another directory, from now on."""
        last = {read.table: read for read in window.reads if not read.counted and read.table not in troubled}
        found: list[TableState] = []
        for table, read in last.items():
            known = self._ledger.state.tables[table]
            place, instance = read.directory, read.instance
            state = replace(
                known, directory=place, instance=instance, made=read.made, change_table_id=read.change_table_id
            )
            found += [state] if state != known else []
        return found

    def _removable(self, window: Window, changed: Sequence[TableState], behind: Set[TableId]) -> Iterator[Notification]:
        """After a hand-over the older capture instance may be dropped (spec debezium-sqlserver §1.5, §10.1)."""
        for state in changed:
            old = self._ledger.state.tables[state.table].instance
            if state.table in behind or old is None or old == state.instance:
                continue
            start = next(read.after for read in window.reads if read.instance == state.instance)
            yield self._ledger.notice(
                "Capture Instance",
                "COMPLETED",
                server=self._lake.events.topic_prefix,
                database=window.database,
                capture_instance=old,
                **self._start_of(state.table, old),
                stop_lsn=str(start.next()),
                commit_lsn=str(window.until),
            )

    def _start_of(self, table: TableId, name: str) -> dict[str, str]:
        """`start_lsn` of a capture instance, unless it was dropped already."""
        instances = self._server.instances(table.database).get(table, [])
        return next(({"start_lsn": str(instance.start_lsn)} for instance in instances if instance.name == name), {})
