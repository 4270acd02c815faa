"""TDS packets: eight bytes of header, a payload, and a bit that says whether the message ends.

A `Channel` turns a byte stream into messages and back. Nothing already given to `write` is
ever dropped, since part of a token may have left: a cancelled answer ends where a token ends.
"""

import struct
import time
from dataclasses import dataclass
from typing import Final, Protocol

HEADER: Final = 8
END_OF_MESSAGE: Final = 0x01
IGNORE: Final = 0x02
"""With the end of a message: the client gave it up before it was complete."""
RESET: Final = 0x08
RESET_KEEP_TRANSACTION: Final = 0x10

SQL_BATCH, RPC, REPLY, ATTENTION = 0x01, 0x03, 0x04, 0x06
BULK_LOAD, TRANSACTION_MANAGER, LOGIN7, PRELOGIN = 0x07, 0x0E, 0x10, 0x12

MAXIMUM_MESSAGE: Final = 1 << 30
"""Longer requests are refused: a length field gone wrong must not eat the memory."""

_FLUSH_AT: Final = 128 * 1024


class Disconnected(Exception):  # noqa: N818 - the ordinary end of a connection
    """The peer is gone, or the connection is to be closed."""


class ProtocolError(Disconnected):
    """What arrived is not TDS; the connection is closed."""


class Stream(Protocol):
    """A two-way byte stream."""

    def receive(self) -> bytes:
        """Some bytes; empty at the end of the stream."""

    def send(self, data: bytes) -> None:
        """All of the bytes."""

    def ready(self) -> bool:
        """Whether `receive` has something to give without waiting."""


@dataclass(frozen=True, slots=True)
class Message:
    """One request."""

    kind: int
    data: bytes
    reset: bool = False
    keep_transaction: bool = False
    ignored: bool = False
    """Given up by the client: it is not to be carried out."""


class Channel:
    """Messages over a stream.

    Args:
        stream: may be replaced when TLS starts or ends.
        packet_size: bytes of a packet that is sent, header included.
    """

    def __init__(self, stream: Stream, packet_size: int = 4096) -> None:
        self.stream = stream
        self.packet_size = packet_size
        self.spid = 0
        self.delay_s = 0.0
        """Injected slowness: wait before each packet."""
        self._received = bytearray()
        self._unsent = bytearray()
        self._kind = REPLY
        self._number = 0

    def read(self) -> Message:
        """The next message.

        Raises:
            Disconnected: the peer closed the connection.
            ProtocolError: a header that cannot be.
        """
        kind, status, payload = self._packet()
        first_status = status
        if status & END_OF_MESSAGE:
            data = bytes(payload)
        else:
            parts = bytearray(payload)
            while not status & END_OF_MESSAGE:
                _, status, payload = self._packet()
                parts += payload
                if len(parts) > MAXIMUM_MESSAGE:
                    raise ProtocolError(f"a message of more than {MAXIMUM_MESSAGE} bytes")
            data = bytes(parts)
        reset = bool(first_status & (RESET | RESET_KEEP_TRANSACTION))
        return Message(kind, data, reset, bool(first_status & RESET_KEEP_TRANSACTION), bool(status & IGNORE))

    def _packet(self) -> tuple[int, int, bytes]:
        self._fill(HEADER)
        kind, status, length = struct.unpack_from(">BBH", self._received)
        if length < HEADER:
            raise ProtocolError(f"a packet of {length} bytes")
        self._fill(length)
        payload = bytes(self._received[HEADER:length])
        del self._received[:length]
        return kind, status, payload

    def _fill(self, count: int) -> None:
        while len(self._received) < count:
            data = self.stream.receive()
            if not data:
                raise Disconnected("the client closed the connection")
            self._received += data

    def attention(self) -> bool:
        """Whether an attention has arrived; takes it. Raises Disconnected when the client is gone."""
        if not self._received and not self.stream.ready():
            return False
        kind, _, _ = self._packet()
        if kind != ATTENTION:
            raise ProtocolError(f"a request of type {kind:#x} while another one runs")
        return True

    def begin(self, kind: int) -> None:
        """Messages sent from now on are of this kind."""
        self._kind = kind

    def write(self, data: bytes) -> None:
        """Add to the message; full packets leave when enough has gathered."""
        self._unsent += data
        if len(self._unsent) >= _FLUSH_AT:
            self._send_packets(last=False)

    def end(self) -> None:
        """Send the rest and end the message."""
        self._send_packets(last=True)
        self._number = 0

    def flush(self) -> None:
        """Send full packets now."""
        self._send_packets(last=False)

    def _send_packets(self, last: bool) -> None:
        size = self.packet_size - HEADER
        data = memoryview(self._unsent)
        total, place, packets = len(data), 0, list[bytes]()
        while total - place > size or (last and place <= total):
            rest = total - place
            final = last and rest <= size
            length = rest if final else size
            self._number = (self._number + 1) & 0xFF
            status = END_OF_MESSAGE if final else 0
            header = struct.pack(">BBHHBB", self._kind, status, length + HEADER, self.spid, self._number, 0)
            packets += (header, data[place : place + length])  # type: ignore[arg-type]  # join takes buffers
            place += length
            if final:
                break
        answer = b"".join(packets)
        data.release()
        packets.clear()
        del self._unsent[:place]
        self._send(answer)

    def _send(self, answer: bytes) -> None:
        if self.delay_s:
            for place in range(0, len(answer), self.packet_size):
                time.sleep(self.delay_s)
                self.stream.send(answer[place : place + self.packet_size])
        elif answer:
            self.stream.send(answer)
