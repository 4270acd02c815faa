"""Requests: SQL batches, RPCs and transaction-manager requests."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mssql_standin.contract import Parameter
from mssql_standin.wire.buffers import Reader
from mssql_standin.wire.packets import ProtocolError
from mssql_standin.wire.values import read_typed

BY_NUMBER: Final = 0xFFFF
PROCEDURES: Final = {
    1: "sp_cursor", 2: "sp_cursoropen", 3: "sp_cursorprepare", 4: "sp_cursorexecute", 5: "sp_cursorprepexec",
    6: "sp_cursorunprepare", 7: "sp_cursorfetch", 8: "sp_cursoroption", 9: "sp_cursorclose", 10: "sp_executesql",
    11: "sp_prepare", 12: "sp_execute", 13: "sp_prepexec", 14: "sp_prepexecrpc", 15: "sp_unprepare",
}  # fmt: skip

SEPARATORS: Final = (0xFF, 0xFE)
"""Between the calls of one message; a parameter begins with the length of its name, at most 128."""

_OUTPUT, _DEFAULT, _ENCRYPTED = 0x01, 0x02, 0x08

BEGIN, COMMIT, ROLLBACK, SAVE = 5, 7, 8, 9
ISOLATION: Final = {1: "READ UNCOMMITTED", 2: "READ COMMITTED", 3: "REPEATABLE READ", 4: "SERIALIZABLE", 5: "SNAPSHOT"}


@dataclass(frozen=True, slots=True)
class Call:
    """One remote procedure call."""

    procedure: str
    parameters: list[Parameter]


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """What a transaction-manager request wants."""

    kind: int
    name: str = ""
    isolation: str | None = None
    begin_next: bool = False
    """COMMIT and ROLLBACK: open the next transaction at once (spec standin §11 no. 13)."""
    next_isolation: str | None = None


def _skip_headers(reader: Reader) -> None:
    """ALL_HEADERS leads every request from TDS 7.2 on, TDS 8.0 included."""
    total = reader.u32()
    if not 4 <= total <= reader.left + 4:
        raise ProtocolError(f"ALL_HEADERS of {total} bytes")
    reader.take(total - 4)


def read_batch(data: bytes) -> str:
    """The text of a SQL batch."""
    reader = Reader(data)
    _skip_headers(reader)
    return reader.take(reader.left & ~1).decode("utf-16-le", "replace")


def read_calls(data: bytes) -> Iterator[Call]:
    """The calls of an RPC message, one after the other (spec standin §4: fast_executemany).

    Raises:
        SqlError: a parameter of a type that is not supported.
        ProtocolError: what cannot be read.
    """
    reader = Reader(data)
    _skip_headers(reader)
    while reader.left:
        try:
            call = _read_call(reader)
        except (LookupError, ValueError, OverflowError, struct.error) as error:  # a length or a text that cannot be
            raise ProtocolError(f"a call that cannot be read at {reader.place}: {error}") from error
        yield call


def _read_call(reader: Reader) -> Call:
    length = reader.u16()
    if length == BY_NUMBER:
        number = reader.u16()
        if number not in PROCEDURES:
            raise ProtocolError(f"procedure number {number}")
        procedure = PROCEDURES[number]
    else:
        procedure = reader.text(length)
    reader.u16()
    parameters = list[Parameter]()
    parameters, reader.place = _read_parameters(reader.data, reader.place)
    return Call(procedure, parameters)


def _read_parameters(data: bytes, place: int) -> tuple[list[Parameter], int]:
    """The parameters of a call, and the place behind them and the separator; written for speed."""
    parameters = list[Parameter]()
    end = len(data)
    while place < end:
        length = data[place]
        if length in SEPARATORS:
            return parameters, place + 1
        behind = place + 1 + 2 * length
        name = data[place + 1 : behind].decode("utf-16-le", "surrogatepass") if length else ""
        status = data[behind]
        if status & _ENCRYPTED:
            raise ProtocolError("an encrypted parameter, though column encryption was not acknowledged")
        sql_type, value, place = read_typed(data, behind + 1)
        parameters.append(Parameter(name, sql_type, value, bool(status & _OUTPUT), bool(status & _DEFAULT)))
    return parameters, place


def read_transaction_request(data: bytes) -> TransactionRequest:
    """A transaction-manager request.

    Raises:
        ProtocolError: one for distributed transactions.
    """
    reader = Reader(data)
    _skip_headers(reader)
    kind = reader.u16()
    if kind == BEGIN:
        isolation = ISOLATION.get(reader.u8())
        return TransactionRequest(kind, _name(reader), isolation)
    if kind in (COMMIT, ROLLBACK):
        name = _name(reader)
        if reader.left and reader.u8() & 1:
            return TransactionRequest(kind, name, None, True, ISOLATION.get(reader.u8()))
        return TransactionRequest(kind, name)
    if kind == SAVE:
        return TransactionRequest(kind, _name(reader))
    raise ProtocolError(f"transaction-manager request {kind}: distributed transactions are not supported")


def _name(reader: Reader) -> str:
    """A name behind its length in bytes."""
    return reader.take(reader.u8() if reader.left else 0).decode("utf-16-le", "replace")
