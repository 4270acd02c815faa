"""The Dagster resource carries settings and keeps secrets in the environment."""

import dagster as dg
import pytest
from pydantic import ValidationError

from cdc_assets.config.settings import ConnectionSettings
from cdc_assets.defs.sqlserver import SqlServerResource, SqlServerSource


def test_settings_round_trip() -> None:
    settings = ConnectionSettings(
        host="db",
        user="reader",
        password="secret",
        databases=("a", "b"),
        port=1500,
        instance="X",
        encrypt="strict",
        trust_server_certificate=True,
        query_timeout_s=7,
        login_timeout_s=3,
        extra=(("PacketSize", "16000"),),
    )
    assert SqlServerResource.of(settings).settings() == settings


def test_password_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "from outside")
    seen: list[str] = []

    @dg.asset
    def probe(server: SqlServerResource) -> None:
        seen.append(server.settings().password)
        with server.source() as source:
            assert isinstance(source, SqlServerSource)
        assert server.bulk(5).batch_rows == 5

    resource = SqlServerResource(host="db", user="u", password=dg.EnvVar("SHOP_PASSWORD"), databases=["a"])
    assert "from outside" not in repr(resource)
    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([probe], resources={"server": resource}, instance=instance).success
    assert seen == ["from outside"]


def test_encryption_is_on_unless_said_otherwise() -> None:
    assert SqlServerResource(host="db", databases=["a"]).settings().encrypt == "yes"


@pytest.mark.parametrize("change", [{"port": 0}, {"encrypt": "maybe"}, {"login_timeout_s": 0}])
def test_wrong_values(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SqlServerResource(host="db", databases=["a"], **change)
