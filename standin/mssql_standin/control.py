"""The stand-in as an object: start, seed, steer, stop.

```python
with StandIn(databases=("TestDB",)) as server:
    server.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", database="TestDB")
    connection = pyodbc.connect(server.connection_string("TestDB"), autocommit=True)
```
"""

import secrets
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mssql_standin import drivers
from mssql_standin.bulk import Bulk
from mssql_standin.certificates import self_signed
from mssql_standin.client import Connection
from mssql_standin.contract import AgentControl, Login
from mssql_standin.engine.server import Engine, SystemClock
from mssql_standin.faults import Faults
from mssql_standin.wire.blocks import LIMIT_BYTES, RowBlocks
from mssql_standin.wire.prelogin import Encryption
from mssql_standin.wire.server import TdsServer


def _password() -> str:
    return "S" + secrets.token_urlsafe(15) + "1"


class StandIn:
    """A running SQL Server counterpart.

    Args:
        databases: created at the start, unless `directory` has them already.
        cdc: enable change data capture in them.
        encryption: `not_supported`, `off`, `on` or `strict`; a self-signed certificate is made when needed.
        port: 0 chooses a free one.
        directory: keeps the data; None for a temporary folder that goes with the server.
        user: the only login.
        password: generated when None.
        kept_rows: most bytes of encoded rows that are kept for the next reader.
    """

    def __init__(
        self,
        databases: tuple[str, ...] = (),
        cdc: bool = True,
        encryption: Encryption | str = Encryption.NOT_SUPPORTED,
        port: int = 0,
        directory: Path | None = None,
        user: str = "sa",
        password: str | None = None,
        kept_rows: int = LIMIT_BYTES,
    ) -> None:
        self.user, self._kept_rows = user, kept_rows
        self.password = password or _password()
        self.faults = Faults()
        """Faults that wait for their statements."""
        self._databases, self._cdc = databases, cdc
        self._encryption = Encryption(encryption)
        self._port, self._directory = port, directory
        self._certificates: Path | None = None
        self._folders: list[Path] = []
        self.certificate: Path | None = None
        """PEM file of the server's certificate, when it encrypts."""

    def start(self) -> None:
        """Start listening and create the databases."""
        self._open(self._directory)
        self._listen(self._port)
        try:
            for name in self._databases:
                self._create(name)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Close all connections and the engine."""
        self._tds.stop()
        self.engine.close()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---- where it is -----------------------------------------------------------------------------------------

    @property
    def host(self) -> str:
        """Loopback address."""
        return self._tds.host

    @property
    def port(self) -> int:
        """Port that it listens on."""
        return self._tds.port

    @property
    def connections(self) -> int:
        """How many clients are connected over the wire."""
        return self._tds.connections

    def connection_string(self, database: str = "", driver: str = "odbc18") -> str:
        """For pyodbc.

        Args:
            database: to begin in; empty means master.
            driver: `odbc18` or `freetds`.

        Raises:
            FileNotFoundError: the driver is not installed.
        """
        encrypt = {Encryption.ON: "yes", Encryption.STRICT: "strict"}.get(self._encryption, "no")
        return drivers.connection_string(
            driver, self.host, self.port, self.user, self.password, database, encrypt, self.certificate
        )

    # ---- seeding ---------------------------------------------------------------------------------------------

    def connect(self, database: str = "master", autocommit: bool = True) -> Connection:
        """A connection inside the process, without driver and wire, with the methods that pyodbc's has too."""
        return Connection(self.engine.open(Login(self.user, self.password, database)), autocommit)

    def execute(self, statement: str, *parameters: Any, database: str = "master") -> list[tuple[Any, ...]]:
        """Run a statement with `?` markers; returns the rows of its first result set.

        Raises:
            SqlError: the statement failed.
        """
        with self.connect(database) as connection:
            return connection.execute(statement, *parameters).fetchall()

    # ---- steering --------------------------------------------------------------------------------------------

    @property
    def agent(self) -> AgentControl:
        """The capture Agent: latency, pause, stop, drain, clean-up."""
        return self.engine.agent

    @property
    def clock(self) -> SystemClock:
        """The server's clock and time zone, both settable."""
        return self.engine.clock

    def drop_connections(self) -> None:
        """Close every connection, as a failover would."""
        self._tds.drop_connections()

    def restart(self) -> None:
        """Close the listener and every connection and listen again on the same port; the data stay."""
        port = self.port
        self._tds.stop()
        self._listen(port)

    def rotate_password(self, password: str | None = None) -> str:
        """Change the login's password; connections that are open stay. Returns the new one, generated when None."""
        self.password = password or _password()
        self.engine.set_password(self.password)
        return self.password

    def backup(self) -> Path:
        """Back up all databases as of the last commit; the folder lives as long as the server."""
        folder = self._folder("standin-backup-")
        self.engine.backup(folder)
        return folder

    def restore(self, backup: Path, keep_cdc: bool = True, keep_forks: bool = False) -> None:
        """Go back to a backup on the same port: connections are lost, later commits too.

        Every database begins a new recovery fork (`sys.database_recovery_status`); its maximum LSN goes back, and LSNs of lost
        transactions may come again. System and user databases go back together.

        Args:
            backup: what `backup` returned.
            keep_cdc: False disables change data capture in every database, as RESTORE without KEEP_CDC does.
            keep_forks: True leaves databases on the forks of the backup, as a snapshot of a machine does that is put back.
        """
        port = self.port
        self._tds.stop()
        self.engine.close()
        folder = self._directory or self._folder("standin-restored-")
        for left in folder.glob("standin.sqlite*"):
            left.unlink()
        shutil.copy(backup / "standin.sqlite", folder)
        self._open(folder)
        if not keep_forks:
            self.engine.restored(backup)
        if not keep_cdc:
            for (name,) in self.execute("SELECT name FROM sys.databases WHERE is_cdc_enabled = 1"):
                self.execute("EXEC sys.sp_cdc_disable_db", database=name)
        self._listen(port)

    # ---- helpers ---------------------------------------------------------------------------------------------

    def _open(self, directory: Path | None) -> None:
        self.engine = Engine(directory, self.user, self.password)
        self.engine.faults = self.faults.take
        self.engine.blocks = RowBlocks(self.engine.storage, self._kept_rows)
        self.bulk = Bulk(self.engine)

    def _listen(self, port: int) -> None:
        self._tds = TdsServer(self.engine, "127.0.0.1", port, self._encryption, *self._tls())
        self._tds.start()

    def _folder(self, prefix: str) -> Path:
        """A folder that goes with the server."""
        self._folders.append(Path(tempfile.mkdtemp(prefix=prefix)))
        return self._folders[-1]

    def _tls(self) -> tuple[Path | None, Path | None]:
        if self._encryption is Encryption.NOT_SUPPORTED:
            return None, None
        if self._certificates is None:
            self._certificates = self._folder("standin-tls-")
            self.certificate, self._key = self_signed(self._certificates)
        return self.certificate, self._key

    def _create(self, name: str) -> None:
        if not self.execute("SELECT name FROM sys.databases WHERE name = ?", name):
            quoted = name.replace("]", "]]")
            self.execute(f"CREATE DATABASE [{quoted}]")
        if self._cdc and not self.execute("SELECT 1 FROM sys.databases WHERE name = ? AND is_cdc_enabled = 1", name):
            self.execute("EXEC sys.sp_cdc_enable_db", database=name)
