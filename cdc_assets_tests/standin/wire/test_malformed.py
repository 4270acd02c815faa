"""What is not TDS ends its connection with a clear reason, and nothing else."""

import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Any

import pyodbc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc_assets.standin.errors import SqlError
from cdc_assets.standin.wire import login, prelogin, request
from cdc_assets.standin.wire.packets import ProtocolError
from cdc_assets.standin.wire.server import TdsServer
from cdc_assets_tests.standin.wire.conftest import odbc
from cdc_assets_tests.standin.wire.scripted import ScriptedEngine

HEADERS = struct.pack("<I", 4)
PARSERS: list[Callable[[bytes], Any]] = [
    request.read_batch,
    lambda data: list(request.read_calls(data)),
    request.read_transaction_request,
    login.read_login,
    prelogin.read_options,
]
CALL = HEADERS + struct.pack("<HHH", 0xFFFF, 10, 0)


@pytest.mark.parametrize("parse", PARSERS, ids=["batch", "calls", "transaction", "login", "prelogin"])
@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: CALL + b"\0\0" + tail))
@example(data=b"")
@example(data=CALL + b"\0\0\x26\x03")
@example(data=HEADERS + b"\x00\xd8")
def test_garbage_is_a_protocol_error(parse: Callable[[bytes], Any], data: bytes) -> None:
    with contextlib.suppress(ProtocolError, SqlError):
        parse(data)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x12\x01\x00\x03\0\0\0\0",
        b"\x12\x01\x00\x0c\0\0\0\0abcd",
        b"\x10\x01\x00\x0c\0\0\0\0abcd",
        b"\x16\x03\x01\x00\x05hello",
        b"",
    ],
)
def test_a_stranger_is_shown_out(engine: ScriptedEngine, server: TdsServer, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as stranger:
        stranger.sendall(sent)
        with contextlib.suppress(OSError):  # it may be out already
            stranger.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(4096):
                pass
    connection = pyodbc.connect(odbc(server), autocommit=True)
    assert connection.execute("select 1").fetchval() == 1
    connection.close()
