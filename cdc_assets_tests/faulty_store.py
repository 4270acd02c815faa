"""A process that stands before a store and spoils requests: it answers 503, loses answers, or cuts connections.

A process of its own, because the store's client keeps Python's lock while it waits. While it does not run, connections are refused.
"""

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

Fault = Literal["busy", "lost answer", "cut"]
"""A request is answered by 503; it is carried out and answered by 500; its connection is cut before it is carried out."""

IMPATIENT = {"max_retries": "1", "backoff_config.init_backoff": "10ms", "backoff_config.max_backoff": "20ms"}
"""Options with which the store's client gives up soon."""


class FaultyStore:
    """A store whose requests are spoiled on demand.

    Args:
        store: address of the store.
        path: of a file through which the process is told what to spoil.
    """

    def __init__(self, store: str, path: Path) -> None:
        self._store, self._path = store, path
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def spoil(
        self, fault: Fault, method: str = "", part: str = "", times: int = 1_000_000, then: Fault | Literal[""] = ""
    ) -> None:
        """Spoil requests from now on.

        Args:
            method: of the requests; empty for all.
            part: of their address.
            times: number of requests.
            then: what happens to all requests behind these; empty for nothing.
        """
        told = {"fault": fault, "method": method, "part": part, "times": times, "then": then, "from": time.time()}
        text = json.dumps(told)
        part_file = self._path.with_suffix(".part")
        part_file.write_text(text)
        part_file.replace(self._path)

    def heal(self) -> None:
        """Spoil nothing from now on."""
        self._path.unlink(missing_ok=True)

    def open(self) -> None:
        """Listen, always at the same address."""
        command = [sys.executable, "-m", "cdc_assets_tests.faulty_store", str(self._port), self._store, str(self._path)]
        self._process = subprocess.Popen(command)
        for _ in range(600):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            assert self._process.poll() is None, "the process ended"
            time.sleep(0.05)

    def close(self) -> None:
        """Refuse connections from now on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def faulty(store: str, path: Path) -> Iterator[FaultyStore]:
    """A store whose requests are spoiled on demand, before another one.

    Args:
        path: empty folder for what the process is told.
    """
    found = FaultyStore(store, path / "fault.json")
    found.open()
    try:
        yield found
    finally:
        found.close()


class _Server(ThreadingHTTPServer):
    store = ""
    told = Path()
    spoiled = (0.0, 0)
    """Since when it was told what to spoil now, and how many requests it has spoiled since."""

    def handle_error(self, *_: object) -> None:
        """A client that has gone."""

    def fault(self, method: str, path: str) -> str:
        """What happens to a request; empty for nothing."""
        try:
            told = json.loads(self.told.read_text())
        except FileNotFoundError:
            return ""
        since, count = self.spoiled
        count = count if since == told["from"] else 0
        if count >= told["times"]:
            return str(told["then"])
        if told["method"] not in ("", method) or told["part"] not in path:
            return ""
        self.spoiled = told["from"], count + 1
        return str(told["fault"])

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """What the store answers."""
        connection = http.client.HTTPConnection(self.store, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()


_NOT_PASSED_ON = ("connection", "transfer-encoding", "content-length", "date", "server")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body would wait 40 ms for the client to acknowledge its headers
    server: _Server

    def log_message(self, *args: object) -> None:
        """Nothing is told."""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault, headers = self.server.fault(self.command, self.path), dict[str, str]()
        if fault == "cut":
            self.close_connection = True
            return
        status, content = 503, b""
        if fault != "busy":
            status, headers, content = self.server.ask(self.command, self.path, dict(self.headers), body)
        if fault == "lost answer":
            status, headers, content = 500, {}, b""
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in _NOT_PASSED_ON:
                self.send_header(name, value)
        self.send_header("Content-Length", headers.get("Content-Length", str(len(content))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815 - the names that the base class looks for


if __name__ == "__main__":
    server = _Server(("127.0.0.1", int(sys.argv[1])), _Handler)
    server.daemon_threads = True
    server.store, server.told = sys.argv[2].removeprefix("http://"), Path(sys.argv[3])
    server.serve_forever()
