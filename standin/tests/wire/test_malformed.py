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

from mssql_standin.errors import SqlError
from mssql_standin.sql.convert import convert_argument
from mssql_standin.sqltypes import NVARCHAR_MAX
from mssql_standin.wire import login, prelogin, request
from mssql_standin.wire.packets import ProtocolError
from mssql_standin.wire.rowenc import encode_value
from mssql_standin.wire.server import TdsServer
from mssql_standin.wire.typeinfo import INFO_BYTES
from tests.wire.conftest import odbc
from tests.wire.scripted import ScriptedEngine

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
@example(data=HEADERS + b"\x00\x00\x00\x00\x01\x00\x00\x00+\x08\x01\x00")  # a datetimeoffset(8)
def test_garbage_is_a_protocol_error(parse: Callable[[bytes], Any], data: bytes) -> None:
    with contextlib.suppress(ProtocolError, SqlError):
        parse(data)


PLACES = st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 17, 38, 39, 255])
"""Sizes, precisions and scales: those that types have, and their neighbours."""


@st.composite
def parameters(draw: st.DrawFn) -> bytes:
    """A token that a parameter may have, with any arguments, and any value behind a length of one or two bytes or in chunks."""
    token = draw(st.sampled_from([token for token in range(256) if INFO_BYTES[token]]))
    arguments = bytes(draw(PLACES) for _ in range(INFO_BYTES[token] - 1))
    value = draw(st.binary(max_size=20))
    lengths = (b"", bytes((len(value),)), struct.pack("<H", len(value)), struct.pack("<QI", len(value), len(value)))
    return b"\0\0" + bytes((token,)) + arguments + draw(st.sampled_from(lengths)) + value + b"\0\0\0\0"


@settings(max_examples=500, deadline=None)
@given(sent=parameters())
@example(sent=b"\0\0*\x08\x01\xee")  # a datetime2(8)
@example(sent=b"\0\0)\x05\x07\x99h)\xaf\x06R\x97")  # a time(5) of seven bytes
@example(sent=b"\0\0)\x02\x03\xff\xff\xff")  # a time behind the end of the day
@example(sent=b"\0\0(\x03\xfaq\xe4")  # a date in the year 40991
@example(sent=b"\0\0*\x02\x06\0\0\0\xfaq\xe4")  # a datetime2 in it
@example(sent=b"\0\0+\x02\x08\0\0\0\0\0\0\xf0\xff")  # a datetimeoffset before the year 1
@example(sent=b"\0\0+\x02\x08\0\0\0\1\0\0\xff\x7f")  # one of three weeks from Greenwich
@example(sent=b"\0\0=\xff\xff\xff\x7f\0\0\0\0")  # a datetime behind the year 9999
@example(sent=b"\0\0:\0\0\xff\xff")  # a smalldatetime behind the end of the day
@example(sent=b"\0\0&\x01\x03T1\xcc")  # a tinyint of three bytes
@example(sent=b"\0\0j\x05\x05\0\x05\1\xff\xff\xff\xff")  # a decimal(5,0) of ten digits
@example(sent=b"\0\0j\x11\x27\0\x11\1" + b"\xff" * 16)  # a decimal(39,0)
@example(sent=b"\0\0l\x05\x05\x07\x05\1\0\0\0\0")  # a numeric(5,7)
def test_what_is_read_as_a_parameter_is_a_value_of_its_type(sent: bytes) -> None:
    with contextlib.suppress(ProtocolError, SqlError):
        for call in request.read_calls(CALL + sent):
            for parameter in call.parameters:
                encode_value(parameter.type, parameter.value)
                convert_argument(parameter.value, parameter.type, NVARCHAR_MAX)


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
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stranger:
        stranger.sendall(sent)
        with contextlib.suppress(OSError):  # it may be out already
            stranger.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(4096):
                pass
    connection = pyodbc.connect(odbc(server), autocommit=True)
    assert connection.execute("select 1").fetchval() == 1
    connection.close()
