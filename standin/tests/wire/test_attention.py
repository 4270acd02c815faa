"""Requests that are given up, byte by byte: before they are complete, while they run, and after."""

import socket
import struct
import threading
from collections.abc import Iterator, Sequence

import pytest

from mssql_standin.contract import Parameter, ResultSink
from mssql_standin.wire import packets, tokens
from mssql_standin.wire.packets import Channel
from mssql_standin.wire.prelogin import ENCRYPTION, NOT_SUPPORTED
from mssql_standin.wire.server import TdsServer
from mssql_standin.wire.tls import SocketStream
from tests.wire.scripted import ScriptedEngine, ScriptedSession

HEADERS = struct.pack("<I", 4)


def batch(text: str) -> bytes:
    return HEADERS + text.encode("utf-16-le")


def login(user: str, password: str) -> bytes:
    """A LOGIN7 with a name and a password alone."""
    scrambled = bytes((byte << 4 & 0xF0 | byte >> 4) ^ 0xA5 for byte in password.encode("utf-16-le"))
    body = bytearray(94) + user.encode("utf-16-le") + scrambled
    struct.pack_into("<III", body, 0, len(body), 0x74000004, 4096)
    struct.pack_into("<HHHH", body, 40, 94, len(user), 94 + 2 * len(user), len(password))
    return bytes(body)


class Wire:
    """A client that reads nothing into what it gets."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket, self.channel = sock, Channel(SocketStream(sock))
        option = struct.pack(">BHHB", ENCRYPTION, 6, 1, 0xFF) + bytes((NOT_SUPPORTED,))
        for kind, sent in ((packets.PRELOGIN, option), (packets.LOGIN7, login("sa", "secret"))):
            self.send(kind, sent)
            self.channel.read()

    def send(self, kind: int, data: bytes, status: int = packets.END_OF_MESSAGE) -> None:
        self.socket.sendall(struct.pack(">BBHHBB", kind, status, len(data) + 8, 0, 1, 0) + data)

    def done(self) -> tuple[int, int]:
        """Length of the next message and the status of the DONE at its end."""
        data = self.channel.read().data
        kind, status, _, _ = struct.unpack("<BHHQ", data[-13:])
        assert kind == tokens.DONE
        return len(data), status


@pytest.fixture
def wire(server: TdsServer) -> Iterator[Wire]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        yield Wire(sock)


def test_an_attention_is_acknowledged_in_a_message_of_its_own(engine: ScriptedEngine, wire: Wire) -> None:
    started = threading.Event()

    def endless(session: ScriptedSession, parameters: Sequence[Parameter], sink: ResultSink) -> int:
        while True:
            started.set()
            sink.check()

    engine.answers["endless"] = endless
    wire.send(packets.SQL_BATCH, batch("endless"))
    assert started.wait(20)
    wire.send(packets.ATTENTION, b"")
    assert wire.done() == (13, tokens.ERROR)
    assert wire.done() == (13, tokens.ATTENTION)
    wire.send(packets.SQL_BATCH, batch("select 1"))
    assert wire.done()[1] == tokens.COUNT


def test_an_attention_after_the_answer_is_acknowledged_alone(wire: Wire) -> None:
    wire.send(packets.SQL_BATCH, batch("select 1"))
    wire.send(packets.ATTENTION, b"")
    assert wire.done()[1] in (tokens.COUNT, tokens.ERROR)
    assert wire.done() == (13, tokens.ATTENTION)


def test_a_request_that_was_given_up_is_not_carried_out(engine: ScriptedEngine, wire: Wire) -> None:
    wire.send(packets.SQL_BATCH, batch("delete every"), status=0)
    wire.send(packets.SQL_BATCH, "thing".encode("utf-16-le"), packets.END_OF_MESSAGE | packets.IGNORE)
    assert wire.done() == (13, tokens.ERROR)
    assert engine.sessions[0].log == []
