"""Locks between sessions: the one writer of the SQLite file, and tables.

Resources are `WRITER` and table object ids. A request is granted when it is compatible with
what others hold and with every earlier request that still waits (no starvation: writers queue
behind a waiting table lock); an owner that already holds a lock on the resource may jump the queue, or it would
wait for somebody who waits for it.

Why there is no lasting deadlock: before an owner waits, and again whenever it wakes, it follows the wait-for graph
(owner → those who hold or earlier want what it wants); an owner that finds itself on a cycle
gives up with error 1205. All state changes happen under one mutex, so the graph is exact.

Locks live in memory only: after a crash there are no sessions that could hold any.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mssql_standin.errors import SqlError

_LOG = logging.getLogger(__name__)

WRITER: Final = 0
"""The resource of the single writer; table object ids are positive."""


class Mode(Enum):
    """Table lock modes; the writer resource is taken in X."""

    IS = "IS"
    IX = "IX"
    S = "S"
    SIX = "SIX"
    X = "X"


_COMPATIBLE: Final = {
    Mode.IS: {Mode.IS, Mode.IX, Mode.S, Mode.SIX},
    Mode.IX: {Mode.IS, Mode.IX},
    Mode.S: {Mode.IS, Mode.S},
    Mode.SIX: {Mode.IS},
    Mode.X: set[Mode](),
}
_COVERS: Final = {
    Mode.IS: {Mode.IS},
    Mode.IX: {Mode.IS, Mode.IX},
    Mode.S: {Mode.IS, Mode.S},
    Mode.SIX: {Mode.IS, Mode.IX, Mode.S, Mode.SIX},
    Mode.X: set(Mode),
}


def _joined(held: Mode | None, wanted: Mode) -> Mode:
    """The weakest mode that covers both."""
    if held is None or held in _COVERS[wanted]:
        return wanted
    return held if wanted in _COVERS[held] else Mode.SIX


@dataclass(slots=True, eq=False)
class _Request:
    owner: object
    resource: int
    mode: Mode
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request that is not granted yet."""

    owner: object
    resource: int
    mode: Mode
    blockers: tuple[object, ...]
    seconds: float


class Locks:
    """The lock manager of one server. Owners are any objects, compared by identity."""

    POLL_S = 0.05
    """How often a waiter looks for an attention of its client."""
    TELL_AFTER_S = 5.0
    """A wait that lasts this long is told in the log: a program may wait for itself over another connection."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._held: dict[int, dict[object, Mode]] = {}
        self._owned: dict[object, set[int]] = {}
        self._waiting: list[_Request] = []
        self.exclusive = 0
        """How many table locks in mode X are held: readers need to look only if there are any."""

    def holds(self, owner: object, resource: int, mode: Mode) -> bool:
        """Whether the owner holds the resource in a mode that covers `mode`."""
        held = self._held.get(resource, {}).get(owner)
        return held is not None and mode in _COVERS[held]

    def acquire(
        self,
        owner: object,
        resource: int,
        mode: Mode = Mode.X,
        timeout_s: float | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Take a lock, or a stronger mode of one already held.

        Args:
            timeout_s: LOCK_TIMEOUT; None waits for ever, 0 not at all.
            check: called while waiting; what it raises ends the wait.

        Raises:
            SqlError: 1222 after the timeout, 1205 when waiting would close a cycle.
        """
        with self._mutex:
            if resource not in self._held and not self._waiting:
                self._grant(_Request(owner, resource, mode))
                return
            held = self._held.get(resource, {}).get(owner)
            request = _Request(owner, resource, _joined(held, mode), time.monotonic())
            if held is request.mode:
                return
            if not self._blockers(request):
                self._grant(request)
                return
            self._waiting.append(request)
        try:
            self._wait(request, timeout_s, check)
        except BaseException:
            with self._mutex:
                self._waiting.remove(request)
                self._changed.notify_all()
            raise

    def _wait(self, request: _Request, timeout_s: float | None, check: Callable[[], None] | None) -> None:
        end = None if timeout_s is None else time.monotonic() + timeout_s
        told = False
        while True:
            with self._mutex:
                if not told and time.monotonic() - request.since >= self.TELL_AFTER_S:
                    told = True
                    _tell(request, self._blockers(request))
                if not self._blockers(request):
                    self._waiting.remove(request)
                    self._grant(request)
                    return
                if self._closes_cycle(request):
                    raise deadlock(request.owner)
                left = self.POLL_S if end is None else min(self.POLL_S, end - time.monotonic())
                if left <= 0:
                    raise SqlError(1222, "Lock request time out period exceeded.", 16, 45)
                self._changed.wait(left)
            if check:
                check()

    def release(self, owner: object, resource: int) -> None:
        """Let go of one resource; nothing happens when it is not held."""
        with self._mutex:
            self._drop(owner, resource)
            self._owned.get(owner, set()).discard(resource)
            if self._waiting:
                self._changed.notify_all()

    def release_all(self, owner: object) -> None:
        """Let go of everything the owner holds."""
        if owner not in self._owned:
            return
        with self._mutex:
            for resource in self._owned.pop(owner, ()):
                self._drop(owner, resource)
            if self._waiting:
                self._changed.notify_all()

    def waiting(self) -> list[Waiting]:
        """Who waits for whom at this moment."""
        now = time.monotonic()
        with self._mutex:
            return [
                Waiting(one.owner, one.resource, one.mode, tuple(self._blockers(one)), now - one.since)
                for one in self._waiting
            ]

    def held_by(self, owner: object) -> frozenset[int]:
        """The resources an owner holds, for savepoints."""
        with self._mutex:
            return frozenset(self._owned.get(owner, ()))

    def _drop(self, owner: object, resource: int) -> None:
        owners = self._held.get(resource, {})
        mode = owners.pop(owner, None)
        if mode is Mode.X and resource != WRITER:
            self.exclusive -= 1
        if not owners:
            self._held.pop(resource, None)

    def _grant(self, request: _Request) -> None:
        owners = self._held.setdefault(request.resource, {})
        if request.mode is Mode.X and request.resource != WRITER and owners.get(request.owner) is not Mode.X:
            self.exclusive += 1
        owners[request.owner] = request.mode
        self._owned.setdefault(request.owner, set()).add(request.resource)

    def _blockers(self, request: _Request) -> list[object]:
        """Whom the request must wait for."""
        owners = self._held.get(request.resource, {})
        blockers = [o for o, held in owners.items() if o is not request.owner and held not in _COMPATIBLE[request.mode]]
        if request.owner in owners:
            return blockers
        for earlier in self._waiting:
            if earlier is request:
                break
            if (
                earlier.resource == request.resource
                and earlier.owner is not request.owner
                and earlier.mode not in _COMPATIBLE[request.mode]
            ):
                blockers.append(earlier.owner)
        return blockers

    def _closes_cycle(self, request: _Request) -> bool:
        wants = {waiting.owner: waiting for waiting in self._waiting}
        seen: set[int] = set()
        queue = self._blockers(request)
        while queue:
            owner = queue.pop()
            if owner is request.owner:
                return True
            if id(owner) not in seen and owner in wants:
                seen.add(id(owner))
                queue.extend(self._blockers(wants[owner]))
        return False


def _tell(request: _Request, blockers: list[object]) -> None:
    what = "to write" if request.resource == WRITER else f"for table {request.resource} in mode {request.mode.value}"
    _LOG.warning(
        "session %s waits %s for session %s", getattr(request.owner, "session_id", "-"), what,
        ", ".join(str(getattr(blocker, "session_id", "-")) for blocker in blockers),
    )  # fmt: skip


def deadlock(owner: object) -> SqlError:
    """1205 for a session, or whatever else waited."""
    number = getattr(owner, "session_id", 0)
    text = (
        f"Transaction (Process ID {number}) was deadlocked on lock resources with another process and has been chosen as "
        "the deadlock victim. Rerun the transaction."
    )
    return SqlError(1205, text, 13, 45)
