"""What a topic no longer holds: properties of its first Delta table.

The properties say after which commit LSN a topic holds every event, and from which LSN on what is left still makes the
table's rows. They are set before files are removed, so a reader
that lists files first and requests the properties then never takes a part of a topic for the whole. Readers need
nothing else: neither the manifest nor the capture's settings.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from deltalake.exceptions import CommitFailedError

from cdc_assets.errors import EventsDroppedError, LakeConflictError
from cdc_assets.lake.location import STORE_ERRORS, trouble
from cdc_assets.lake.tables import DeltaTables

COMPLETE_AFTER = "cdc.completeAfter"
DROPPED_WINDOW = "cdc.droppedWindow"
ROWS_FROM = "cdc.rowsFrom"
COMPACTED_TO = "cdc.compactedTo"
ANNOUNCEMENT = "cdc.announcement"
"""Names of the properties in Delta's log."""


@dataclass(frozen=True, slots=True)
class Retained:
    """What a topic still holds.

    Args:
        after: commit LSN after which it holds every event; empty if nothing was dropped.
        window: greatest number of a window of which something was dropped; -1 if nothing was.
        rows: commit LSN from which on the events that are left make the table's rows, because only such were dropped as
            others had replaced; empty if it is not so, or nothing was dropped.
        compacted: commit LSN up to which nothing is left that others have replaced; empty if it was never searched for.
        number: how often this was announced; of what the table says now (`announce`).
    """

    after: str = ""
    window: int = -1
    rows: str = ""
    compacted: str = ""
    number: int = field(default=0, compare=False)

    @property
    def is_begun(self) -> bool:
        """Whether a compaction was announced and not ended."""
        return self.rows > self.compacted

    def require(self, topic: str, lsn: str, wanted: str, hint: str) -> None:
        """Check that the topic holds every event after an LSN.

        Args:
            lsn: empty for the beginning.
            wanted: description for people.
            hint: next step for the reader.

        Raises:
            EventsDroppedError: it does not.
        """
        if lsn < self.after:
            raise EventsDroppedError(topic, self.after, wanted, hint)


def retained(tables: DeltaTables, topic: str) -> Retained:
    """What a topic still holds, as its table says now.

    Raises:
        LakeError: it cannot be read.
    """
    handle = tables.open(topic)
    if handle is None:
        return Retained()
    found = handle.metadata().configuration
    return Retained(
        found.get(COMPLETE_AFTER, ""),
        int(found.get(DROPPED_WINDOW, "-1")),
        found.get(ROWS_FROM, ""),
        found.get(COMPACTED_TO, ""),
        int(found.get(ANNOUNCEMENT, "0")),
    )


def announce(tables: DeltaTables, topic: str, number: int, found: Retained) -> None:
    """Say what a topic holds from now on.

    A run that was overtaken, and dropped less than its successor, must not say so any more: so each announcement names the one
    that it follows, and the table has it only if no other came between. Delta refuses one of two that are made at once.

    Args:
        number: of the announcement that was read before it was decided what the topic holds.

    Raises:
        LakeConflictError: another writer has announced something since; nothing is changed.
        LakeError: the store refuses.
    """
    if (handle := tables.open(topic)) is None:
        return
    if int(handle.metadata().configuration.get(ANNOUNCEMENT, "0")) != number:
        raise LakeConflictError(
            f"{tables.location.uri(topic)} was just announced by another writer to hold fewer events. "
            "Next: nothing, it is tried again."
        )
    properties = {COMPLETE_AFTER: found.after, DROPPED_WINDOW: str(found.window)}
    properties |= {ROWS_FROM: found.rows, COMPACTED_TO: found.compacted, ANNOUNCEMENT: str(number + 1)}
    _changed(tables, topic, lambda: handle.alter.set_table_properties(properties, raise_if_not_exists=False))


def _changed(tables: DeltaTables, directory: str, change: Callable[[], None]) -> None:
    """Change a table; if another writer was first, it stays as it is."""
    try:
        change()
    except CommitFailedError as error:
        raise LakeConflictError(
            f"{tables.location.uri(directory)} was written by another writer meanwhile. Next: nothing, it is tried again."
        ) from error
    except STORE_ERRORS as error:
        place = tables.location.uri(directory)
        raise trouble(f"{place} cannot be written", error, "check the path and its rights") from error
    finally:
        tables.forget(directory)
