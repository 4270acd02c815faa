"""READ events of a round of an incremental snapshot as a step: they are built once, and one commit follows (`lake.step`).

They are built from rows that were read between two markers, so they cannot be made again: they are recorded with the queue of
signals before they are committed, and committed before any window is planned, since newer events must come after them.
"""

from cdc_assets.lake.step import Events, window_facts
from cdc_assets.lake.topics import TopicTables
from cdc_assets.ledger.signal_state import RoundReads


def chunk_commits(tables: TopicTables, reads: RoundReads) -> list[list[Events]]:
    """The commit of READ events; none if no row is left."""
    about = window_facts(reads.window_id, reads.files, snapshot="incremental")
    events = Events(tables, reads.directory, reads.files, about, reached="reads-committed")
    return [[events]] if reads.files else []
