"""Both drivers encrypt as the configuration says, and refuse a certificate they cannot trust."""

from collections.abc import Iterator

import pytest

from cdc_assets.adapters.sqlserver.bulk import MssqlBulkSource
from cdc_assets.adapters.sqlserver.source import SqlServerSource
from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.errors import LoginError
from cdc_assets_tests.contract.source.conftest import DATABASE, connection
from mssql_standin.control import StandIn

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def encrypting() -> Iterator[StandIn]:
    with StandIn(databases=(DATABASE,), encryption="on") as started:
        yield started


def ask_both(settings: ConnectionSettings) -> None:
    with SqlServerSource(settings) as source:
        assert source.databases() == (DATABASE,)
    assert next(iter(MssqlBulkSource(settings).read("SELECT 1 AS one"))).to_pydict() == {"one": [1]}


def test_encrypted_with_a_trusted_certificate(encrypting: StandIn) -> None:
    ask_both(connection(encrypting, DATABASE, encrypt="yes", trust_server_certificate=True))


def test_untrusted_certificate_is_refused(encrypting: StandIn) -> None:
    settings = connection(encrypting, DATABASE, encrypt="yes")
    with SqlServerSource(settings) as source, pytest.raises(LoginError, match=r"driver\.trustServerCertificate"):
        source.databases()
    with pytest.raises(LoginError, match=r"driver\.trustServerCertificate"):
        list(MssqlBulkSource(settings).read("SELECT 1"))


def test_strict() -> None:
    with StandIn(databases=(DATABASE,), encryption="strict") as server:
        settings = connection(
            server, DATABASE, encrypt="strict", extra=(("ServerCertificate", str(server.certificate)),)
        )
        ask_both(settings)


def test_server_without_encryption_is_refused(server: StandIn) -> None:
    settings = connection(server, DATABASE, encrypt="yes")
    with SqlServerSource(settings) as source, pytest.raises(LoginError, match=r"driver\.encrypt"):
        source.databases()
