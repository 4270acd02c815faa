"""One client: handshake, then one request after the other, in the thread of the connection."""

import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass

from mssql_standin.contract import Cancelled, Fault, Server, Session
from mssql_standin.errors import SqlError, internal
from mssql_standin.sqltypes import DEFAULT_COLLATION
from mssql_standin.wire import login, prelogin, request, tls, tokens
from mssql_standin.wire.packets import (
    ATTENTION,
    LOGIN7,
    PRELOGIN,
    RPC,
    SQL_BATCH,
    TRANSACTION_MANAGER,
    Channel,
    Disconnected,
    Message,
    ProtocolError,
    Stream,
)
from mssql_standin.wire.prelogin import Encryption
from mssql_standin.wire.response import Injected, Response, Transactions
from mssql_standin.wire.rpc import Outcome, Procedures

_LOG = logging.getLogger(__name__)

DEADLOCK = 1205


@dataclass(frozen=True, slots=True)
class Security:
    """What the server does about encryption; the contexts are for TLS inside packets and for strict."""

    encryption: Encryption
    contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None


class Connection:
    """Serves one socket until it ends.

    Args:
        sock: the accepted socket; closed at the end.
        server: the engine.
        security: encryption.
        spid: number of the connection, shown in packet headers.
        stopping: set when the server stops.
    """

    def __init__(
        self, sock: socket.socket, server: Server, security: Security, spid: int, stopping: threading.Event
    ) -> None:
        self._socket, self._server, self._security = sock, server, security
        self._stopping = stopping
        self._plain: Stream = tls.SocketStream(sock)
        self._channel = Channel(self._plain)
        self._channel.spid = spid & 0xFFFF
        self._transactions = Transactions()

    def serve(self) -> None:
        """Run to the end of the connection; every way out closes session and socket."""
        session: Session | None = None
        try:
            session = self._open()
            if session is not None:
                self._requests(session, Procedures(session))
        except Disconnected as reason:
            _LOG.debug("connection %s ends: %s", self._channel.spid, reason)
        except Exception:  # noqa: BLE001 - the thread ends here; the log must say why
            _LOG.exception("connection %s fails", self._channel.spid)
        finally:
            try:
                if session is not None:
                    session.close()
            finally:
                self.close()

    def close(self) -> None:
        """Close the socket; wakes the thread if it waits for the client."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    # ---- opening ---------------------------------------------------------------------------------------------

    def _open(self) -> Session | None:
        """Handshake and login; None after a refused login."""
        encrypted, login_only = self._negotiate()
        message = self._channel.read()
        if message.kind != LOGIN7:
            raise ProtocolError(f"a request of type {message.kind:#x} where a LOGIN7 belongs")
        wanted = login.read_login(message.data)
        if login_only:
            self._channel.stream = self._plain
        try:
            if wanted.integrated:
                raise SqlError(18452, "Login failed. The stand-in knows SQL logins only, not Windows logins.", 14)
            session = self._server.open(wanted.login)
            session.disconnect = self.close
        except SqlError as error:
            self._channel.write(tokens.message(error, self._server.name) + tokens.done(status=tokens.ERROR))
            self._channel.end()
            return None
        size = login.packet_size(wanted.packet_size, encrypted and not login_only)
        collation = getattr(session, "collation", DEFAULT_COLLATION)
        self._channel.write(login.accepted(wanted, session.database, collation, size, self._server.name))
        self._channel.end()
        self._channel.packet_size = size
        return session

    def _negotiate(self) -> tuple[bool, bool]:
        """Agree on encryption; returns (encrypted, for the login only)."""
        strict = self._starts_with_tls()
        if strict:
            self._channel.stream = tls.before_packets(self._plain, self._contexts()[1])
        elif self._security.encryption is Encryption.STRICT:
            raise ProtocolError("the server accepts TDS 8.0 (Encrypt=strict) only")
        message = self._channel.read()
        if message.kind != PRELOGIN:
            raise ProtocolError(f"a request of type {message.kind:#x} where a PRELOGIN belongs")
        options = prelogin.read_options(message.data)
        client = (options.get(prelogin.ENCRYPTION) or bytes((prelogin.NOT_SUPPORTED,)))[0]
        chosen = prelogin.NOT_SUPPORTED if strict else prelogin.choose(self._security.encryption, client)
        self._channel.write(prelogin.answer(options, chosen))
        self._channel.end()
        if strict or chosen == prelogin.NOT_SUPPORTED:
            return strict, False
        self._channel.stream = tls.in_packets(self._channel, self._contexts()[0])
        return True, chosen == prelogin.OFF

    def _starts_with_tls(self) -> bool:
        try:
            first = self._socket.recv(1, socket.MSG_PEEK)
        except OSError as error:
            raise Disconnected(str(error)) from error
        return first == b"\x16"

    def _contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        if self._security.contexts is None:
            raise ProtocolError("the client wants TLS, but the server was started without a certificate")
        return self._security.contexts

    # ---- requests --------------------------------------------------------------------------------------------

    def _requests(self, session: Session, procedures: Procedures) -> None:
        while True:
            message = self._channel.read()
            self._channel.delay_s = 0.0
            response = Response(self._channel, session, self._transactions, self._server.name)
            if message.reset:
                self._reset(message, session, procedures, response)
            try:
                self._answer(message, session, procedures, response)
            except Injected:
                self._injected(session, response)
            except Cancelled:
                response.cancelled(running=True)
            self._channel.end()
            if response.fatal:
                raise Disconnected("a fatal error was sent")

    def _reset(self, message: Message, session: Session, procedures: Procedures, response: Response) -> None:
        """A pooled connection is handed to its next user (spec standin §11 no. 14)."""
        if message.keep_transaction and session.in_transaction:
            raise ProtocolError("a reset that keeps the transaction is not supported")
        procedures.reset()
        session.reset()
        self._transactions.open = None
        response.write(tokens.environment_bytes(tokens.RESET, b"", b""))

    def _answer(self, message: Message, session: Session, procedures: Procedures, response: Response) -> None:
        if message.ignored:
            response.ignored()
        elif message.kind == SQL_BATCH:
            text = request.read_batch(message.data)
            self._guarded(session, response, text, lambda: session.batch(text, response))
            response.end_batch()
        elif message.kind == RPC:
            self._calls(message.data, session, procedures, response)
        elif message.kind == TRANSACTION_MANAGER:
            wanted = request.read_transaction_request(message.data)
            self._guarded(session, response, "", lambda: _transaction(wanted, session, response))
            response.end_batch()
        elif message.kind == ATTENTION:
            response.cancelled(running=False)
        else:
            raise ProtocolError(f"requests of type {message.kind:#x} are not supported")

    def _calls(self, data: bytes, session: Session, procedures: Procedures, response: Response) -> None:
        """All calls of an RPC message; what cannot be read ends the message with its error."""
        calls = request.read_calls(data)
        try:
            call = next(calls, None)
            while call is not None:
                following = next(calls, None)
                self._call(call, session, procedures, response, last=following is None)
                call = following
        except SqlError as error:
            response.error(error)
            response.end_batch()

    def _call(
        self, call: request.Call, session: Session, procedures: Procedures, response: Response, last: bool
    ) -> None:
        outcome: Outcome | None = None

        def run() -> None:
            nonlocal outcome
            outcome = procedures.run(call, response)

        response.begin_procedure()
        self._guarded(session, response, procedures.statement(call), run)
        response.end_procedure(outcome.status if outcome else None, outcome.outputs if outcome else (), last)

    def _guarded(self, session: Session, response: Response, text: str, work: Callable[[], None]) -> None:
        """Do the work of a request; every error becomes an ERROR token."""
        try:
            response.fault = self._fault(session, text) if text else None
            work()
        except SqlError as error:
            response.error(error)
        except (Cancelled, Disconnected):
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours must reach the client as an error, not as silence
            _LOG.exception("internal error in %.200s", text)
            response.error(internal(error))

    # ---- injected faults -------------------------------------------------------------------------------------

    def _fault(self, session: Session, text: str) -> Fault | None:
        """Apply a fault that strikes at once; return one that strikes later.

        Raises:
            SqlError: the injected error.
            Disconnected: the connection is dropped, or hung until one side gave up.
        """
        fault = self._server.before_statement(session, text)
        if fault is None:
            return None
        self._channel.delay_s = fault.delay_s
        if fault.after_rows:
            return fault
        if fault.hang:
            self._hang()
        if fault.drop:
            raise Disconnected("an injected drop")
        if fault.error is not None:
            self._undo_victim(fault, session)
            raise fault.error
        return None

    def _hang(self) -> None:
        """Half-open: never answer, not even an attention, until the client is gone or the server stops."""
        while not self._stopping.wait(0.02):
            self._channel.attention()
        raise Disconnected("the server stops")

    def _injected(self, session: Session, response: Response) -> None:
        fault = response.fault
        if fault is None or fault.error is None:
            raise Disconnected("an injected drop among the rows")
        self._undo_victim(fault, session)
        response.interrupted(fault.error)

    @staticmethod
    def _undo_victim(fault: Fault, session: Session) -> None:
        """A deadlock victim loses its whole transaction."""
        if fault.error is not None and fault.error.number == DEADLOCK and session.in_transaction:
            session.rollback()


def _transaction(wanted: request.TransactionRequest, session: Session, response: Response) -> None:
    """A transaction-manager request."""
    if wanted.kind == request.BEGIN:
        response.note_begin(session.begin(wanted.isolation))
    elif wanted.kind == request.SAVE:
        session.save(wanted.name)
    elif wanted.kind == request.COMMIT:
        session.commit()
        _ended(tokens.COMMIT_TRANSACTION, wanted, session, response)
    else:
        session.rollback(wanted.name)
        if not session.in_transaction:
            _ended(tokens.ROLLBACK_TRANSACTION, wanted, session, response)


def _ended(kind: int, wanted: request.TransactionRequest, session: Session, response: Response) -> None:
    if not session.in_transaction:
        response.note_end(kind)
    if wanted.begin_next:
        response.note_begin(session.begin(isolation=wanted.next_isolation))
