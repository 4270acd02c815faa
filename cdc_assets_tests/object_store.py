"""A store that speaks S3's protocol: moto's server in a process of its own, which keeps objects in memory.

It honours conditional writes (`If-None-Match`), which is what a commit rests on.
"""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

BUCKET = "lake"
SECRET = "never-to-be-seen"


@contextmanager
def open_store(host: str = "127.0.0.1") -> Iterator[str]:
    """Address of a store with one bucket."""
    with socket.socket() as free:
        free.bind((host, 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-m", __name__, host, str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://{host}:{port}"
    try:
        for _ in range(600):
            try:
                request = urllib.request.Request(f"{address}/{BUCKET}", method="PUT")  # noqa: S310 - http to this machine
                urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - http to this machine
                break
            except urllib.error.URLError:
                assert process.poll() is None, "the store ended"
                time.sleep(0.1)
        yield address
    finally:
        process.kill()
        process.wait()


def options(store: str) -> dict[str, str]:
    """For the store's client."""
    return {
        "AWS_ENDPOINT_URL": store,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }


def lake_properties(store: str) -> dict[str, str]:
    """Of a capture whose lake lies in the store; the environment variable `LAKE_SECRET` holds the key."""
    found = {f"lake.storage.option.{name}": value for name, value in options(store).items()}
    found["lake.storage.option.AWS_SECRET_ACCESS_KEY"] = "${env:LAKE_SECRET}"
    return found | {"lake.path": f"s3://{BUCKET}/shop"}


def _serve(host: str, port: int) -> None:
    """As moto's own command, but for a third of its processor time: it neither looks for the service of each request among all
    that moto knows, nor logs it, keeps connections, and sends a body without waiting for the client to acknowledge its headers.
    """
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import run_simple

    class Prompt(MotoRequestHandler):
        disable_nagle_algorithm = True
        protocol_version = "HTTP/1.1"

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Nobody reads it."""

    run_simple(host, port, create_backend_app("s3"), threaded=True, request_handler=Prompt)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
