"""Messages between a capture and its engine's process over one socket: a JSON header, then bytes.

| from | message | means |
|---|---|---|
| capture | `start` | the connector's properties, the offsets and schema history to begin from |
| engine | `chunk` | encoded events, the offsets after them, new records of the schema history |
| capture | `taken` | the chunk was received; send the next |
| capture | `committed` | the chunk of that number and all before it are in the lake: the source may discard them |
| capture | `stop` | end the connector |
| engine | `alive` | the Java machine answers; whether the connector takes its first snapshot, or reads the log |
| engine | `stopped` | the connector has ended, and why |

When the socket closes, the other side has ended; the engine's process then ends at once.
"""

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

_LENGTHS = struct.Struct(">IQ")


def send(channel: socket.socket, header: Mapping[str, Any], body: bytes = b"") -> None:
    """Send one message.

    Raises:
        OSError: the other side has ended.
    """
    text = json.dumps(header, separators=(",", ":")).encode()
    channel.sendall(_LENGTHS.pack(len(text), len(body)) + text)
    if body:
        channel.sendall(body)


def receive(channel: socket.socket) -> tuple[dict[str, Any], bytes]:
    """Wait for one message.

    Raises:
        EOFError: the other side has ended.
        OSError: the channel is broken.
    """
    size, more = _LENGTHS.unpack(_exactly(channel, _LENGTHS.size))
    header = json.loads(_exactly(channel, size))
    return header, bytes(_exactly(channel, more))


def _exactly(channel: socket.socket, size: int) -> bytearray:
    found = bytearray(size)
    view, done = memoryview(found), 0
    while done < size:
        count = channel.recv_into(view[done:])
        if not count:
            raise EOFError("The other side has ended.")
        done += count
    return found
