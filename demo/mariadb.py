"""A MariaDB of the demonstration's own: on loopback, with its own data folder, and gone with its context.

It calls itself MySQL 5.7, since Debezium's MySQL connector refuses a server that calls itself MariaDB, and writes its
binlog row by row. Debian's packages `mariadb-server-core` and `mariadb-client-core` hold all that it needs and start no
service.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from cdc_assets.errors import ConnectionLostError, PreflightError

_STARTS_WITHIN_S: Final = 90.0
_PATH: Final = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
USER: Final = "cdc"


class MariaDb:
    """A server that lasts as long as its context.

    Args:
        folder: for its data, which stay.
        database: is made if there is none.
    """

    def __init__(self, folder: Path, database: str) -> None:
        self._folder, self._database = folder.absolute(), database
        self.port, self.password = _free_port(), secrets.token_urlsafe(18)
        self._run = Path(tempfile.mkdtemp(prefix="cdc-mariadb-"))  # a socket's name must be short
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it.

        Raises:
            PreflightError: it is not installed.
            ConnectionLostError: it does not start.
        """
        try:
            self._prepare()
            with (self._folder / "server.log").open("ab") as log:
                self._process = subprocess.Popen(self._command(), stdout=log, stderr=log, start_new_session=True)  # noqa: S603 - Debian's server
            self._await()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._run, ignore_errors=True)

    def execute(self, statements: str) -> list[list[str]]:
        """Run statements, separated by semicolons.

        Returns:
            The rows of all results, as texts.

        Raises:
            ConnectionLostError: the server refuses them or is gone.
        """
        command = [_program("mariadb"), "--no-defaults", f"--socket={self._run / 's'}", f"-u{USER}", "-NB"]
        environment = os.environ | {"MYSQL_PWD": self.password}
        done = subprocess.run(  # noqa: S603 - Debian's client; the statements are this project's
            command, env=environment, input=statements, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ConnectionLostError(
                f"MariaDB says: {done.stderr.strip()}. Next: see {self._folder / 'server.log'}, and try again."
            )
        return [line.split("\t") for line in done.stdout.splitlines()]

    def _prepare(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        data = self._folder / "data"
        if not (data / "mysql").is_dir():
            options = [f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db", *_root()]
            with (self._folder / "server.log").open("ab") as log:
                subprocess.run(  # noqa: S603 - Debian's program
                    [_program("mariadb-install-db"), "--no-defaults", *options], check=True, stdout=log, stderr=log
                )
        start = self._run / "start.sql"
        start.touch(0o600)
        hosts = ("'127.0.0.1'", "localhost")
        lines = [
            "delete from mysql.global_priv where user in ('root', '')",
            "flush privileges",
            *(f"create or replace user {USER}@{host} identified by '{self.password}'" for host in hosts),
            *(f"grant all on *.* to {USER}@{host}" for host in hosts),
            f"create database if not exists `{self._database}`",
        ]
        start.write_text("".join(f"{line};\n" for line in lines))

    def _command(self) -> list[str]:
        options = {
            "datadir": self._folder / "data",
            "socket": self._run / "s",
            "pid-file": self._run / "pid",
            "init-file": self._run / "start.sql",
            "port": self.port,
            "bind-address": "127.0.0.1",
            "version": "5.7.19",
            "log-bin": "bin",
            "binlog-format": "ROW",
            "binlog-row-image": "FULL",
            "server-id": 1,
            "innodb-buffer-pool-size": "32M",
        }
        given = [f"--{name}={value}" for name, value in options.items()]
        return [_program("mariadbd"), "--no-defaults", "--skip-name-resolve", *_root(), *given]

    def _await(self) -> None:
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while True:
            assert self._process is not None  # noqa: S101 - it was started
            try:
                self.execute(f"use `{self._database}`")
            except ConnectionLostError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return


def _root() -> list[str]:
    """What root must say to be allowed to run it."""
    return ["--user=root"] if os.getuid() == 0 else []


def _program(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise PreflightError(
            f"The program {name} is missing. Next: apt-get install mariadb-server-core mariadb-client-core, or make run-mysql."
        )
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
