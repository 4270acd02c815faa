"""How far the readers of a topic are: up to where its events may be dropped.

*A mirror* holds the events up to its LSN, so events strictly below may go; of one that is being rebuilt, none (`mirror.needs`). *The publisher's* progress is a window number. Readers that
are not known, such as assets, have the time that the age gives them.
"""

from dataclasses import dataclass

from cdc_assets.config.settings import CaptureConfig
from cdc_assets.core.identifiers import TableId
from cdc_assets.ledger.state import CaptureState
from cdc_assets.ledger.table_state import TableState
from cdc_assets.publish.offset import END_OF_WINDOW, Published
from cdc_assets.retention.ports import Mirrors

NOTHING = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """Up to where the readers of a topic have its events.

    Args:
        below: commit LSN below which they have all of them; empty if none may be dropped.
        window: greatest number of a window that is published; None if topics are not published.
        reason: why it is not further, for people.
        since: commit LSN before which events have no meaning for the table any more (`Needs.since`); empty if all do.
    """

    below: str
    window: int | None
    reason: str
    since: str = ""

    def allows(self, until: str) -> bool:
        """Whether events up to an LSN may be dropped, as far as mirrors are concerned."""
        return until < self.below


class Readers:
    """What reads the topics of a capture.

    Args:
        mirrors: its mirrors, which are asked now how far they are.
        published: how far topics are published, if they are.

    Raises:
        LakeError: it cannot be read how far the mirrors are.
    """

    def __init__(self, config: CaptureConfig, mirrors: Mirrors, published: Published | None) -> None:
        self._config, self._mirrors, self._needs, self._published = config, mirrors, mirrors.needs(), published

    def limit(self, state: CaptureState, table: TableId, topic: str) -> Limit:
        """How far the readers of a table's topic are."""
        window = None
        if self._published is not None:
            newest, at = self._published.of(topic)
            window = newest if at == END_OF_WINDOW else newest - 1
        below, reason = self._below(state, state.tables[table], topic)
        if below and window is not None:
            reason = f"{reason}; published up to window {window}"
        return Limit(below, window, reason, self._needs.since(topic))

    def _below(self, state: CaptureState, table: TableState, topic: str) -> tuple[str, str]:
        if table.status != "healthy" or table.position is None:
            return NOTHING, f"the table is not followed ({table.status})"
        if any(entry.table == table.table for run in state.snapshots.values() for entry in run.tables):
            return NOTHING, "a snapshot of the table is in flight"
        if not self._mirrors.has(table.table):
            if not self._config.lake.topic_unmirrored:
                return NOTHING, "it has no mirror (lake.topic.retention.unmirrored)"
            return str(table.position), f"complete up to {table.position}"
        return self._needs.below(topic)
