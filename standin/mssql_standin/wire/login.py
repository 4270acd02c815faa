"""LOGIN7 and its answer."""

import struct
from dataclasses import dataclass
from typing import Final

from mssql_standin.contract import Login
from mssql_standin.errors import SqlError
from mssql_standin.wire import tokens
from mssql_standin.wire.buffers import Reader, short_text
from mssql_standin.wire.collations import collation_bytes
from mssql_standin.wire.packets import ProtocolError
from mssql_standin.wire.prelogin import PRODUCT

TDS_7_4: Final = 0x74000004
TDS_8_0: Final = 0x08000000
"""Smaller than 7.x as a number: never compare versions by order (spec debezium-live §1.1)."""

UTF8_SUPPORT: Final = 0x0A
_INTEGRATED: Final = 0x80
_EXTENSION: Final = 0x10

DEFAULT_PACKET: Final = 8192
PLAIN_MAXIMUM: Final = 32767
TLS_MAXIMUM: Final = 16383
"""A TLS record holds 16 KiB: larger packets make clients hang (spec standin §11 no. 2)."""

PROGRAM: Final = "Microsoft SQL Server"


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """A LOGIN7 as far as it matters here."""

    login: Login
    version: int
    packet_size: int
    features: frozenset[int]
    integrated: bool


def read_login(data: bytes) -> LoginRequest:
    """Parse a LOGIN7.

    Raises:
        ProtocolError: too short, or a version before TDS 7.2.
    """
    if len(data) < 94:
        raise ProtocolError(f"a LOGIN7 of {len(data)} bytes")
    version, packet_size = struct.unpack_from("<II", data, 4)
    if version != TDS_8_0 and version < 0x72000000:
        raise ProtocolError(f"TDS version {version:#010x}: 7.2 or later is needed")
    option2, option3 = data[25], data[27]
    login = Login(
        user=_field(data, 40),
        password=_reveal(_raw_field(data, 44)),
        database=_field(data, 68),
        application=_field(data, 48),
        host=_field(data, 36),
    )
    features = _features(data) if option3 & _EXTENSION else frozenset[int]()
    return LoginRequest(login, version, packet_size, features, bool(option2 & _INTEGRATED))


def _raw_field(data: bytes, place: int) -> bytes:
    offset, length = struct.unpack_from("<HH", data, place)
    return data[offset : offset + 2 * length]


def _field(data: bytes, place: int) -> str:
    return _raw_field(data, place).decode("utf-16-le", "replace")


def _reveal(scrambled: bytes) -> str:
    plain = bytes(((byte ^ 0xA5) << 4 | (byte ^ 0xA5) >> 4) & 0xFF for byte in scrambled)
    return plain.decode("utf-16-le", "replace")


def _features(data: bytes) -> frozenset[int]:
    (where,) = struct.unpack_from("<H", data, 56)
    reader = Reader(data, Reader(data, where).u32())
    found = set[int]()
    while (feature := reader.u8()) != 0xFF:
        reader.take(reader.u32())
        found.add(feature)
    return frozenset(found)


def packet_size(requested: int, encrypted: bool) -> int:
    """The size to use: 0 means that the client leaves it to us (spec standin §11 no. 4)."""
    limit = TLS_MAXIMUM if encrypted else PLAIN_MAXIMUM
    return max(512, min(requested or DEFAULT_PACKET, limit))


def accepted(request: LoginRequest, database: str, collation: str, size: int, server: str) -> bytes:
    """The tokens that answer a good login."""
    parts = [
        tokens.environment_text(tokens.DATABASE, database, "master"),
        tokens.message(SqlError(5701, f"Changed database context to '{database}'.", 10, 2), server),
        tokens.environment_bytes(tokens.COLLATION, collation_bytes(collation), b""),
        tokens.environment_text(tokens.LANGUAGE, "us_english", ""),
        tokens.message(SqlError(5703, "Changed language setting to us_english.", 10, 1), server),
        _acknowledgement(request.version),
        tokens.environment_text(tokens.PACKET_SIZE, str(size), "4096"),
    ]
    if UTF8_SUPPORT in request.features:
        parts.append(b"\xae" + struct.pack("<BIB", UTF8_SUPPORT, 1, 1) + b"\xff")
    return b"".join(parts) + tokens.done()


def _acknowledgement(version: int) -> bytes:
    major, minor, build = PRODUCT
    spoken = TDS_8_0 if version == TDS_8_0 else min(version, TDS_7_4)
    body = b"\x01" + struct.pack(">I", spoken) + short_text(PROGRAM) + struct.pack(">BBH", major, minor, build)
    return b"\xad" + struct.pack("<H", len(body)) + body
