"""One moment for many readers: each opens its own SNAPSHOT transaction while nobody can write.

The driver and the readers, which are tasks somewhere, tell one another how far
they are by empty files in a folder of the lake, which all of them can reach:

| reader | driver |
|---|---|
| `ready`: it runs and is connected | waits for all |
| | locks the tables: writers wait, and so do transactions that have written wait to end |
| | `locked` |
| reads one row in its transaction, which fixes what the transaction sees; `pinned` | waits for all |
| reads its slices | proves that the locks are still held; releases them |

*Why all see the same.* Each transaction was fixed between `locked` and `pinned`.
The locks were held from before `locked` until after the last `pinned` was seen, and
the proof shows that they were not lost in between. In that time no table changed.
What is judged is the driver's view alone, before it records what was read; so it does not
matter when a reader notices anything.

*What may go wrong.* A reader that comes twice, because its task was repeated, finds its
own `ready` and gives up: its second transaction would see more. Too few places for all
readers to run at once, a lock that is not to be had, a reader that fails: the driver
says `over`, everybody leaves, nothing is recorded, and the next attempt meets in another
folder. A driver that dies says nothing; readers leave when their time is over, and the
folder stays behind as a few empty files.

Writers wait for one exchange of files, tens of milliseconds on a disk, in place of the
whole reading. What is read then is bound to living sessions, so an interrupted snapshot
begins again (`locks`).
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
from cdc_assets.core.ports import Source
from cdc_assets.errors import CdcError, ConfigurationError, InvariantError, LakeError, ServerBusyError
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location

T = TypeVar("T")

_LOOK_EVERY_S = 0.02
_GATHER_S = 120.0
"""How long readers may take to start: a cluster may have to make room."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the readers of one attempt meet; travels to their tasks.

    Args:
        directory: folder of this attempt alone.
        readers: how many come.
        lock_timeout_ms: how long the driver waits for each lock; -1 for ever.
    """

    location: Location
    directory: str
    readers: int
    lock_timeout_ms: int

    @classmethod
    def new(cls, location: Location, prefix: str, readers: int, lock_timeout_ms: int) -> "Meeting":
        """A meeting in a folder of its own."""
        return cls(location, f"{prefix}.__readers/{uuid4().hex}", readers, lock_timeout_ms)

    @property
    def _folder(self) -> Folder:
        return Folder(self.location, self.directory)

    # ---- reader --------------------------------------------------------------------------------------------------

    def attend(self, number: int, pin: Callable[[], None]) -> None:
        """Fix what a reader's transaction sees at the moment at which all others fix theirs.

        Args:
            number: of the reader, from 0.
            pin: reads one row in the transaction.

        Raises:
            ServerBusyError: the meeting failed, or this reader was here before.
            CdcError: what `pin` raises.
        """
        folder = self._folder
        if f"{number}.ready" in folder.names(""):
            raise ServerBusyError("A reader of the snapshot was started twice. Next: the snapshot begins again")
        folder.write(f"{number}.ready", b"")
        waits_s = _GATHER_S + (self.lock_timeout_ms / 1000 if self.lock_timeout_ms >= 0 else 3600)
        end = time.monotonic() + waits_s
        while "locked" not in (names := folder.names("")):
            if "over" in names or time.monotonic() > end:
                reason = folder.read("over").decode() if "over" in names else "the driver is gone"
                raise ServerBusyError(f"The readers of the snapshot did not come together: {reason}. It begins again")
            interruption.sleep(_LOOK_EVERY_S)
        pin()
        folder.write(f"{number}.pinned", b"")

    def leave(self, reason: BaseException) -> None:
        """Tell that somebody failed, so that nobody waits; the first reason counts."""
        with suppress(LakeError):
            if "over" not in self._folder.names(""):
                self._folder.write("over", str(reason).encode())

    # ---- driver --------------------------------------------------------------------------------------------------

    def hold(self, source: Source, tables: Sequence[TableId], read: Callable[[], T]) -> T:
        """Read by tasks that attend, and see that they all saw one moment.

        Args:
            source: locks the tables.
            tables: that are read.
            read: runs the tasks.

        Raises:
            ConfigurationError: fewer readers than expected run at once.
            CdcError: a lock is not to be had or was lost, or the tasks failed.
        """
        gone = Event()
        with ThreadPoolExecutor(1) as pool:
            host = pool.submit(self._host, source, sorted(tables), gone)
            try:
                result = read()
                came = host.result()
            except CdcError as error:
                gone.set()
                raise host.exception() or error from None  # what the driver met is why the tasks failed
            finally:
                gone.set()
                wait([host])
                with suppress(LakeError):
                    self._folder.drop()
        if not came:
            raise InvariantError("Readers of the snapshot were done before they had come together. Next: report this.")
        return result

    def _host(self, source: Source, tables: Sequence[TableId], gone: Event) -> bool:
        """Whether all readers saw one moment; False if one of them failed, which then tells why."""
        try:
            came = self._gather("ready", gone)
            if self._failed(gone):
                return False
            if came < self.readers:
                raise ConfigurationError(
                    "snapshot.max.threads", self.readers, f"at most {came}: so many readers run at once",
                    "lower it, or give Spark more places",
                )  # fmt: skip
            with source.lock_tables(tables, self.lock_timeout_ms) as locks:
                self._folder.write("locked", b"")
                pinned = self._gather("pinned", gone)
                locks.check()
            if pinned < self.readers and not self._failed(gone):
                raise ServerBusyError(
                    f"Only {pinned} of {self.readers} readers opened their transaction in time. Next: it is tried again"
                )
        except BaseException as error:
            self.leave(error)
            raise
        return pinned == self.readers

    def _failed(self, gone: Event) -> bool:
        return gone.is_set() or "over" in self._folder.names("")

    def _gather(self, what: str, gone: Event) -> int:
        """Wait until every reader has told something; how many have."""
        end = time.monotonic() + _GATHER_S
        while True:
            names = self._folder.names("")
            count = sum(name.endswith(f".{what}") for name in names)
            if count >= self.readers or "over" in names or gone.is_set() or time.monotonic() > end:
                return count
            gone.wait(_LOOK_EVERY_S)
