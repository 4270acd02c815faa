"""The answer to one request: a `ResultSink` that writes tokens.

The DONE chain: of all results of a batch only the last lacks the "more" flag, so a DONE is
held back until it is known whether something follows. Inside an RPC every statement ends
with DONEINPROC and "more"; the procedure itself ends with DONEPROC (spec standin §11 no. 10).
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from mssql_standin.contract import Cancelled, Fault, Parameter, ResultColumn, Session
from mssql_standin.errors import SqlError
from mssql_standin.sqltypes import Value
from mssql_standin.wire import tokens
from mssql_standin.wire.packets import Channel
from mssql_standin.wire.rowenc import Encoder, encode_value, shape_of
from mssql_standin.wire.typeinfo import type_info

_CHUNK_BYTES: Final = 128 * 1024
_CHUNK_ROWS: Final = 4096


class Injected(Cancelled):
    """An injected fault struck among the rows: the session unwinds as for an attention."""


class Transactions:
    """Which transaction the client believes to be in; outlives the single answer."""

    def __init__(self) -> None:
        self.open: int | None = None
        self._last = 0

    def next_descriptor(self) -> int:
        """A descriptor for a transaction that was begun by text."""
        self._last += 1
        return self._last << 32 | 1


class Response:
    """Tokens of one answer.

    Args:
        channel: where to.
        session: its `in_transaction` goes into every DONE.
        transactions: what the client was told so far.
        server: name for messages.
    """

    def __init__(self, channel: Channel, session: Session, transactions: Transactions, server: str) -> None:
        self._channel, self._session, self._server = channel, session, server
        self._transactions = transactions
        self.fault: Fault | None = None
        """An injected fault that strikes after so many rows."""
        self._encoder: Encoder | None = None
        self._columns: Sequence[ResultColumn] = ()
        self._held: bytes | None = None
        self._failed = False
        self._in_procedure = False
        self._sent = 0
        self.fatal = False
        """An error of severity 20 or more was sent: the connection ends."""

    # ---- ResultSink ------------------------------------------------------------------------------------------

    def columns(self, columns: Sequence[ResultColumn]) -> None:
        """Begin a result set."""
        shape = shape_of(columns)
        self._write(shape.metadata)
        self._columns, self._encoder = columns, shape.encoder

    def rows(self, rows: Iterable[Sequence[Value]]) -> int:
        """Send rows; returns how many."""
        iterator, total, wanted = iter(rows), 0, 256
        while True:
            count, data = self._encode(islice(iterator, self._allowed(wanted)))
            total += count
            self._send_rows(count, data)
            if (count < wanted and not data) or count < self._allowed(wanted):
                return total
            wanted = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES * count // max(len(data), 1)))

    def blocks(self, blocks: Iterable[tuple[int, bytes]]) -> int:
        """Send encoded rows; returns how many."""
        total = 0
        for count, data in blocks:
            total += count
            self._send_rows(count, data)
        return total

    def done(self, count: int | None = None) -> None:
        """End a statement."""
        selected, self._encoder = self._encoder is not None, None
        self._note_transaction()
        command = tokens.SELECTED if selected else tokens.CHANGED if count is not None else 0
        self._hold(0 if count is None else tokens.COUNT, command, count or 0)

    def message(self, message: SqlError) -> None:
        """INFO."""
        self._write(tokens.message(message, self._server))

    def error(self, error: SqlError) -> None:
        """ERROR and the DONE that says so."""
        self._encoder = None
        self._write(tokens.message(error, self._server))
        self._failed = True
        self.fatal = self.fatal or error.severity >= 20
        self._note_transaction()
        self._hold(tokens.ERROR, 0, 0)

    def database_changed(self, old: str, new: str) -> None:
        """USE."""
        self._write(tokens.environment_text(tokens.DATABASE, new, old))
        self.message(SqlError(5701, f"Changed database context to '{new}'.", 10, 2))

    def check(self) -> None:
        """Raise Cancelled if the client sent an attention."""
        if self._channel.attention():
            raise Cancelled

    # ---- the connection's side -------------------------------------------------------------------------------

    def write(self, token: bytes) -> None:
        """A token that the connection made."""
        self._write(token)

    def begin_procedure(self) -> None:
        """What follows comes from an RPC."""
        self._in_procedure = True

    def end_procedure(self, status: int | None, outputs: Iterable[tuple[int, Parameter]], last: bool) -> None:
        """Return status, output values and DONEPROC.

        Args:
            status: None after an error that ended the procedure.
            outputs: (place among the parameters, parameter) of those that the client wants back.
            last: whether no other call follows in this message.
        """
        self._in_procedure = False
        self._note_transaction()
        if status is not None:
            self._write(tokens.return_status(status))
            for place, parameter in outputs:
                value = encode_value(parameter.type, parameter.value)
                self._write(tokens.return_value(place, parameter.name, type_info(parameter.type), value))
        more = 0 if last else tokens.MORE
        failed = tokens.ERROR if self._failed else 0
        self._failed = False
        self._write(tokens.done(tokens.DONE_PROC, more | failed | self._transaction_flag()))

    def end_batch(self) -> None:
        """Let go the last DONE, or send one if there was no result."""
        self._note_transaction()
        held = self._held or tokens.done(tokens.DONE, self._transaction_flag())
        self._held = None
        self._channel.write(held)

    def cancelled(self, running: bool) -> None:
        """Acknowledge an attention; exactly one DONE does, in a message of its own: a client that reads the answer to its
        request to the end looks for the acknowledgement in the next message.

        Args:
            running: a statement was interrupted: its own DONE says error, or ODBC 18 reports success.
        """
        self._encoder = None
        if running:
            self._note_transaction()
            self._write(tokens.done(tokens.DONE, tokens.ERROR))
            self._channel.end()
        self._write(tokens.done(tokens.DONE, tokens.ATTENTION | self._transaction_flag()))

    def ignored(self) -> None:
        """Answer a request that the client gave up before it was complete: nothing was done, and no attention will follow."""
        self._write(tokens.done(tokens.DONE, tokens.ERROR | self._transaction_flag()))

    def interrupted(self, error: SqlError) -> None:
        """End the answer with the error that a fault put among the rows."""
        self._in_procedure = False
        self.error(error)
        self.end_batch()

    def note_begin(self, descriptor: int) -> None:
        """Tell the client that a transaction began."""
        self._transactions.open = descriptor
        self._write(tokens.environment_bytes(tokens.BEGIN_TRANSACTION, struct.pack("<Q", descriptor), b""))

    def note_end(self, kind: int) -> None:
        """Tell the client that its transaction ended (`tokens.COMMIT_TRANSACTION` or `ROLLBACK_TRANSACTION`)."""
        descriptor, self._transactions.open = self._transactions.open, None
        if descriptor is not None:
            self._write(tokens.environment_bytes(kind, b"", struct.pack("<Q", descriptor)))

    # ---- helpers ---------------------------------------------------------------------------------------------

    def _write(self, token: bytes) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._channel.write(_with_more(held))
        self._channel.write(token)

    def _hold(self, status: int, command: int, count: int) -> None:
        status |= self._transaction_flag()
        if self._in_procedure:
            self._write(tokens.done(tokens.DONE_IN_PROC, status | tokens.MORE, command, count))
            return
        if self._held is not None:
            self._channel.write(_with_more(self._held))
        self._held = tokens.done(tokens.DONE, status, command, count)

    def _transaction_flag(self) -> int:
        return tokens.IN_TRANSACTION if self._session.in_transaction else 0

    def _note_transaction(self) -> None:
        """Transactions begun and ended by text change the client's descriptor too."""
        inside = self._session.in_transaction
        if inside and self._transactions.open is None:
            self.note_begin(self._transactions.next_descriptor())
        elif not inside and self._transactions.open is not None:
            self.note_end(tokens.ROLLBACK_TRANSACTION if self._failed else tokens.COMMIT_TRANSACTION)

    def _encode(self, rows: Iterable[Sequence[Value]]) -> tuple[int, bytes]:
        if self._encoder is None:
            raise RuntimeError("rows before columns")
        try:
            return self._encoder(rows)
        except (struct.error, TypeError, AttributeError) as error:
            listed = ", ".join(f"{c.name} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in self._columns)
            raise RuntimeError(f"a row does not fit its columns ({listed}): {error}") from error

    def _allowed(self, wanted: int) -> int:
        return wanted if self.fault is None or not self.fault.after_rows else 1

    def _send_rows(self, count: int, data: bytes) -> None:
        if data:
            self._write(data)
        self._strike(count)
        self.check()

    def _strike(self, count: int) -> None:
        """Count rows towards an injected fault."""
        fault = self.fault
        if fault is None or not fault.after_rows:
            return
        self._sent += count
        if self._sent >= fault.after_rows:
            self._channel.flush()
            raise Injected


def _with_more(done: bytes) -> bytes:
    return done[:1] + bytes((done[1] | tokens.MORE,)) + done[2:]
