"""The engine: implements `contract.Server`."""

import contextlib
import itertools
import json
import secrets
import sqlite3
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from mssql_standin.capture.agent import Agent
from mssql_standin.catalog import Database, RecoveryFork, fold
from mssql_standin.contract import Fault, Login, RowBlocks, Session
from mssql_standin.definitions.databases import SYSTEM, add_database
from mssql_standin.definitions.principals import fits
from mssql_standin.engine.session import EngineSession
from mssql_standin.errors import SqlError
from mssql_standin.queries.names import check_online
from mssql_standin.queries.ports import Plan
from mssql_standin.rights import Rights
from mssql_standin.sqltypes import DEFAULT_COLLATION
from mssql_standin.store.storage import Storage

Faults = Callable[[Session, str], Fault | None]

_EPOCH: Final = datetime(1, 1, 1)
_FIRST_SESSION: Final = 51
_LOG_ENDS: Final = "logs.json"
"""Of a backup: where each database's log ends."""


class SystemClock:
    """The server's clock: the machine's, moved by `shift`, in a time zone `offset_minutes` east of UTC."""

    def __init__(self) -> None:
        self.offset_minutes = 0
        self.shift = timedelta()
        self._fixed: datetime | None = None

    def set(self, utc: datetime | None) -> None:
        """Stop the clock at a moment (naive UTC); None lets it run again."""
        self._fixed = utc

    def utc(self) -> datetime:
        """Naive UTC."""
        if self._fixed is not None:
            return self._fixed
        return datetime.now(UTC).replace(tzinfo=None) + self.shift

    def utc_ticks(self) -> int:
        """100 ns ticks since 0001-01-01, UTC."""
        since = self.utc() - _EPOCH
        return (since.days * 86400 + since.seconds) * 10_000_000 + since.microseconds * 10

    def local(self) -> datetime:
        """Server-local wall clock, naive."""
        return self.utc() + timedelta(minutes=self.offset_minutes)


class Engine:
    """Databases, logins, sessions, the capture Agent.

    Args:
        directory: where the databases lie and are found again; None for a temporary place.
        user: the one login.
        password: its password.
    """

    def __init__(self, directory: Path | None = None, user: str = "sa", password: str = "") -> None:
        self.name = "STANDIN"
        self.user, self._password = user, password
        self.clock = SystemClock()
        self.storage = Storage(directory)
        self.plans: dict[object, Plan] = {}
        self.faults: Faults | None = None
        self.blocks: RowBlocks | None = None
        self._ids = itertools.count(_FIRST_SESSION)
        self._sessions: dict[int, EngineSession] = {}
        self._mutex = threading.Lock()
        self._create_system_databases()
        self.agent = Agent(self.storage, self.clock)

    def _create_system_databases(self) -> None:
        if self.storage.catalog.databases:
            return
        catalog = self.storage.catalog.copy()
        for name in SYSTEM:
            add_database(catalog, name, DEFAULT_COLLATION, self.clock.local())
        catalog.version = self.storage.next_version()
        with contextlib.closing(self.storage.connect()) as connection, self.storage.writing(connection, self):
            saved = self.storage.save_catalog(connection, catalog)
        self.storage.publish(saved)

    def open(self, login: Login) -> EngineSession:
        """Log in.

        Raises:
            SqlError: 18456 for a bad login, 4060 for a database that cannot be opened.
        """
        rights = self._rights(login)
        database = self._database(login, rights)
        with self._mutex:
            number = next(self._ids)
        session = EngineSession(self, number, login, database.name)
        with self._mutex:
            self._sessions[number] = session
        return session

    def _rights(self, login: Login) -> Rights | None:
        """What a login may do; None for a sysadmin."""
        if fold(login.user) == fold(self.user) and login.password == self._password:
            return None
        known = self.storage.catalog.security.principals.get(fold(login.user))
        if known is None or known.kind != "S" or not fits(known, login.password):
            raise SqlError(18456, f"Login failed for user '{login.user}'.", 14)
        return Rights.of(self.storage.catalog, known.name)

    def _database(self, login: Login, rights: Rights | None) -> Database:
        own = self.storage.catalog.security.principals.get(fold(login.user))
        name = login.database or (own.default_database if own else "master")
        found = self.storage.catalog.database(name)
        try:
            if found is not None:
                check_online(found)
                if rights is not None:
                    rights.require_entry(found)
                return found
        except SqlError:
            pass
        raise SqlError(4060, f'Cannot open database "{name}" requested by the login. The login failed.', 11)

    def set_password(self, password: str) -> None:
        """Change the password of the one login; open sessions stay."""
        self._password = password

    def backup(self, folder: Path) -> None:
        """Write all databases, as of the last commit, into a folder that `Engine` can be opened on, and where logs end."""
        with (
            contextlib.closing(self.storage.connect()) as writer,
            contextlib.closing(self.storage.connect()) as source,
            contextlib.closing(sqlite3.connect(folder / self.storage.path.name)) as target,
            self.storage.writing(writer, self),  # between two commits
        ):
            source.backup(target)
            ends = {name: self.agent.logs.position(name).end.hex() for name in self.storage.catalog.databases}
        (folder / _LOG_ENDS).write_text(json.dumps(ends), encoding="utf-8")

    def restored(self, backup: Path) -> None:
        """This engine was opened on a backup: each database begins a new recovery fork, its log goes on where it ended."""
        ends: dict[str, str] = json.loads((backup / _LOG_ENDS).read_text(encoding="utf-8"))
        self.agent.logs.restored({name: bytes.fromhex(end) for name, end in ends.items()})
        catalog = self.storage.catalog.copy()
        for name, database in catalog.databases.items():
            if database.name not in SYSTEM:
                database.recovery_forks.append(RecoveryFork(ends[name], secrets.token_hex(16)))
        catalog.version = self.storage.next_version()
        with contextlib.closing(self.storage.connect()) as connection, self.storage.writing(connection, self):
            saved = self.storage.save_catalog(connection, catalog)
        self.storage.publish(saved)

    def sessions(self) -> list[EngineSession]:
        """The open sessions."""
        with self._mutex:
            return list(self._sessions.values())

    def closed(self, session: EngineSession) -> None:
        """A session ended."""
        with self._mutex:
            self._sessions.pop(session.session_id, None)

    def before_statement(self, session: Session, text: str) -> Fault | None:
        """Fault injection: what shall happen to the request whose text this is."""
        return self.faults(session, text) if self.faults is not None else None

    def close(self) -> None:
        """Stop the Agent, close all sessions and the file."""
        self.agent.stop()
        for session in self.sessions():
            session.close()
        self.storage.close()
