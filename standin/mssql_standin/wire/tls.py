"""TLS over the two forms that TDS knows.

TDS 7.x hides the handshake inside PRELOGIN packets and sends records bare afterwards; TDS 8
("strict") starts TLS before the first packet, as HTTPS does. TLS 1.3 cannot be used inside
packets: its session tickets come after the handshake, where the client expects TDS, and the
login hangs (spec standin §11 no. 1).
"""

import select
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mssql_standin.wire.packets import PRELOGIN, REPLY, Channel, Disconnected, ProtocolError, Stream

CHUNK: Final = 32 * 1024
"""Bytes of one receive: a larger buffer costs every small request a fresh mapping of memory."""
ALPN: Final = "tds/8.0"


class SocketStream:
    """A blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def receive(self) -> bytes:
        """Some bytes; empty at the end or when the connection broke."""
        try:
            return self._socket.recv(CHUNK)
        except OSError:
            return b""

    def send(self, data: bytes) -> None:
        """All of the bytes; Disconnected when the peer is gone."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Disconnected(str(error)) from error

    def ready(self) -> bool:
        """Whether there is something to read."""
        return bool(self._poll.poll(0))


class TlsStream:
    """TLS over another stream; `exchange` carries handshake bytes to the peer."""

    def __init__(self, inner: Stream, context: ssl.SSLContext) -> None:
        self._inner = inner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def handshake(self, receive: Callable[[], bytes], send: Callable[[bytes], None]) -> None:
        """Shake hands through the given functions.

        Raises:
            ProtocolError: the peer does not accept us, for example our certificate.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush(send)
                data = receive()
                if not data:
                    raise Disconnected("the client closed the connection during the TLS handshake") from None
                self._incoming.write(data)
            except ssl.SSLError as error:
                raise ProtocolError(f"TLS handshake: {error}") from error
            else:
                self._flush(send)
                return

    def receive(self) -> bytes:
        """Decrypted bytes; empty at the end."""
        while True:
            try:
                return self._tls.read(CHUNK)
            except ssl.SSLWantReadError:
                data = self._inner.receive()
                if not data:
                    return b""
                self._incoming.write(data)
            except ssl.SSLError:
                return b""

    def send(self, data: bytes) -> None:
        """Encrypt and send all of the bytes."""
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise Disconnected(str(error)) from error
        self._flush(self._inner.send)

    def ready(self) -> bool:
        """Whether there is something to read."""
        return self._tls.pending() > 0 or self._incoming.pending > 0 or self._inner.ready()

    def _flush(self, send: Callable[[bytes], None]) -> None:
        if self._outgoing.pending:
            send(self._outgoing.read())


def in_packets(channel: Channel, context: ssl.SSLContext) -> TlsStream:
    """Shake hands inside PRELOGIN packets (TDS 7.x); returns the stream for what follows."""
    tls = TlsStream(channel.stream, context)

    def send(data: bytes) -> None:
        channel.begin(PRELOGIN)
        channel.write(data)
        channel.end()

    tls.handshake(lambda: channel.read().data, send)
    channel.begin(REPLY)
    return tls


def before_packets(stream: Stream, context: ssl.SSLContext) -> TlsStream:
    """Shake hands at once (TDS 8.0)."""
    tls = TlsStream(stream, context)
    tls.handshake(stream.receive, stream.send)
    return tls


def server_contexts(certificate: Path, key: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts for TLS inside packets and for strict.

    Args:
        certificate: PEM file with the server's certificate.
        key: PEM file with its key.
    """
    inside, strict = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for _ in range(2))
    for context in (inside, strict):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate, key)
    inside.maximum_version = ssl.TLSVersion.TLSv1_2
    strict.set_alpn_protocols([ALPN])
    return inside, strict
