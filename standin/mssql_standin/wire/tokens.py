"""The tokens of an answer, except column metadata and rows."""

import struct
from typing import Final

from mssql_standin.errors import SqlError
from mssql_standin.wire.buffers import long_text, short_text

DONE, DONE_PROC, DONE_IN_PROC = 0xFD, 0xFE, 0xFF

MORE: Final = 0x01
ERROR: Final = 0x02
IN_TRANSACTION: Final = 0x04
COUNT: Final = 0x10
ATTENTION: Final = 0x20

SELECTED: Final = 0xC1
CHANGED: Final = 0xC3
"""Current-command field of a DONE: mssql-jdbc takes the count as an update count only behind a DML command."""

DATABASE, LANGUAGE, PACKET_SIZE, COLLATION = 1, 2, 4, 7
BEGIN_TRANSACTION, COMMIT_TRANSACTION, ROLLBACK_TRANSACTION, RESET = 8, 9, 10, 18


def done(kind: int = DONE, status: int = 0, command: int = 0, count: int = 0) -> bytes:
    """DONE, DONEPROC or DONEINPROC."""
    return struct.pack("<BHHQ", kind, status, command, count)


def message(error: SqlError, server: str) -> bytes:
    """ERROR, or INFO up to severity 10."""
    body = (
        struct.pack("<iBB", error.number, error.state & 0xFF, error.severity)
        + long_text(error.message)
        + short_text(server)
        + short_text(error.procedure)
        + struct.pack("<I", error.line)
    )
    return struct.pack("<BH", 0xAA if error.severity > 10 else 0xAB, len(body)) + body


def environment_text(kind: int, new: str, old: str) -> bytes:
    """ENVCHANGE of a text."""
    return _environment(kind, short_text(new) + short_text(old))


def environment_bytes(kind: int, new: bytes, old: bytes) -> bytes:
    """ENVCHANGE of bytes."""
    return _environment(kind, bytes((len(new),)) + new + bytes((len(old),)) + old)


def _environment(kind: int, body: bytes) -> bytes:
    return struct.pack("<BHB", 0xE3, len(body) + 1, kind) + body


def return_status(status: int) -> bytes:
    """RETURNSTATUS of a procedure."""
    return struct.pack("<Bi", 0x79, status)


def return_value(ordinal: int, name: str, type_info: bytes, value: bytes) -> bytes:
    """RETURNVALUE of an output parameter; the value in its ROW form."""
    head = struct.pack("<BH", 0xAC, ordinal) + short_text(name)
    return head + struct.pack("<BIH", 0x01, 0, 0x01) + type_info + value
