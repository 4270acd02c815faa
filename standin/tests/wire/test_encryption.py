"""Encryption between real clients and a scripted engine: what the server offers, what the client insists on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mssql_python
import pyodbc
import pytds
import pytest

from mssql_standin import drivers
from mssql_standin.certificates import self_signed
from mssql_standin.contract import ResultColumn
from mssql_standin.sqltypes import NVARCHAR_MAX
from mssql_standin.wire.prelogin import Encryption
from mssql_standin.wire.server import TdsServer
from tests.wire.scripted import ScriptedEngine


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


@contextmanager
def serving(engine: ScriptedEngine, encryption: str, certificate: tuple[Path, Path]) -> Iterator[TdsServer]:
    with TdsServer(engine, "127.0.0.1", 0, encryption, *certificate) as server:
        yield server


def text(server: TdsServer, encrypt: str, certificate: Path, driver: str = "odbc18") -> str:
    return drivers.connection_string(driver, "127.0.0.1", server.port, "sa", "secret", "", encrypt, certificate)


@pytest.mark.parametrize(
    ("offered", "wanted"),
    [("off", "no"), ("off", "yes"), ("on", "yes"), ("strict", "strict"), ("on", "strict"), ("off", "strict")],
)
def test_odbc18(engine: ScriptedEngine, certificate: tuple[Path, Path], offered: str, wanted: str) -> None:
    engine.select("select long", [ResultColumn("a", NVARCHAR_MAX)], [("x" * 300_000,)] * 3)
    with serving(engine, offered, certificate) as server:
        connection = pyodbc.connect(text(server, wanted, certificate[0]), autocommit=True)
        assert connection.execute("select 1").fetchval() == 1
        assert [len(row[0]) for row in connection.execute("select long")] == [300_000] * 3
        assert connection.execute("select ?", "y" * 100_000).fetchval() == "y" * 100_000
        connection.close()


@pytest.mark.parametrize(("offered", "wanted"), [("off", "no"), ("off", "yes"), ("on", "yes")])
def test_freetds(engine: ScriptedEngine, certificate: tuple[Path, Path], offered: str, wanted: str) -> None:
    with serving(engine, offered, certificate) as server:
        connection = pyodbc.connect(text(server, wanted, certificate[0], "freetds"), autocommit=True)
        assert connection.execute("select 1").fetchval() == 1
        connection.close()


@pytest.mark.parametrize("wanted", ["Encrypt=yes;TrustServerCertificate=yes", "Encrypt=strict;ServerCertificate={pem}"])
def test_mssql_python(engine: ScriptedEngine, certificate: tuple[Path, Path], wanted: str) -> None:
    with serving(engine, "on", certificate) as server:
        chosen = wanted.format(pem=certificate[0])
        connection = mssql_python.connect(f"Server=127.0.0.1,{server.port};UID=sa;PWD=secret;{chosen}")
        cursor = connection.cursor()
        cursor.execute("select 1")
        assert cursor.fetchone()[0] == 1
        connection.close()


def test_pytds(engine: ScriptedEngine, certificate: tuple[Path, Path]) -> None:
    pytest.importorskip("OpenSSL", reason="pytds needs pyOpenSSL for TLS")
    with (
        serving(engine, "on", certificate) as server,
        pytds.connect(
            "127.0.0.1", port=server.port, user="sa", password="secret", cafile=str(certificate[0]), validate_host=False
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("select 1")
        assert cursor.fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("offered", "wanted"), [("not_supported", "yes"), ("not_supported", "strict"), ("strict", "no"), ("strict", "yes")]
)
def test_what_does_not_fit_is_refused(
    engine: ScriptedEngine, certificate: tuple[Path, Path], offered: str, wanted: str
) -> None:
    pair = (None, None) if offered == "not_supported" else certificate
    with TdsServer(engine, "127.0.0.1", 0, offered, *pair) as server:
        with pytest.raises(pyodbc.Error, match=r"08001|08S01|HYT00"):
            pyodbc.connect(text(server, wanted, certificate[0]) + ";ConnectRetryCount=0", timeout=5)
        assert not engine.sessions


def test_a_certificate_that_is_not_trusted_is_refused_by_the_client(
    engine: ScriptedEngine, certificate: tuple[Path, Path]
) -> None:
    with serving(engine, "on", certificate) as server:
        strict_check = text(server, "yes", certificate[0]).replace(
            "TrustServerCertificate=yes", "TrustServerCertificate=no"
        )
        with pytest.raises(pyodbc.Error, match=r"certificate verify failed|08001"):
            pyodbc.connect(strict_check, timeout=60)


def test_encryption_needs_a_certificate() -> None:
    for encryption in Encryption:
        if encryption is not Encryption.NOT_SUPPORTED:
            with pytest.raises(ValueError, match="certificate"):
                TdsServer(ScriptedEngine(), encryption=encryption)


def test_only_loopback() -> None:
    with pytest.raises(ValueError, match="loopback"):
        TdsServer(ScriptedEngine(), host="0.0.0.0")  # noqa: S104 - that it is refused is the point
