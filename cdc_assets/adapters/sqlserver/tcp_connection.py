"""The TCP connection of a driver's connection: measures the server's silence, and can cut the connection.

Neither driver limits the wait for a server that does not answer at all: after its time-out it asks the server to
cancel, and waits for the answer to that. Neither driver exposes its socket. But once a socket is shut down, a waiting
driver reports a broken connection at once (measured with both drivers: while a statement runs, in the middle of a
result, while rows are discarded), and the native code returns.

*How the socket is found.* Before it sends anything the driver sets the keep-alive times of the connection string on its
socket. Each connection uses a unique pair of times, so its socket is found among those of the process. That works during login,
too, and without a lock between threads that connect at once. When the connection is open, the intended times are set
instead, and the socket is known by its inode from then on. A connection that the driver reopens by itself has the pair
again, and is found by it.

Descriptors are listed by a method of Linux. On other systems no socket is found, and only the drivers' own time-outs
apply.
"""

import os
import re
import socket
import stat
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import Final

from cdc_assets.config.settings import ConnectionSettings

_DESCRIPTORS: Final = Path("/proc/self/fd")
_LINUX: Final = sys.platform == "linux"
_SILENCE_AT: Final = 52
"""Offset of `tcpi_last_data_recv`, milliseconds since the last byte arrived, in Linux's `struct tcp_info`."""
_USUAL: Final = {"KeepAlive": 30, "KeepAliveInterval": 1}
"""The drivers' defaults in seconds: until the first keep-alive probe, and between probes."""
_PROBES: Final = 9
"""Linux's usual number of keep-alive probes. None is sent while bytes of ours wait to be acknowledged, which the system would repeat for
a quarter of an hour: such bytes get the same time."""
_SECONDS: Final = re.compile(r"[1-9][0-9]{0,2}")
"""Values that the drivers accept: 1 to 999."""
_MIN_MARK: Final = 500
_MARKS: Final = 500
_numbers = count()


class TcpConnection:
    """The TCP connection of one driver connection; made before it is opened.

    Args:
        options: connection keywords of the settings, with the intended keep-alive times.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        times = [options.get(name, str(usual)) for name, usual in _USUAL.items()]
        self._times = [int(text) for text in times if _SECONDS.fullmatch(text)]
        number = next(_numbers)
        self._mark = (_MIN_MARK + number % _MARKS, _MIN_MARK + number // _MARKS % _MARKS)
        self._inode: int | None = None
        self._number = -1
        """Descriptor of the socket when it was found last."""
        self.ended = False
        """Whether it was cut."""

    @classmethod
    def of(cls, settings: ConnectionSettings) -> "TcpConnection":
        """The TCP connection of a connection with these settings."""
        return cls(dict(settings.extra))

    def keywords(self) -> dict[str, str]:
        """Connection keywords by which the socket is found; none if it cannot be found or the driver would refuse
        them."""
        if not _LINUX or len(self._times) < len(_USUAL):
            return {}
        return dict(zip(_USUAL, map(str, self._mark), strict=True))

    def opened(self) -> None:
        """Set the intended keep-alive times, after the connection was opened."""
        if not self.keywords():
            return
        with self._socket() as found:
            if found is not None:
                self._inode = os.fstat(found.fileno()).st_ino
                for option, seconds in zip((socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL), self._times, strict=True):
                    found.setsockopt(socket.IPPROTO_TCP, option, seconds)
                lost_s = self._times[0] + _PROBES * self._times[1]
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * lost_s)

    def silent_s(self) -> float | None:
        """Seconds since the last byte from the server; None if unknown."""
        with self._socket() as found, suppress(OSError, struct.error):
            if found is not None:
                facts = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
                return float(struct.unpack_from("=I", facts, _SILENCE_AT)[0]) / 1000
        return None

    def is_closed(self) -> bool:
        """Whether the connection is known to be closed: cut here, or closed by the server."""
        if self.ended:
            return True
        with self._socket() as found:
            if found is None:
                return self._inode is not None
            try:
                return not found.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError:
                return True

    def cut(self) -> bool:
        """Shut the socket down, so that a waiting driver returns an error; False if the socket was not found."""
        self.ended = True
        with self._socket() as found:
            if found is None:
                return False
            with suppress(OSError):  # it is closed already
                found.shutdown(socket.SHUT_RDWR)
        return True

    @contextmanager
    def _socket(self) -> Iterator[socket.socket | None]:
        """A duplicate descriptor of the driver's socket."""
        found = self._find()
        if found is None:
            yield None
            return
        with closing(found):
            yield found

    def _find(self) -> socket.socket | None:
        if not _LINUX:
            return None
        for number in chain((self._number,), _descriptors()):
            candidate = _duplicate(number)
            if candidate is None:
                continue
            with suppress(OSError):  # it is of a protocol without these options
                if self._is_own(candidate):
                    self._number = number
                    return candidate
            candidate.close()
        return None

    def _is_own(self, candidate: socket.socket) -> bool:
        if candidate.type != socket.SOCK_STREAM or candidate.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
        return os.fstat(candidate.fileno()).st_ino == self._inode or self._mark == tuple(
            candidate.getsockopt(socket.IPPROTO_TCP, option) for option in options
        )


def _descriptors() -> Sequence[int]:
    """Descriptors of this process; none if it may not open another one, which listing them takes."""
    try:
        return [int(entry) for entry in os.listdir(_DESCRIPTORS)]  # noqa: PTH208 - names are what is wanted
    except OSError:
        return ()


def _duplicate(number: int) -> socket.socket | None:
    """A duplicate descriptor, which no other code closes; None if the number is not a socket's."""
    try:
        own = os.dup(number)
    except OSError:
        return None
    if stat.S_ISSOCK(os.fstat(own).st_mode):
        with suppress(OSError):
            return socket.socket(fileno=own)
    os.close(own)
    return None
