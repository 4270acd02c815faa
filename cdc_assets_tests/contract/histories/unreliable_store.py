"""An object store that now and then refuses, or does what it was asked and loses its answer.

A proxy before a store that speaks S3's protocol (`object_store`), in a process of its own, since a client that waits for
the store may hold Python's lock. Only writes are disturbed: they are what must not be done twice, and what must not be
taken for undone.
"""

import http.client
import random
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

_CALM: Final = "/-/calm"
_KEPT: Final = {"connection", "transfer-encoding", "keep-alive"}


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, store: str, seed: int, share: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.store = urlsplit(store).netloc
        self.rng, self.share, self.calm = random.Random(seed), share, False  # noqa: S311 - weather that can be repeated
        self.lost = self.refused = 0
        self._lock = threading.Lock()

    def weather(self, method: str) -> str:
        """What happens to a request: `fair`, `lost` (done, without an answer) or `refused`."""
        with self._lock:
            if self.calm or method not in ("PUT", "POST") or self.rng.random() > self.share:
                return "fair"
            if self.rng.random() < 0.7:
                self.lost += 1
                return "lost"
            self.refused += 1
            return "refused"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body would wait 40 ms for the client to acknowledge its headers
    server: _Proxy

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == _CALM:
            self.server.calm = True
            self._send(200, {}, str(self.server.lost).encode())
            return
        weather = self.server.weather(self.command)
        if weather == "refused":
            self._send(503, {}, b"")
            return
        connection = http.client.HTTPConnection(self.server.store, timeout=60)
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        found = answer.read()
        connection.close()
        if weather == "lost":
            self.close_connection = True
            return
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in _KEPT}
        self._send(answer.status, headers, found)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815 - names of the protocol

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing is written to the terminal."""


class Unreliable:
    """A proxy that runs.

    Args:
        address: of the proxy.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def calm(self) -> int:
        """End the bad weather; how many answers were lost."""
        with urllib.request.urlopen(f"{self.address}{_CALM}", timeout=10) as answer:  # noqa: S310 - http to this machine
            return int(answer.read())


@contextmanager
def unreliable(store: str, seed: int, share: float = 0.03) -> Iterator[Unreliable]:
    """A proxy before a store.

    Args:
        store: address of the store.
        seed: of the weather.
        share: of the writes that are disturbed.
    """
    command = [sys.executable, "-m", __name__, store, str(seed), str(share)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Unreliable(process.stdout.readline().strip())
        finally:
            process.kill()


def _main() -> None:
    proxy = _Proxy(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    print(f"http://127.0.0.1:{proxy.server_port}", flush=True)  # noqa: T201
    proxy.serve_forever()


if __name__ == "__main__":
    _main()
