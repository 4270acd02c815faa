"""Channel `file`: one JSON object per line.

The file is taken by renaming it, so lines added meanwhile go into a new one.
Its lines are numbered under the new name; the taken file is removed once they
are recorded. *Crash before that:* it is found again, and the recorded number shows which
of its lines were carried out. A process that had the file open when it was taken still writes into the taken one. So an unfinished
last line is given some time, and the file stays, and is read further, until no process has it open for writing. After that nobody can open it, since nobody knows its new name, so no
line is missed. (The system shows that by granting a lease; where it grants none, as on network file systems,
a writer must open the file again for each line, or close it before it is read.)
"""

import contextlib
import errno
import fcntl
import glob
import json
import os
import signal
import stat
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from cdc_assets.core.signal import Delivery, signal_of
from cdc_assets.errors import LakeError

_GRACE_S = 5.0
"""Seconds after which an unfinished last line counts as complete."""
_MAX_BYTES = 256 * 1024 * 1024
"""Maximum size of the file, which is read into memory."""
_AHEAD_S = 60.0
"""Seconds that the clock of a file system may be ahead; what is newer was written before our clock was set back."""


class FileChannel:
    """Reads signals from a file.

    Args:
        path: path of the file, which need not exist.
    """

    name, lasting = "file", False

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()

    def receive(self, reached: Mapping[str, int]) -> Delivery:
        """See `SignalChannel`."""
        try:
            self._take()
            signals, numbers = [], {}
            for file in self._taken():
                stream = self._stream(file)
                first, lines = reached.get(stream, 0), _lines(file)
                fresh = [(number, line) for number, line in enumerate(lines) if number >= first and line.strip()]
                signals += [signal_of(line, f"{stream}:{number}") for number, line in fresh]
                numbers[stream] = len(lines)
        except OSError as error:
            raise self._trouble(error) from error
        return Delivery(tuple(signals), numbers)

    def forget(self, delivery: Delivery) -> None:
        """Remove taken files, unless lines were added meanwhile, which are delivered next, or can still be added."""
        try:
            for file in self._taken():
                if (
                    not _has_writer(file)
                    and delivery.reached.get(self._stream(file)) == len(_lines(file))
                    and not _unfinished(file)
                ):
                    file.unlink()
        except OSError as error:
            raise self._trouble(error) from error

    def waiting(self, reached: Mapping[str, int]) -> bool:
        """See `SignalChannel`."""
        try:
            return self._filled() or any(
                _unfinished(file) or len(_lines(file)) > reached.get(self._stream(file), 0) for file in self._taken()
            )
        except FileNotFoundError:  # the run that took it has just removed it
            return False
        except OSError as error:
            raise self._trouble(error) from error

    def _take(self) -> None:
        if self._filled():
            self._path.rename(self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex}.taken"))

    def _filled(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return bool(_content(self._path).strip())
        return False

    def _taken(self) -> list[Path]:
        found = self._path.parent.glob(f"{glob.escape(self._path.name)}.*.taken")
        return sorted(found, key=lambda file: (file.stat().st_mtime_ns, file.name))

    def _stream(self, file: Path) -> str:
        return f"{self.name}:{file.name.split('.')[-2]}"

    def _trouble(self, error: OSError) -> LakeError:
        return LakeError(
            f"The signal file {self._path} cannot be read, renamed or removed: {error}. "
            "Next: check the rights on it and on its folder (signal.file)."
        )


def _content(file: Path) -> bytes:
    """The bytes of a file that may be anybody's.

    Raises:
        OSError: it cannot be read; it is no file, such as a pipe, on which nobody may wait; it is too large.
    """
    found = file.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not an ordinary file")
    if found.st_size > _MAX_BYTES:
        raise OSError(errno.EFBIG, f"it has {found.st_size} bytes, more than {_MAX_BYTES}")
    return file.read_bytes()


def _lines(file: Path) -> list[str]:
    """Complete lines, including the last one if it was not written to for a while.

    Only a line feed ends a line: JSON texts may hold the other characters at which `splitlines` splits.
    """
    content = _content(file)
    if _is_cut(file, content):
        content = content[: content.rfind(b"\n") + 1]
    return content.decode("utf-8", "replace").removesuffix("\n").split("\n") if content else []


def _unfinished(file: Path) -> bool:
    """Whether the last line may still be being written."""
    return _is_cut(file, _content(file))


def _is_cut(file: Path, content: bytes) -> bool:
    """Whether the last line of what was read of a file may have been being written then."""
    tail = content.rpartition(b"\n")[2]
    if not tail.strip() or _is_json(tail):
        return False
    return -_AHEAD_S < time.time() - file.stat().st_mtime < _GRACE_S


def _has_writer(file: Path) -> bool:
    """Whether a process has a file open for writing; False where the system does not tell."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # a pipe, which only a stranger puts there, would be waited for
    try:
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)  # to break a lease ends a process otherwise
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        os.close(handle)
    return False


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
