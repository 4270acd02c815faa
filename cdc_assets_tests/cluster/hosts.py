"""Hosts of their own on one machine: network namespaces that a bridge joins.

The first host is where the driver, the server and the cluster's master are; a thread is moved there by `entered`, and
threads and processes that it starts are there, too.
"""

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NEW_NETWORK = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


def why_not() -> str:
    """Why this machine cannot have hosts of their own; empty if it can."""
    if not shutil.which("ip"):
        return "`ip` (iproute2) is not installed"
    probe = f"cdc{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    return f"network namespaces are not allowed here: {made.stderr.strip()}" if made.returncode else ""


class Network:
    """A head and some workers, each with an address of its own.

    Args:
        workers: how many.
    """

    def __init__(self, workers: int) -> None:
        self._name = f"cdc{os.getpid()}"
        self._workers = workers
        self.head = "10.213.7.1"

    def address(self, worker: int) -> str:
        """Of a worker; the first is 1."""
        return f"10.213.7.{10 + worker}"

    def namespace(self, worker: int) -> str:
        """Name of a worker's; the head's for 0."""
        return f"{self._name}w{worker}"

    def __enter__(self) -> "Network":
        head = self.namespace(0)
        for worker in range(self._workers + 1):
            _ip("netns", "add", self.namespace(worker))
            _ip("-n", self.namespace(worker), "link", "set", "lo", "up")
        _ip("-n", head, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", head, "addr", "add", f"{self.head}/24", "dev", "bridge0")
        _ip("-n", head, "link", "set", "bridge0", "up")
        for worker in range(1, self._workers + 1):
            own = self.namespace(worker)
            _ip("-n", head, "link", "add", f"port{worker}", "type", "veth", "peer", "name", "eth0", "netns", own)
            _ip("-n", head, "link", "set", f"port{worker}", "master", "bridge0", "up")
            _ip("-n", own, "addr", "add", f"{self.address(worker)}/24", "dev", "eth0")
            _ip("-n", own, "link", "set", "eth0", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for worker in range(self._workers + 1):
            subprocess.run(["ip", "netns", "del", self.namespace(worker)], capture_output=True)

    def connect(self, worker: int, connected: bool) -> None:
        """Pull a worker's cable, or put it back."""
        _ip("-n", self.namespace(0), "link", "set", f"port{worker}", "up" if connected else "down")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """A block whose thread is on the head."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _move(Path("/run/netns") / self.namespace(0))
            yield
        finally:
            _set(before)
            os.close(before)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _move(namespace: Path) -> None:
    handle = os.open(namespace, os.O_RDONLY)
    try:
        _set(handle)
    finally:
        os.close(handle)


def _set(handle: int) -> None:
    if _LIBC.setns(handle, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "this thread cannot change its network")


class Forwarder:
    """Passes connections to an address of this host on to a port of its loopback, and counts what each host gets by them.

    Args:
        host: the address.
        port: of the loopback, and of the address.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self.sent: Counter[str] = Counter()
        """Bytes from the server, by the address of who got them."""
        self._listener = socket.create_server((host, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            reader, passed = client.getpeername()[0], Counter[str]()
            back = threading.Thread(target=_pump, args=(server, client, self.sent, reader), daemon=True)
            back.start()
            _pump(client, server, passed, reader)
            back.join()


def _pump(source: socket.socket, target: socket.socket, passed: Counter[str], reader: str) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            passed[reader] += len(data)
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
