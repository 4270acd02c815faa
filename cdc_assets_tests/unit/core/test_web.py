"""Questions to web services: the password that goes with them goes nowhere else."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.error import HTTPError
from urllib.request import Request

import pytest

from cdc_assets.core import web
from cdc_assets.errors import ConnectionLostError
from cdc_assets.registry import SchemaRegistry


@contextmanager
def service(asked: list[tuple[str, str | None]], elsewhere: str = "", body: bytes = b'{"id": 7}') -> Iterator[str]:
    """A web service that redirects `/there` elsewhere and `/here` within; it notes what it is asked, with the credentials."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            to = {"/there": f"{elsewhere}/caught", "/here": "/answer"}.get(self.path.partition("?")[0])
            self.send_response(302 if to else 200)
            if to:
                self.send_header("Location", to)
            self.send_header("Content-Length", str(0 if to else len(body)))
            self.end_headers()
            self.wfile.write(b"" if to else body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asks(address: str) -> object:
    return web.ask(Request(address, headers={"Authorization": "Basic eDp5"}), 10)  # noqa: S310 - of this machine


def test_a_redirect_elsewhere_takes_no_password_along_and_one_within_is_followed() -> None:
    caught: list[tuple[str, str | None]] = []
    asked: list[tuple[str, str | None]] = []
    with ExitStack() as stack:
        address = stack.enter_context(service(asked, stack.enter_context(service(caught))))
        with pytest.raises(HTTPError, match="redirects to another address"):
            asks(f"{address}/there")
        assert not caught
        assert asks(f"{address}/here") == {"id": 7}
        assert asked[-1] == ("/answer", "Basic eDp5")


def test_a_registry_that_redirects_elsewhere_is_an_error_without_the_password() -> None:
    caught: list[tuple[str, str | None]] = []
    with ExitStack() as stack:
        thief = stack.enter_context(service(caught))
        address = stack.enter_context(service([], thief))
        registry = SchemaRegistry(f"{address}/there?", "user:secret")
        with pytest.raises(ConnectionLostError) as found:
            registry.check()
    assert not caught
    assert "secret" not in str(found.value)


@pytest.mark.parametrize(
    ("body", "reason"), [(b"[" * 100_000, "nested"), (b"no JSON", "Expecting"), (b'"' + b"x" * 200 + b'"', "more than")]
)
def test_an_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch, body: bytes, reason: str) -> None:
    monkeypatch.setattr(web, "MOST_BYTES", 100 if reason == "more than" else web.MOST_BYTES)
    with service([], body=body) as address, pytest.raises(ValueError, match=reason):
        asks(address)


@pytest.mark.parametrize(
    ("address", "other", "within"),
    [
        ("http://a/x", "http://a/y", True),
        ("http://a/x", "https://a/x", True),
        ("https://a/x", "http://a/x", False),
        ("https://a/x", "https://a:8443/x", False),
        ("https://a/x", "https://b/x", False),
        ("https://a/x", "https://a.b/x", False),
        ("https://a/x", "https://b@a/x", True),
        ("https://a/x", "https://a@b/x", False),
    ],
)
def test_what_is_within_one_address(address: str, other: str, within: bool) -> None:
    assert web._is_within(address, other) == within
