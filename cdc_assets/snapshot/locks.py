"""Table locks of a snapshot (spec debezium-sqlserver §2.3).

| isolation | locks, unless `snapshot.locking.mode=none` |
|---|---|
| `repeatable_read` | until low watermarks and structures are recorded: no structure changes in between |
| `exclusive` | until the last row is read: all rows of all tables are from the same moment |
| `snapshot` | until all readers have opened their transactions (`barrier`): the same |
| others | none |

Besides, a table without a key is locked while its readers fix what they see, or until it is read (`moment`), whatever the
isolation, unless `exclusive` has locked it.

*Who holds them.* Many sessions read at once, and none of them could hold a lock that only the
other readers may pass. So one more session, of the driver, holds a shared lock on each
table: readers pass, while writers and ALTER TABLE wait. Debezium takes exclusive
locks, which its single reading session may pass.

*One moment.* Writers are locked out from before the low watermark is taken until the last row is read, so every row
read in between is of the same state. The locks end with the holding session, whatever ends it. So that session is
checked before the rows of a round are recorded, and an interrupted snapshot restarts under new locks instead of
continuing with the next slice. If everything was read and recorded, only the commits are repeated. Transactions with
isolation `snapshot` end with their sessions as well, so such a snapshot is read in one round, and restarts if it was
interrupted. Without locks each slice of it is the state of one moment, but not of the same one, and it resumes.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from cdc_assets.config.settings import SnapshotSettings
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.ports import HeldLocks, Source


class SnapshotLocks:
    """Context manager of the locks of one snapshot.

    Args:
        source: control plane whose session holds the locks.
        settings: settings that decide which locks are taken.
        tables: tables to lock.

    Raises:
        ServerBusyError: on entry, if a table could not be locked in time.
    """

    def __init__(self, source: Source, settings: SnapshotSettings, tables: Iterable[TableId]) -> None:
        self._source, self._settings = source, settings
        self._tables = sorted(tables)
        self._stack = ExitStack()
        self._held: HeldLocks | None = None

    def __enter__(self) -> Self:
        wanted = self._settings.isolation in ("repeatable_read", "exclusive") and self._settings.locking != "none"
        if wanted and self._tables:
            locks = self._source.lock_tables(self._tables, self._settings.lock_timeout_ms)
            self._held = self._stack.enter_context(locks)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def structures_are_recorded(self) -> None:
        """Release the locks, unless they are held until the last row is read."""
        if self._settings.isolation != "exclusive":
            self._release()

    def check(self) -> None:
        """Check that the locks that must be held still are.

        Raises:
            RetryableError: the locks are lost.
        """
        if self._held is not None:
            self._held.check()

    def _release(self) -> None:
        self._held = None
        self._stack.close()


def of_one_moment(settings: SnapshotSettings) -> bool:
    """Whether all rows of a snapshot must be from one moment, so that it must restart instead of resuming."""
    return settings.isolation in ("exclusive", "snapshot") and settings.locking != "none"


def by_barrier(settings: SnapshotSettings) -> bool:
    """Whether the readers' own transactions fix that moment."""
    return settings.isolation == "snapshot" and settings.locking != "none"


def to_lock(settings: SnapshotSettings, tables: Iterable[TableId]) -> list[TableId]:
    """Tables that are to be locked while readers fix what they see: none if that is forbidden, or they are locked anyway.

    A second lock would wait after a writer who waits for the first.
    """
    return [] if settings.isolation == "exclusive" or settings.locking == "none" else sorted(set(tables))
