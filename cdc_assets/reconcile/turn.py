"""Whose turn it is to compare a table: one comparison at a time, on whatever machines their processes are.

Two at once would read the server twice, remove each other's staged rows, and record over each other. So each has a file in
`<prefix>.__reconciled` while it compares, and begins only if it finds no other one after it has written its own. Of two that
write at the same moment both may see the other; then both withdraw, and try again after pauses of different length.

*A process that died* leaves its file. That of one that lives has a beat beside it, which changes every few seconds. If that stays the same
for a minute, by the clock of who waits, both files are removed. So no clocks are compared, and the store need not know of locks. A process
that was frozen for so long finds its file gone before it records or requests anything.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from uuid import uuid4

from cdc_assets.core.ports import Clock
from cdc_assets.errors import LAKE_ERRORS, CaptureNotReadyError, LakeConflictError, LakeError
from cdc_assets.lake.folder import Folder
from cdc_assets.lake.location import Location

log = logging.getLogger(__name__)

_TURN, _BEAT = ".turn", ".beat"
_BEAT_S, _DEAD_S = 5.0, 60.0
"""Time between two beats, and after which one that stays the same is of a dead process."""
_PAUSE_S = 1.0


class Turn:
    """A comparison that wants the turn, or has it.

    Args:
        folder: where each comparison keeps a file while it waits or works.
        topic: of the table that is compared; comparisons of other tables do not wait.
    """

    def __init__(self, folder: Folder, topic: str) -> None:
        self._folder, self._topic, self._name = folder, topic, f"{topic}.{uuid4().hex}"

    def require(self) -> None:
        """Check that it has the turn still.

        Raises:
            LakeConflictError: another comparison has taken it.
            LakeError: the lake cannot be read.
        """
        if self._name not in self._names():
            raise LakeConflictError(
                f"The comparison of {self._topic} stood still for more than {_DEAD_S:.0f} s, so another one has taken its turn. "
                "Next: compare again; it continues where the other one is."
            )

    def others(self) -> list[str]:
        """Names of other comparisons of the table."""
        return [name for name in self._names() if name != self._name]

    def _names(self) -> list[str]:
        names = (name.removesuffix(_TURN) for name in self._folder.names(_TURN))
        return [name for name in names if name.rpartition(".")[0] == self._topic]

    def take(self) -> bool:
        """Whether it has the turn now.

        Raises:
            LakeError: the lake cannot be read or written.
        """
        if self.others():
            return False
        self._beat()
        self._folder.write(self._name + _TURN, b"turn")
        if not self.others():
            return True
        self.withdraw()
        return False

    def live(self, ended: threading.Event) -> None:
        """Show that the process lives, as long as it has the turn."""
        while not ended.wait(_BEAT_S):
            with suppress(*LAKE_ERRORS):
                self.require()
                self._beat()

    def withdraw(self) -> None:
        """Let others have the turn."""
        _remove(self._folder, self._name)

    def _beat(self) -> None:
        self._folder.write(self._name + _BEAT, uuid4().bytes)


class Turns:
    """Gives comparisons their turn.

    Args:
        prefix: topic prefix of the capture.
    """

    def __init__(self, location: Location, prefix: str, clock: Clock) -> None:
        self._folder, self._clock = Folder(location, f"{prefix}.__reconciled"), clock

    @contextmanager
    def taken(self, topic: str, timeout_s: float) -> Iterator[Turn]:
        """Wait for the turn, and have it in the block.

        Args:
            timeout_s: how long to wait, but long enough to find out that another process is dead.

        Raises:
            CaptureNotReadyError: another comparison still has it.
            LakeConflictError: this process stood still, and another one has taken it.
            LakeError: the lake cannot be read or written.
        """
        turn, ended = self._awaited(topic, max(timeout_s, 2 * _DEAD_S)), threading.Event()
        living = threading.Thread(target=turn.live, args=(ended,), name="comparison", daemon=True)
        living.start()
        try:
            yield turn
        except LakeError:  # another one removes what this one has staged
            turn.require()
            raise
        finally:
            ended.set()
            living.join(_BEAT_S)
            turn.withdraw()

    def _awaited(self, topic: str, timeout_s: float) -> Turn:
        turn, began = Turn(self._folder, topic), self._clock.elapsed()
        beats: dict[str, tuple[bytes, timedelta]] = {}
        while not turn.take():
            if not beats:
                log.warning("Another comparison of %s is under way; this one begins when that has ended.", topic)
            self._bury(turn.others(), beats)
            if (self._clock.elapsed() - began).total_seconds() > timeout_s:
                raise CaptureNotReadyError(
                    f"Another comparison of {topic} has been under way for {timeout_s:.0f} s, so this one has not begun. Next: compare "
                    "again when it has ended."
                )
            self._clock.sleep(_PAUSE_S * (0.5 + uuid4().bytes[0] / 256))
        return turn

    def _bury(self, names: list[str], beats: dict[str, tuple[bytes, timedelta]]) -> None:
        """Remove the files of processes that show no life.

        Args:
            beats: by name the last beat, and when it was seen first.
        """
        now = self._clock.elapsed()
        for name in names:
            beat = b""
            with suppress(*LAKE_ERRORS):
                beat = self._folder.read(name + _BEAT)
            last, since = beats.setdefault(name, (beat, now))
            if last != beat:
                beats[name] = beat, now
            elif (now - since).total_seconds() > _DEAD_S:
                log.warning("The comparison %s has shown no life for %.0f s, so its turn has ended.", name, _DEAD_S)
                _remove(self._folder, name)


def _remove(folder: Folder, name: str) -> None:
    for end in (_TURN, _BEAT):
        with suppress(*LAKE_ERRORS):
            folder.remove(name + end)
