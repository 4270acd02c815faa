"""Makes many readers see the same moment: each opens a SNAPSHOT transaction while writers are locked out.

The driver and the readers, which run as tasks anywhere, signal their progress by empty files in a folder of the lake, which all of
them can reach:

| reader | driver |
|---|---|
| `ready`: it runs and is connected | waits for all readers |
| | locks the tables: writers wait; the lock waits for transactions that have written |
| | `locked` |
| reads one row, which fixes what its transaction sees; `pinned` | waits for all readers |
| | checks that the locks are still held; releases them |
| waits, if it reads a table without a key | finds the place of the moment in the log (`moment`); `placed` |
| reads its slices | |

*Why all see the same.* Each transaction was fixed between `locked` and `pinned`.
The locks were held from before `locked` until after the last `pinned` was seen, and
the check shows that they were not lost in between. In that time no table changed.
Only the driver decides, before it records what was read; so it does not
matter when a reader notices anything.

*Failures.* A reader that starts twice, because its task was repeated, finds its
own `ready` file and gives up: its second transaction would see more. If there are too few task slots for all
readers to run at once, if a lock cannot be taken or a reader fails, the driver writes `over`. Then all readers end, those that
still wait for a slot never begin, nothing is recorded, and the next attempt uses another folder. If the driver dies, readers end after their time limit, and the
folder remains with a few empty files.

Writers wait for one exchange of files, tens of milliseconds on a disk, instead of the
whole read. The read then depends on living sessions, so an interrupted snapshot
restarts (`locks`).
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from typing import TypeVar
from uuid import uuid4

from cdc_assets.core import interruption
from cdc_assets.core.identifiers import TableId
from cdc_assets.core.lsn import Lsn
from cdc_assets.core.ports import Source
from cdc_assets.core.steps import step
from cdc_assets.errors import LAKE_ERRORS, CdcError, ConfigurationError, InvariantError, ServerBusyError
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location
from cdc_assets.snapshot.moment import Way

T = TypeVar("T")

_POLL_S = 0.02
_GATHER_S = 120.0
"""Time limit in seconds for all readers to start: a cluster may have to add executors."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """The exchange of files among the readers of one attempt; serialized and sent to their tasks.

    Args:
        directory: folder of this attempt only.
        readers: number of readers.
        lock_timeout_ms: longest wait of the driver for each lock, in milliseconds; -1 waits for ever.
        place_s: longest time in seconds for which the driver searches for the place of the moment.
    """

    location: Location
    directory: str
    readers: int
    lock_timeout_ms: int
    place_s: float = 0.0

    @classmethod
    def new(
        cls, location: Location, prefix: str, readers: int, lock_timeout_ms: int, place_s: float = 0.0
    ) -> "Barrier":
        """A barrier in a new folder."""
        return cls(location, f"{prefix}.__readers/{uuid4().hex}", readers, lock_timeout_ms, place_s)

    @property
    def _folder(self) -> Folder:
        return Folder(self.location, self.directory)

    # ---- reader --------------------------------------------------------------------------------------------------

    def fix_moment(self, number: int, pin: Callable[[], None]) -> None:
        """Fix what a reader's transaction sees while all other readers fix theirs.

        Args:
            number: number of the reader, from 0.
            pin: reads one row in the transaction.

        Raises:
            ServerBusyError: the barrier failed, or this reader was started before.
            CdcError: raised by `pin`.
        """
        folder = self._folder
        if f"{number}.ready" in folder.names(""):
            raise ServerBusyError("A reader of the snapshot was started twice. Next: the snapshot restarts")
        folder.write(f"{number}.ready", b"")
        self._wait("locked", _GATHER_S + (self.lock_timeout_ms / 1000 if self.lock_timeout_ms >= 0 else 3600))
        pin()
        folder.write(f"{number}.pinned", b"")

    def place(self) -> Lsn:
        """The place of the moment in the log, for a reader that has fixed it.

        Raises:
            ServerBusyError: it was not found.
        """
        self._wait("placed", _GATHER_S + self.place_s)
        return Lsn.parse(self._folder.read("placed").decode())

    def _wait(self, name: str, seconds: float) -> None:
        """Wait for a file of the driver."""
        folder, end = self._folder, time.monotonic() + seconds
        while name not in (names := folder.names("")):
            if "over" in names or time.monotonic() > end:
                reason = folder.read("over").decode() if "over" in names else "the driver is gone"
                raise ServerBusyError(f"The readers of the snapshot did not all start: {reason}. The snapshot restarts")
            interruption.sleep(_POLL_S)

    def leave(self, reason: BaseException) -> None:
        """Report a failure, so that nobody waits; the first reason counts."""
        with suppress(*LAKE_ERRORS):
            if "over" not in self._folder.names(""):
                self._folder.write("over", str(reason).encode())

    # ---- driver --------------------------------------------------------------------------------------------------

    def hold(
        self, source: Source, tables: Sequence[TableId], read: Callable[[Event], T], way: Way | None = None
    ) -> tuple[T, Lsn | None]:
        """Read by tasks that call `fix_moment`, and check that they all saw the same moment.

        Args:
            source: control plane that locks the tables.
            tables: tables to lock.
            read: function that runs the tasks; they are of no use any more when the event is set.
            way: how the place of the moment in the log is found; None if no reader requests it.

        Returns:
            What was read, and that place.

        Raises:
            ConfigurationError: fewer readers than expected run at once.
            CdcError: a lock could not be taken or was lost, or the tasks failed.
        """
        gone, over = Event(), Event()
        with ThreadPoolExecutor(1) as pool:
            host = pool.submit(self._host, source, sorted(tables), gone, over, way)
            try:
                result = read(over)
                arrived, place = host.result()
            except CdcError as error:
                gone.set()
                raise host.exception() or error from None  # the driver's error is the cause of the tasks' errors
            finally:
                gone.set()
                wait([host])
                with suppress(*LAKE_ERRORS):
                    self._folder.drop()
        if not arrived:
            raise InvariantError("Readers of the snapshot ended before all of them had started. Next: report this.")
        return result, place

    def _host(
        self, source: Source, tables: Sequence[TableId], gone: Event, over: Event, way: Way | None
    ) -> tuple[bool, Lsn | None]:
        """Whether all readers saw the same moment, and its place; False if one of them failed, whose error then holds the reason."""
        place = None
        try:
            arrived = self._gather("ready", gone)
            if self._failed(gone):
                return False, None
            if arrived < self.readers:
                raise ConfigurationError(
                    "snapshot.max.threads", self.readers, f"at most {arrived}: only so many readers run at once",
                    "lower it, or give Spark more task slots",
                )  # fmt: skip
            with source.lock_tables(tables, self.lock_timeout_ms) as locks:
                if way is not None:
                    for database in {table.database for table in tables}:
                        locks.require_primary(database)
                    way.begin()
                self._folder.write("locked", b"")
                pinned = self._gather("pinned", gone)
                if way is not None and pinned == self.readers:
                    way.fix()
                    step("moment-fixed")
                locks.check()
            if pinned < self.readers and not self._failed(gone):
                raise ServerBusyError(
                    f"Only {pinned} of {self.readers} readers opened their transaction in time. Next: the snapshot is retried"
                )
            if way is not None and pinned == self.readers:
                place = way.place(gone)
                self._folder.write("placed", str(place).encode())
        except BaseException as error:
            self.leave(error)
            over.set()
            raise
        return pinned == self.readers, place

    def _failed(self, gone: Event) -> bool:
        return gone.is_set() or "over" in self._folder.names("")

    def _gather(self, what: str, gone: Event) -> int:
        """Wait until every reader has written a file of this kind; returns how many have."""
        end = time.monotonic() + _GATHER_S
        while True:
            names = self._folder.names("")
            count = sum(name.endswith(f".{what}") for name in names)
            if count >= self.readers or "over" in names or gone.is_set() or time.monotonic() > end:
                return count
            gone.wait(_POLL_S)
