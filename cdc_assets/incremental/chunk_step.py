"""READ events of a round of an incremental snapshot as a step: they are built once, and one commit follows (`lake.step`).

They are built from rows that were read between two markers, so they cannot be made again: they are recorded with the queue of
signals before they are committed, and committed before any window is planned, since newer events must come after them.
"""

from collections.abc import Callable

from cdc_assets.lake.step import Events, Step, window_facts
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.signal_state import RoundReads


def chunk_step(
    tables: TopicTables,
    reads: RoundReads,
    record: Callable[[], None],
    complete: Callable[[], None],
    *,
    is_recorded: bool,
) -> Step:
    """READ events that are built, or recorded by an earlier run; no commit if no row is left.

    Args:
        record: records them with the queue of signals.
        complete: records that they are committed, and continues with the queue.
        is_recorded: whether the queue has them.
    """
    about = window_facts(reads.window_id, reads.files, snapshot="incremental")
    events = Events(tables, reads.directory, reads.files, about, reached="reads-committed")
    return Step(reads.window_id, [[events]] if reads.files else [], record, complete, is_recorded)
