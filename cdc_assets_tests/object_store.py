"""A store that speaks S3's protocol: moto's server in a process of its own, which keeps objects in memory.

It honours conditional writes (`If-None-Match`), which is what a commit rests on. Plain reads and lists, nine of ten requests, are
answered from moto's objects without what moto does around them: a list of a long log took it fifty milliseconds.
"""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, quote
from xml.sax.saxutils import escape

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


_Answer = tuple[str, dict[str, str], bytes]
"""Status, headers and body."""


class _Reads:
    """Answers requests that only read, from moto's objects; all others go through to moto."""

    def __init__(self, moto: Callable[..., Iterable[bytes]]) -> None:
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        self._moto = moto
        self._buckets: Mapping[str, Any] = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        answer = self._answer(environ)
        if answer is None:
            return self._moto(environ, start)
        status, headers, body = answer
        start(status, list(headers.items()))
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    def _answer(self, environ: Mapping[str, Any]) -> _Answer | None:
        """None if it is moto's to answer."""
        path = environ["PATH_INFO"].encode("latin-1").decode().removeprefix("/")
        name, _, key = path.partition("/")
        asked = dict(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))
        is_plain = not any(header.startswith(("HTTP_IF_", "HTTP_X_AMZ_COPY")) for header in environ)
        if (
            environ["REQUEST_METHOD"] not in ("GET", "HEAD")
            or not is_plain
            or (bucket := self._buckets.get(name)) is None
        ):
            return None
        if key and not asked:
            return _read(bucket.keys.get(key), environ.get("HTTP_RANGE", ""))
        if not key and asked.keys() <= _LISTED and asked.get("list-type") == "2":
            return _list(name, {key: found for key in list(bucket.keys) if (found := bucket.keys.get(key))}, asked)
        return None


_LISTED = {"list-type", "prefix", "delimiter", "start-after", "encoding-type", "max-keys"}
_MOST = 1000
"""Keys that a store tells at once; where it is asked for less, moto does the pages."""


def _read(found: Any, wanted: str) -> _Answer | None:
    """An object, or the part of it that is wanted."""
    if found is None:
        return "404 Not Found", {"Content-Type": "application/xml"}, b"<Error><Code>NoSuchKey</Code></Error>"
    body, status = found.value, "200 OK"
    headers = {
        "Content-Type": "binary/octet-stream",
        "ETag": found.etag,
        "Last-Modified": found.last_modified_RFC1123,
        "Accept-Ranges": "bytes",
    }
    if wanted:
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        begin = int(first) if first else max(len(body) - int(last), 0)
        end = min(int(last) + 1, len(body)) if first and last else len(body)
        if begin >= end:
            return None
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(body)}"
        body, status = body[begin:end], "206 Partial Content"
    return status, headers | {"Content-Length": str(len(body))}, body


def _list(bucket: str, keys: Mapping[str, Any], asked: Mapping[str, str]) -> _Answer | None:
    """Keys and folders in their order."""
    prefix, delimiter, after = (asked.get(name, "") for name in ("prefix", "delimiter", "start-after"))
    entries: dict[str, str] = {}
    told: Callable[[str], str] = quote if asked.get("encoding-type") == "url" else escape
    for key in sorted(key for key in keys if key.startswith(prefix) and key > after):
        folder, more, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        if more:
            entries[prefix + folder + more] = (
                f"<CommonPrefixes><Prefix>{told(prefix + folder + more)}</Prefix></CommonPrefixes>"
            )
        else:
            entries[key] = (
                f"<Contents><Key>{told(key)}</Key><LastModified>{keys[key].last_modified_ISO8601}</LastModified>"
                f"<ETag>{escape(keys[key].etag)}</ETag><Size>{keys[key].size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            )
    if len(entries) > min(int(asked.get("max-keys", _MOST)), _MOST):
        return None
    body = (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{bucket}</Name><Prefix>{told(prefix)}</Prefix><KeyCount>{len(entries)}</KeyCount><MaxKeys>{_MOST}</MaxKeys>"
        f"<IsTruncated>false</IsTruncated>{''.join(entries.values())}</ListBucketResult>"
    ).encode()
    return "200 OK", {"Content-Type": "application/xml", "Content-Length": str(len(body))}, body


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

    run_simple(host, port, _Reads(create_backend_app("s3")), threaded=True, request_handler=Prompt)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
