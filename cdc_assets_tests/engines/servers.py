"""Real servers from Debian's packages, each in a folder and on a port of its own."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import pytest

from cdc_assets_tests.patience import Patience

_PORTS = range(20000, 32000)
"""Below those that the system gives to clients: one of these could take a server's port while the server is stopped."""


def free_port() -> int:
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no port of {_PORTS} is free")


class Server(ABC):
    """A server that lasts as long as its context, with a folder of its own: root's servers are of other users, who cannot pass pytest's.

    Args:
        log: what it says of itself, of all its starts.
    """

    user: str
    name: str

    def __init__(self, log: Path) -> None:
        self._log, self.port = log, free_port()
        self._command: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._place = TemporaryDirectory(prefix="cdc-server-", ignore_cleanup_errors=True)
        self.folder = Path(self._place.name)
        if os.getuid() == 0:
            shutil.chown(self.folder, self.user)
        self._command = self.prepare()
        self.start()
        return self

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, **self._as_user() | {"stdout": log, "stderr": log})
        patience = Patience(90)
        while self.try_execute("select 1").returncode:
            status = self._process.poll()
            assert status is None, f"{self.name} does not start (exit status {status}): {self._log.read_text()[-4000:]}"
            assert patience, f"{self.name} does not answer: {self._log.read_text()[-4000:]}"
            time.sleep(0.3)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal and wait until it is gone; PostgreSQL's SIGINT ends its sessions first.

        It is not killed if it takes long: a MariaDB that is killed while it ends may close its binlog and leave a
        transaction prepared, and then refuses to start for ever.
        """
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(300)

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._place.cleanup()

    def _as_user(self) -> dict[str, Any]:
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return quiet | ({"user": self.user, "group": self.user, "extra_groups": []} if os.getuid() == 0 else {})

    def execute(self, text: str) -> str:
        done = self.try_execute(text)
        assert not done.returncode, f"{text}: {done.stderr}"
        return done.stdout

    def rows(self, table: str, columns: list[str]) -> list[dict[str, Any]]:
        """Content of a table as JSON objects."""
        pairs = ", ".join(f"'{column}', {column}" for column in columns)
        return [json.loads(line) for line in self.execute(f"select {self.json}({pairs}) from {table}").splitlines()]

    json: str

    @abstractmethod
    def prepare(self) -> list[str]:
        """Make the server's folder; the command that starts it."""

    @abstractmethod
    def try_execute(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run statements with the server's own client."""

    @abstractmethod
    def properties(self) -> dict[str, str]:
        """Of a capture of its tables; without a slot or a server's number."""


class MariaDb(Server):
    """Takes the MySQL connector, if it calls itself MySQL 5.7."""

    user, name, json = "mysql", "shop", "json_object"

    def prepare(self) -> list[str]:
        if not shutil.which("mariadbd"):
            pytest.fail("There is no mariadbd on this machine. Next: apt-get install mariadb-server")
        data = [f"--datadir={self.folder / 'data'}"]
        install = [
            "mariadb-install-db",
            "--no-defaults",
            *data,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
        subprocess.run(install, check=True, **self._as_user())
        options = ["version=5.7.19", "log-bin=bin", "binlog-format=ROW", "binlog-row-image=FULL", "server-id=1"]
        place = [
            f"--socket={self.folder / 's'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--innodb-buffer-pool-size=32M",
        ]
        return ["mariadbd", "--no-defaults", *data, *place, *(f"--{option}" for option in options)]

    def __enter__(self) -> Self:
        super().__enter__()
        self.name = ""
        for host in ("localhost", "%"):
            self.execute(f"create user dbz@'{host}' identified by 'secret'; grant all on *.* to dbz@'{host}'")
        self.execute("create database shop")
        self.name = "shop"
        return self

    def try_execute(self, text: str) -> subprocess.CompletedProcess[str]:
        database = [] if text == "select 1" or not self.name else [self.name]
        command = ["mariadb", "--no-defaults", f"--socket={self.folder / 's'}", "-uroot", "-NBr", *database, "-e", text]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def properties(self) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "database.include.list": "shop",
            "skipped.operations": "none",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": "dbz",
            "database.password": "secret",
        }


class Postgres(Server):
    """Takes the PostgreSQL connector by its own plug-in."""

    user, name, json = "postgres", "postgres", "json_build_object"

    def _binary(self, name: str) -> str:
        found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
        if not found:
            pytest.fail("There is no PostgreSQL on this machine. Next: apt-get install postgresql")
        return str(found[-1])

    def prepare(self) -> list[str]:
        data = str(self.folder / "data")
        subprocess.run([self._binary("initdb"), "-D", data, "-U", "dbz", "-A", "trust"], check=True, **self._as_user())
        options = [
            "wal_level=logical",
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.folder}",
            "wal_sender_timeout=5s",
        ]
        return [self._binary("postgres"), "-D", data, *(part for option in options for part in ("-c", option))]

    def require_password(self, text: str) -> None:
        """Let nobody in over the network without one; the client of tests takes the socket from now on."""
        self.execute(f"alter user dbz password '{text}'")
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text(
            "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\nhost replication all 127.0.0.1/32 scram-sha-256\n"
        )
        self.execute("select pg_reload_conf()")

    def without(self, option: str) -> None:
        """Start again without an option of the command line, which would win over what the server is told by SQL."""
        self.stop(signal.SIGINT)
        place = next(number for number, part in enumerate(self._command) if part.startswith(f"{option}="))
        self._command = [*self._command[: place - 1], *self._command[place + 1 :]]
        self.start()

    def try_execute(self, text: str) -> subprocess.CompletedProcess[str]:
        command = [
            self._binary("psql"),
            "-h",
            str(self.folder),
            "-p",
            str(self.port),
            "-U",
            "dbz",
            "-d",
            "postgres",
            "-qAt",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            text,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def properties(self) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": "dbz",
            "database.password": "secret",
            "database.dbname": "postgres",
            "schema.include.list": "public",
            "replica.identity.autoset.values": "public.*:FULL",
            "skipped.operations": "none",
        }
