"""PRELOGIN: versions and the choice of encryption."""

import struct
from enum import StrEnum
from typing import Final

from mssql_standin.wire.packets import ProtocolError

VERSION, ENCRYPTION, INSTANCE, THREAD, MARS = range(5)
OFF, ON, NOT_SUPPORTED, REQUIRED = range(4)

PRODUCT: Final = (16, 0, 1000)
"""Major, minor, build of the version the stand-in claims, the same as in @@VERSION: SQL Server 2022."""
_SUB_BUILD: Final = 6


class Encryption(StrEnum):
    """What the server does about encryption (spec standin §3)."""

    NOT_SUPPORTED = "not_supported"
    """None; clients that insist give up. The login crosses in clear."""
    OFF = "off"
    """The login only, unless the client wants all."""
    ON = "on"
    """Everything; clients that cannot are refused."""
    STRICT = "strict"
    """TDS 8.0 only: TLS before the first packet."""


def read_options(data: bytes) -> dict[int, bytes]:
    """Option number → bytes.

    Raises:
        ProtocolError: not a PRELOGIN.
    """
    options, place = dict[int, bytes](), 0
    while place < len(data) and data[place] != 0xFF:
        if place + 5 > len(data):
            raise ProtocolError("a PRELOGIN that ends early")
        token, offset, length = struct.unpack_from(">BHH", data, place)
        options[token] = data[offset : offset + length]
        place += 5
    return options


def write_options(options: dict[int, bytes]) -> bytes:
    """The PRELOGIN with these options."""
    offset, head, body = 5 * len(options) + 1, b"", b""
    for token, data in options.items():
        head += struct.pack(">BHH", token, offset + len(body), len(data))
        body += data
    return head + b"\xff" + body


def answer(client: dict[int, bytes], encryption: int) -> bytes:
    """The server's PRELOGIN."""
    major, minor, build = PRODUCT
    options = {
        VERSION: struct.pack(">BBHH", major, minor, build, _SUB_BUILD),
        ENCRYPTION: bytes((encryption,)),
        INSTANCE: b"\0",
        THREAD: b"",
        MARS: b"\0",
    }
    return write_options({token: data for token, data in options.items() if token < INSTANCE or token in client})


def choose(server: Encryption, client: int) -> int:
    """The ENCRYPTION value to answer with (MS-TDS 2.2.6.5; spec standin §3)."""
    if server is Encryption.NOT_SUPPORTED or server is Encryption.STRICT:
        return NOT_SUPPORTED
    if server is Encryption.ON:
        return ON if client == ON else REQUIRED
    return {OFF: OFF, ON: ON, NOT_SUPPORTED: NOT_SUPPORTED}.get(client, ON)
