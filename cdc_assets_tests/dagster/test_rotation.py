"""A password that was changed: ticks and pages offer the refused one at most twice a minute, and follow the new one at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest

from cdc_assets.core import refused_logins
from cdc_assets.defs import watch
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.server_view import observe_server
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.sqlserver import SqlServerCdcResource
from cdc_assets.errors import CredentialsError
from cdc_assets_tests.shop import Shop, tick
from mssql_standin.control import StandIn


class Minute:
    """A clock for the pauses between logins."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def minute(monkeypatch: pytest.MonkeyPatch) -> Minute:
    """No login was tried yet, and each look is due."""
    found = Minute()
    clock = SimpleNamespace(time=found.time, monotonic=refused_logins.time.monotonic)
    monkeypatch.setattr(refused_logins, "time", clock)
    monkeypatch.setattr(refused_logins, "_accounts", {})
    monkeypatch.setattr(watch, "_IDLE_EVERY_S", 0.0)
    monkeypatch.setattr(watch, "_SHARE", 0.0)
    return found


@pytest.fixture
def rotated(shop: Shop, instance: dg.DagsterInstance, minute: Minute) -> Iterator[Shop]:
    """The shop, healthy, whose password is in a file that still has the former one."""
    file = shop.folder / "password"
    file.write_text(shop.server.password)
    shop.write({"database.password": f"${{file:{file}}}"})
    if not shop.view().known:
        assert shop.snapshot(instance).success
        assert shop.changes(instance).success
    shop.server.rotate_password()
    shop.server.drop_connections()
    yield shop
    file.write_text(shop.server.password)


@contextmanager
def refusals(server: StandIn) -> Iterator[list[str]]:
    """Passwords that the server refuses."""
    found: list[str] = []
    take = server.engine.open

    def opened(login: Any) -> Any:
        try:
            return take(login)
        except Exception:
            found.append(login.password)
            raise

    with patch.object(server.engine, "open", opened):
        yield found


def health(instance: dg.DagsterInstance) -> str:
    event = instance.get_latest_materialization_event(dg.AssetKey(["shop", "windows"]))
    assert event is not None
    assert event.asset_materialization is not None
    return str(event.asset_materialization.metadata["health"].value)


@pytest.mark.long
def test_ticks_of_a_minute(rotated: Shop, instance: dg.DagsterInstance, minute: Minute) -> None:
    with refusals(rotated.server) as found:
        for _ in range(12):
            with pytest.raises(CredentialsError, match="refused the login"):
                tick(rotated, instance)
            minute.now += 5
        assert 1 <= len(found) <= 2
        assert health(instance).startswith("in trouble: the sensor: it cannot find out")
        (rotated.folder / "password").write_text(rotated.server.password)
        assert tick(rotated, instance).skip_message == "Nothing new."
        assert len(found) <= 2


@pytest.mark.long
def test_looks_of_a_run(rotated: Shop, minute: Minute) -> None:
    """While its stream goes on over a session that is open."""
    with rotated.in_environment():
        page = dg.AssetKey(["shop", "windows"])
        catalog = SimpleNamespace(
            keys=lambda _: {},
            checked=lambda of: {page: None} if of == "capture" else {},
            config=rotated.config(),
            has_kafka=False,
            page_key=page,
        )
        server = SqlServerCdcResource(config_file=str(rotated.file))
        resource = CaptureResource(server=server, spark=SparkResource())
        with refusals(rotated.server) as found:
            for _ in range(20):
                seen = observe_server(catalog, resource)  # type: ignore[arg-type]
                assert "refused the login" in seen.report.headline
                minute.now += 3
            assert 1 <= len(found) <= 2
            (rotated.folder / "password").write_text(rotated.server.password)
            assert observe_server(catalog, resource).report.healthy  # type: ignore[arg-type]
