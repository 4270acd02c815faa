"""The page of a run that works: a look without an answer is told while it lasts, and so is its end."""

import threading
from datetime import UTC, datetime
from time import sleep
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest

from cdc_assets.core.identifiers import TableId
from cdc_assets.defs import asking, server_view, watch
from cdc_assets.defs.captures import CaptureResource
from cdc_assets.defs.catalog import CaptureCatalog
from cdc_assets.defs.seen import was_just_seen
from cdc_assets.defs.spark import SparkResource
from cdc_assets.defs.sqlserver import SqlServerCdcResource
from cdc_assets.defs.translator import CdcTranslator
from cdc_assets.defs.view import CaptureView, Observation
from cdc_assets.defs.watch import LivePage
from cdc_assets.lake.topics import TopicTables
from cdc_assets.overview import CaptureReport
from cdc_assets.overview.checks.sqlserver import CAPTURE_JOB
from cdc_assets.overview.report import TableReport
from cdc_assets_tests.patience import Patience
from cdc_assets_tests.shop import Shop

WINDOWS = dg.AssetKey("windows")


def look() -> Observation:
    """All is well."""
    table = TableReport(TableId("SalesDb", "dbo", "orders"), "shop.SalesDb.dbo.orders", "streaming")
    check = dg.AssetCheckEvaluation(WINDOWS, "capture_job", passed=True, metadata={}, description="It reads.")
    return Observation(CaptureReport("shop", datetime.now(UTC), tables=(table,)), (check,))


class Server:
    """Answers looks unless it hangs."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()

    def observe(self) -> Observation:
        """One look."""
        assert self.answers.wait(60)
        return look()


def health(instance: dg.DagsterInstance) -> str:
    """What the page says."""
    event = instance.get_latest_materialization_event(WINDOWS)
    found = event.asset_materialization.metadata if event and event.asset_materialization else {}
    return str(found["health"].value) if "health" in found else ""


def passed(instance: dg.DagsterInstance) -> bool:
    """What the check says."""
    key = dg.AssetCheckKey(WINDOWS, "capture_job")
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    return bool(record and record.evaluation and record.evaluation.passed)


def test_look_without_an_answer_is_told_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    server, found = Server(), list[str]()
    for module, name in [(asking, "_OVERDUE_S"), (watch, "_FIRST_S"), (watch, "_RUN_EVERY_S")]:
        monkeypatch.setattr(module, name, 0.05)
    monkeypatch.setattr(watch, "account_of", lambda *_: {})
    view = CaptureView("shop", WINDOWS, "windows", server.observe, checks=[CAPTURE_JOB])

    def told(instance: dg.DagsterInstance, says: str, *, passes: bool) -> None:
        patience = Patience(60)
        while not (health(instance).startswith(says) and passed(instance) is passes):
            assert patience, health(instance)
            sleep(0.02)
        found.append(health(instance))

    @dg.asset(key=WINDOWS)
    def windows(context: dg.AssetExecutionContext) -> None:
        with LivePage(view, context, cast(TopicTables, cast(Any, None))).fresh():
            told(context.instance, "healthy", passes=True)
            server.answers.clear()
            told(context.instance, "not known: The state of the capture is not known: no answer", passes=False)
            assert was_just_seen(context.instance, WINDOWS), "the sensor need not look beside it"
            server.answers.set()
            told(context.instance, "healthy", passes=True)

    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([windows], instance=instance).success
    assert len(found) == 3


def test_look_that_fails_is_told_by_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its events would go on to say what was seen before."""
    for name in ("_FIRST_S", "_RUN_EVERY_S"):
        monkeypatch.setattr(watch, name, 0.05)
    monkeypatch.setattr(watch, "account_of", lambda *_: {})
    looks = [look, lambda: 1 / 0]
    view = CaptureView("shop", WINDOWS, "windows", lambda: looks[0](), checks=[CAPTURE_JOB])  # type: ignore[arg-type,return-value]

    @dg.asset(key=WINDOWS)
    def windows(context: dg.AssetExecutionContext) -> None:
        page = LivePage(view, context, cast(TopicTables, cast(Any, None)))
        with page.fresh():
            for says in ("healthy", "not known: The state of the capture is not known: ZeroDivisionError", "healthy"):
                patience = Patience(60)
                while not health(context.instance).startswith(says):
                    assert patience, health(context.instance)
                    sleep(0.02)
                assert page.facts()["health"].startswith(says)
                looks.reverse()

    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([windows], instance=instance).success


def test_look_asks_the_broker_that_the_settings_name_by_now(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that never ends has read them long ago, and so have its definitions."""
    asked: list[str] = []
    monkeypatch.setattr(
        server_view, "TICK_MARKER", SimpleNamespace(ask=lambda config: asked.append(config.kafka.servers))
    )
    server = SqlServerCdcResource(config_file=str(shop.file))
    with shop.in_environment():
        resource = CaptureResource(server=server, spark=SparkResource())
        catalog = CaptureCatalog(server.settings(), server.tables(), CdcTranslator())
        server_view.observe_server(catalog, resource)
        shop.write({"bootstrap.servers": "127.0.0.1:9"})
        server_view.observe_server(catalog, resource)
        shop.write({"bootstrap.servers": "127.0.0.1:9", "database.port": "1"})  # no answer
        server_view.observe_server(catalog, resource)
    assert asked[0] == ""
    assert set(asked[1:]) == {"127.0.0.1:9"}
