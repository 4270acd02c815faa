"""The listening socket: a thread that accepts, a thread for each connection."""

import contextlib
import itertools
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mssql_standin.contract import Server
from mssql_standin.wire.connection import Connection, Security
from mssql_standin.wire.prelogin import Encryption
from mssql_standin.wire.tls import server_contexts

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_JOIN_S: Final = 10.0


class TdsServer:
    """A TDS server on loopback.

    Args:
        engine: who logs clients in and runs their statements.
        host: a loopback address; anything else is refused, for the stand-in guards nothing.
        port: 0 chooses a free one.
        encryption: see `Encryption`.
        certificate: PEM file; needed for all but `not_supported`.
        key: PEM file of its key.

    Raises:
        ValueError: an address that is not loopback, or encryption without certificate.
    """

    def __init__(
        self,
        engine: Server,
        host: str = "127.0.0.1",
        port: int = 0,
        encryption: Encryption | str = Encryption.NOT_SUPPORTED,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        if host not in LOOPBACK:
            raise ValueError(f"host {host!r}: the stand-in listens on loopback only, one of {sorted(LOOPBACK)}")
        wanted = Encryption(encryption)
        if wanted is not Encryption.NOT_SUPPORTED and (certificate is None or key is None):
            raise ValueError(f"encryption {wanted!s} needs a certificate and its key")
        contexts = server_contexts(certificate, key) if certificate and key else None
        self._engine, self._security = engine, Security(wanted, contexts)
        self.host, self.port = host, port
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._connections: dict[int, tuple[Connection, threading.Thread]] = {}

    def start(self) -> None:
        """Listen; `port` is known afterwards."""
        self._stopping.clear()
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.create_server((self.host, self.port), family=family, backlog=128)
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._acceptor = threading.Thread(target=self._accept, args=(listener,), name="standin-accept", daemon=True)
        self._acceptor.start()

    def stop(self) -> None:
        """Close the listener and every connection, and wait for their threads."""
        self._stopping.set()
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        if self._acceptor is not None:
            self._acceptor.join(_JOIN_S)
        with self._lock:
            open_connections = list(self._connections.values())
        for connection, _ in open_connections:
            connection.close()
        for _, thread in open_connections:
            thread.join(_JOIN_S)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def drop_connections(self) -> None:
        """Close every connection, as a restart of the server would."""
        with self._lock:
            open_connections = list(self._connections.values())
        for connection, _ in open_connections:
            connection.close()

    def _accept(self, listener: socket.socket) -> None:
        for number in itertools.count(51):
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock, self._engine, self._security, number, self._stopping)
            thread = threading.Thread(
                target=self._serve, args=(number, connection), name=f"standin-{number}", daemon=True
            )
            with self._lock:
                self._connections[number] = (connection, thread)
            thread.start()

    def _serve(self, number: int, connection: Connection) -> None:
        try:
            connection.serve()
        finally:
            with self._lock:
                self._connections.pop(number, None)
