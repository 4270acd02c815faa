"""A TCP proxy between a driver and the server that can fall silent: no byte, no FIN, as a broken network path does."""

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Forwards to one address until it is told to be silent or slow.

    Args:
        target: host and port of the server.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = [self._listener]
        self.accepted = 0
        """Connections so far."""
        self.answer_bytes: int | None = None
        """How many bytes of answers are let through from now on; None for all."""
        self.until = 0
        """The first so many connections are subject to `answer_bytes`; later ones are forwarded whole. 0 for all."""
        self.then_close = False
        """Close the connection where the answers end, and not fall silent."""
        self.pause_s = 0.0
        """Wait between pieces of 512 bytes."""
        self.closed_by_client = threading.Semaphore(0)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                self.accepted += 1
                try:
                    server = socket.create_connection(self._target)
                except ConnectionError:  # the server is down
                    client.close()
                    continue
                self._sockets += [client, server]
                threading.Thread(target=self._forward, args=(client, server, self.accepted), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket, number: int) -> None:
        with suppress(OSError, ValueError):
            while True:
                ready = select.select([client, server], [], [])[0]
                for source in ready:
                    data = source.recv(512 if self.pause_s else 65536)
                    if not data:
                        if source is server and self._is_silent(number):
                            return
                        if source is client:
                            self.closed_by_client.release()
                        server.close()
                        client.close()
                        return
                    if source is client:
                        server.sendall(data)
                    else:
                        self._answer(client, data, number)

    def _is_limited(self, number: int) -> bool:
        return self.answer_bytes is not None and (not self.until or number <= self.until)

    def _is_silent(self, number: int) -> bool:
        return self._is_limited(number) and self.answer_bytes == 0 and not self.then_close

    def _answer(self, client: socket.socket, data: bytes, number: int) -> None:
        if self.pause_s:
            time.sleep(self.pause_s)
        if self.answer_bytes is not None and self._is_limited(number):
            data, self.answer_bytes = data[: self.answer_bytes], max(0, self.answer_bytes - len(data))
        if data:
            client.sendall(data)
        if self.then_close and self.answer_bytes == 0:
            client.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """End the connections that there are; new ones are taken."""
        for each in self._sockets[1:]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all connections."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextmanager
def proxy(target: tuple[str, int]) -> Iterator[Proxy]:
    """A proxy that ends with the block."""
    opened = Proxy(target)
    try:
        yield opened
    finally:
        opened.close()
