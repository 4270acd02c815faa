"""Tokens of OAUTHBEARER, from an endpoint of the tests."""

import asyncio
import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from cdc_assets.adapters.kafka import tokens as tokens_module
from cdc_assets.adapters.kafka.tokens import ClientTokens


@contextmanager
def endpoint(asked: list[tuple[str, dict[str, list[str]]]], lifetime: object) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.headers["Authorization"], parse_qs(form)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"access_token": f"t{len(asked)}", "expires_in": lifetime}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    thread.join()
    server.server_close()


def test_tokens_are_asked_for_with_the_clients_credentials_and_kept_for_most_of_their_life() -> None:
    asked: list[tuple[str, dict[str, list[str]]]] = []
    now = 0.0
    with endpoint(asked, 100) as address:
        tokens = ClientTokens(address, "cdc", "s:/1", "kafka", clock=lambda: now)
        assert asyncio.run(tokens.token()) == asyncio.run(tokens.token()) == "t1"
        now = 81
        assert asyncio.run(tokens.token()) == "t2"
    authorization, form = asked[0]
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"cdc:s:/1"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


def test_the_present_token_goes_on_while_its_endpoint_is_away_and_nobody_asks_without_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[str, dict[str, list[str]]]] = []
    monkeypatch.setattr(tokens_module, "_AGAIN_S", 0.2)
    now = 0.0
    with endpoint(asked, 100) as address:
        tokens = ClientTokens(address, "cdc", "5ecret", clock=lambda: now)
        assert asyncio.run(tokens.token()) == "t1"
    now = 99
    assert asyncio.run(tokens.token()) == asyncio.run(tokens.token()) == "t1"
    assert len([record for record in caplog.records if "until its end" in record.message]) == 1
    assert "5ecret" not in caplog.text
    now = 101
    begun = time.monotonic()
    for _ in range(3):
        with pytest.raises(OSError, match="refused"):
            asyncio.run(tokens.token())
    assert time.monotonic() - begun > 0.35


def test_an_answer_without_a_token_is_told() -> None:
    with endpoint([], "soon") as address, pytest.raises(OSError, match="token endpoint"):
        asyncio.run(ClientTokens(address, "cdc", "s").token())
